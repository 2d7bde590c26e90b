"""Claims that hold for every linker."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeAlias

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding, Embeddings
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers.core.records import TEXT_KINDS, Edge
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.ingest.linkers import Linker
from crabpath_retrievers.ingest.linking import require_edges
from crabpath_retrievers.storage.read.catalog import LinkNode

JoinedPair: TypeAlias = tuple[str, str, str]
"""Ids of the documents that an edge leads from and to, and the label of its kind."""

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
        for kind in TEXT_KINDS
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
    return list(require_edges(linker, linker.link(_read_nodes(memory), memory.store.links)))


def _require_valid(edges: Sequence[Edge], nodes: Sequence[LinkNode]) -> None:
    given = {node.key for node in nodes}
    for edge in edges:
        assert {edge.source, edge.target} <= given, f"{edge} leads from or to no document"
        assert edge.source != edge.target, f"{edge} joins a document to itself"
    named = {(edge.source, edge.target, edge.kind) for edge in edges}
    assert len(named) == len({*edges}), "one edge comes with two weights"


class LinkerTests:
    """Conformance of a :class:`~crabpath_retrievers.ingest.linkers.Linker`.

    Subclass it, and override the fixtures ``linker``, ``documents`` and ``expected_edges``.
    """

    @pytest.fixture
    def linker(self) -> Linker:
        """The linker to test; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def documents(self) -> list[Document]:
        """At least two short documents with ids, some of which it joins; to be overridden."""
        raise NotImplementedError

    @pytest.fixture
    def expected_edges(self) -> set[JoinedPair]:
        """The edges of ``documents`` as (source id, target id, kind label); to be overridden."""
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
        """Documents are added together, one by one, backwards and twice: the edges are the same."""
        single = [[document] for document in documents]
        orders = {"all at once": [documents], "one by one": single, "backwards": single[::-1]}
        orders["all at once, twice"] = [documents, documents]
        for order, batches in orders.items():
            found = list_joined(_fill(open_memory(), *batches))
            assert found == expected_edges, f"added {order}, documents have the expected edges"

    def test_edges_are_between_documents_with_weights_in_range(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """No edge leads from a document to itself, or is of a kind that feedback makes."""
        memory = _fill(open_memory(), documents)
        _require_valid(_link(find_linker(memory), memory), _read_nodes(memory))

    def test_linking_again_finds_the_same_and_writes_nothing(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """A linker only reads, and keeps no state between calls."""
        memory = _fill(open_memory(), documents)
        before = memory.info()
        first, second = ({*_link(find_linker(memory), memory)} for _ in range(2))
        assert first, "it finds edges between the documents"
        assert first == second, "it finds the same edges whenever it is called: it keeps no state"
        assert memory.info() == before, "it changes nothing in the memory"

    def test_a_memory_weighs_edges_by_their_prior(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """Before anything is learned, the weight of an edge is its prior."""
        memory = _fill(open_memory(), documents)
        edges = _link(find_linker(memory), memory)
        clock = memory.store.walk.get_clock("default")
        keys = sorted(node.key for node in _read_nodes(memory))
        stored = memory.store.walk.get_outgoing_edges(keys, clock).pointers
        weights = {(edge.source, edge.target.key, edge.kind): edge.weight for edge in stored}
        expected = {(edge.source, edge.target, edge.kind): edge.prior for edge in edges}
        assert weights == pytest.approx(expected), "each edge is stored, with its prior as weight"

    def test_edges_go_and_come_with_their_ends(
        self,
        open_memory: Callable[[], CrabPath],
        documents: list[Document],
        expected_edges: set[JoinedPair],
    ) -> None:
        """A forgotten document has no edges; added again, it has the same edges as before."""
        memory = _fill(open_memory(), documents)
        for document in documents:
            memory.forget(str(document.id))
            left = {end for a, b, _ in list_joined(memory) for end in (a, b)}
            assert document.id not in left, "a forgotten document has no edges"
            memory.add_documents([document])
        found = list_joined(memory)
        assert found == expected_edges, "a document that comes back has all its edges again"

    def test_edges_follow_a_changed_text(
        self, open_memory: Callable[[], CrabPath], documents: list[Document]
    ) -> None:
        """Edges depend on the last texts only, whatever the texts were before."""
        for number, document in enumerate(documents):
            changed = document.model_copy(update={"page_content": "Nothing is left here."})
            present = [*documents[:number], changed, *documents[number + 1 :]]
            memory = _fill(open_memory(), documents)
            for now in present, documents:
                memory.add_documents([now[number]])
                fresh = list_joined(_fill(open_memory(), now))
                assert list_joined(memory) == fresh, "edges depend on the last texts alone"

    def test_a_lone_document_is_joined_to_nothing(
        self,
        open_memory: Callable[[], CrabPath],
        find_linker: Callable[[CrabPath], Linker],
        documents: list[Document],
    ) -> None:
        """A memory of one document, or of none, has no edges."""
        alone = list_joined(_fill(open_memory(), documents[:1]))
        assert alone == set(), "a document alone has no edges"
        memory = open_memory()
        found = list(find_linker(memory).link([], memory.store.links))
        assert found == [], "no new nodes have no edges"

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
        assert memory.info()["nodes"] >= len(odd), "texts of all kinds are added"
        _require_valid(_link(find_linker(memory), memory), _read_nodes(memory))
