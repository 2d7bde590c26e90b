"""Claims that hold for every linker."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.core.records import LEARNED_KINDS, Edge, EdgeKind
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.ingest.linkers import Linker
from crabpath_retrievers.storage.read.catalog import LinkNode

JoinedPair: TypeAlias = tuple[str, str, str]
"""Ids of the documents that an edge leads from and to, and the label of its kind."""

KINDS = [kind for kind in EdgeKind if kind not in LEARNED_KINDS and kind is not EdgeKind.STOP]
"""Kinds of edges that texts have."""

ODD_TEXTS = [
    ".",
    "!?…—",
    "[[]] [a]() [b](",
    "<a href=",
    "ü€😀 \u202eright to left",
    "北京大学 กรุงเทพ 서울",
    "x" * 5_000,
    "word " * 2_000,
    "Anna Bell met Anna Bell.",
    "Anna Bell met Anna Bell!",
]


def list_joined(memory: CrabPath) -> set[JoinedPair]:
    """List all edges that the texts of a memory have."""
    links = memory.store.links
    keys = {key: node for node, key in links.keys(memory.store.catalog.all_ids()).items()}
    return {
        (keys[source], keys[target], kind.label)
        for kind in KINDS
        for source, target in links.find_ends(sorted(keys), kind.value)
    }


def _fill(memory: CrabPath, *batches: Sequence[Document]) -> CrabPath:
    for batch in batches:
        memory.add_documents(list(batch))
    return memory


def _read_nodes(memory: CrabPath) -> list[LinkNode]:
    links = memory.store.links
    return links.nodes(sorted(links.keys(memory.store.catalog.all_ids()).values()))


def _link(linker: Linker, memory: CrabPath) -> list[Edge]:
    """Run a linker over all nodes as if they were new."""
    return list(linker.link(_read_nodes(memory), memory.store.links))


def _require_valid(edges: Sequence[Edge], nodes: Sequence[LinkNode]) -> None:
    given = {node.key for node in nodes}
    for edge in edges:
        assert {edge.source, edge.target} <= given, f"{edge} leads from or to no document"
        assert edge.source != edge.target, f"{edge} joins a document to itself"
        assert edge.kind in KINDS, f"{edge} is of a kind that feedback makes"
        assert -1.0 <= edge.prior <= 1.0, f"the prior of {edge} is not in [-1, 1]"
        assert -1.0 <= edge.floor <= 1.0, f"the floor of {edge} is not in [-1, 1]"
    named = {(edge.source, edge.target, edge.kind) for edge in edges}
    assert len(named) == len({*edges}), "one edge comes with two weights"


class LinkerTests:
    """Conformance of a :class:`~crabpath_retrievers.ingest.linkers.Linker`.

    Subclass it, and override the fixtures ``linker``, ``documents`` and ``expected_edges``.
    """

    @pytest.fixture
    def linker(self) -> Linker:
        """The linker; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def documents(self) -> list[Document]:
        """At least two short documents with ids, some of which it joins; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def expected_edges(self) -> set[JoinedPair]:
        """Its edges between them as (source id, target id, label of the kind); to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def embeddings(self) -> Embeddings:
        """Embedder of the memories."""
        return DeterministicFakeEmbedding(size=16)

    @pytest.fixture
    def open_memory(
        self, linker: Linker, embeddings: Embeddings, tmp_path: Path
    ) -> Iterator[Callable[[], CrabPath]]:
        """Function that opens a new memory with this linker alone."""
        opened: list[CrabPath] = []

        def open_next() -> CrabPath:
            place, vectors = tmp_path / f"linked{len(opened)}", InMemoryVectorStore(embeddings)
            opened.append(
                CrabPath.open(place, embeddings=embeddings, vectors=vectors, linkers=[linker])
            )
            return opened[-1]

        yield open_next
        for memory in opened:
            memory.close()

    @pytest.fixture
    def find_linker(self, linker: Linker) -> Callable[[CrabPath], Linker]:
        """Function that finds the linker of a memory, where each has its own."""
        return lambda _memory: linker

    def test_edges_come_once_in_any_order(
        self,
        open_memory: Callable[[], CrabPath],
        documents: list[Document],
        expected_edges: set[JoinedPair],
    ) -> None:
        """Together, one by one, backwards; adding the same again changes nothing."""
        single = [[document] for document in documents]
        for batches in [documents], single, single[::-1], [documents, documents]:
            assert list_joined(_fill(open_memory(), *batches)) == expected_edges

    def test_edges_are_between_documents_with_weights_in_range(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """None leads from a document to itself, and none is of a kind that feedback makes."""
        memory = _fill(open_memory(), documents)
        _require_valid(_link(find_linker(memory), memory), _read_nodes(memory))

    def test_linking_again_finds_the_same_and_writes_nothing(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """A linker only reads, and remembers nothing."""
        memory = _fill(open_memory(), documents)
        before = memory.info()
        first, second = ({*_link(find_linker(memory), memory)} for _ in range(2))
        assert first == second != set()
        assert memory.info() == before

    def test_a_memory_weighs_edges_by_their_prior(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """As long as nothing is learned."""
        memory = _fill(open_memory(), documents)
        edges = _link(find_linker(memory), memory)
        clock = memory.store.walk.get_clock("default")
        keys = sorted(node.key for node in _read_nodes(memory))
        stored = memory.store.walk.get_outgoing_edges(keys, clock).pointers
        weights = {(edge.source, edge.target.key, edge.kind): edge.weight for edge in stored}
        expected = {(edge.source, edge.target, edge.kind): edge.prior for edge in edges}
        assert weights == pytest.approx(expected)

    def test_edges_go_and_come_with_their_ends(
        self,
        open_memory: Callable[[], CrabPath],
        documents: list[Document],
        expected_edges: set[JoinedPair],
    ) -> None:
        """A document that is forgotten has none, and has its own again when it is added."""
        memory = _fill(open_memory(), documents)
        for document in documents:
            memory.forget(str(document.id))
            assert not {end for a, b, _ in list_joined(memory) for end in (a, b)} & {document.id}
            memory.add_documents([document])
        assert list_joined(memory) == expected_edges

    def test_edges_follow_a_changed_text(
        self, open_memory: Callable[[], CrabPath], documents: list[Document]
    ) -> None:
        """They are those of the last texts, whatever the texts were before."""
        for number, document in enumerate(documents):
            changed = document.model_copy(update={"page_content": "Nothing is left here."})
            present = [*documents[:number], changed, *documents[number + 1 :]]
            memory = _fill(open_memory(), documents, [changed])
            assert list_joined(memory) == list_joined(_fill(open_memory(), present))
            memory.add_documents([document])
            assert list_joined(memory) == list_joined(_fill(open_memory(), documents))

    def test_a_lone_document_is_joined_to_nothing(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """No documents at all have no edges either."""
        assert list_joined(_fill(open_memory(), documents[:1])) == set()
        memory = open_memory()
        assert list(find_linker(memory).link([], memory.store.links)) == []

    def test_odd_texts_are_linked_as_others(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """Signs alone, open brackets, every script, long words and equal texts stop no ingest."""
        odd = [
            Document(text, id=f"odd {number}", metadata={"title": "[[ü€😀]]" * (number % 2)})
            for number, text in enumerate(ODD_TEXTS)
        ]
        memory = _fill(open_memory(), odd, documents)
        assert memory.info()["nodes"] >= len(odd)
        _require_valid(_link(find_linker(memory), memory), _read_nodes(memory))
