"""Forgetting documents and namespaces."""

import pytest
from langchain_text_splitters import CharacterTextSplitter

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import InvalidInputError, NotFoundError

LINES = CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0)


def test_documents_are_forgotten_by_id(memory, document, held):
    """One id or several, of chunks or of whole documents; unknown ones count nothing."""
    texts = {"a": "one\ntwo", "b": "three", "c": "four"}
    memory.add_documents([document(t, id=i) for i, t in texts.items()], splitter=LINES)
    assert memory.forget("a") == 2
    assert memory.forget(["b", "never there"]) == 1
    assert memory.forget(["b"]) == 0
    assert held(memory) == {"c": "four"}


def test_documents_are_forgotten_by_source(memory, document, held):
    """All chunks of a source go, whatever ids they have."""
    one, two = document("one", id="a", source="s"), document("two", source="s")
    memory.add_documents([one, two, document("three", id="b", source="t")])
    assert memory.forget(source="s") == 2
    assert memory.forget(source="s") == 0
    assert held(memory) == {"b": "three"}


def test_nothing_of_a_forgotten_text_is_left(tmp_path, memory, document):
    """The text and its names are in no table and no file of the index any more."""
    memory.add_documents([document("keep this", id="a")])
    memory.add_documents([document("the codeword is xylophone", id="b", title="Xylophone")])
    memory.retrieve("what is the codeword?", k=2)
    memory.forget("b")
    with memory.store.open_reader() as connection:
        for line in connection.connection.driver_connection.iterdump():
            assert "xylophone" not in line.lower() or line.startswith('INSERT INTO "crabpath_full')
    assert memory.store.fulltext.phrase(["xylophone"], 5) == []
    assert [d.node.id for d in memory.retrieve("xylophone", k=2).documents] == ["a"]


def test_a_gap_is_closed(memory, document, joined):
    """When the middle chunk of a source is forgotten its neighbours become siblings."""
    pages = [document(f"page {i}", id=f"p{i}", source="book") for i in range(4)]
    memory.add_documents(pages)
    memory.forget("p1")
    chain = {("p0", "p2"), ("p2", "p3")}
    assert joined(memory, EdgeKind.SIBLING) == chain | {(b, a) for a, b in chain}
    assert not memory.store.catalog.has_unfinished_ingest()


def test_a_namespace_is_forgotten_and_the_documents_stay(memory, document, held):
    """Turns of one namespace go; documents and other namespaces stay."""
    memory.add_documents([document("text", id="a")])
    ann = memory.retrieve("text", namespace="ann").turn.id
    bob = memory.retrieve("text", namespace="bob").turn.id
    assert memory.forget(namespace="ann") == 0
    with pytest.raises(NotFoundError):
        memory.store.turns.get(ann)
    assert memory.store.turns.get(bob).namespace == "bob"
    assert held(memory) == {"a": "text"}


@pytest.mark.parametrize(
    "wanted", [{}, {"ids": ["a"], "source": "s"}, {"ids": [], "namespace": "x"}]
)
def test_exactly_one_thing_is_forgotten_at_a_time(memory, wanted):
    """Nothing or two things at once is refused, so that nothing is forgotten by mistake."""
    with pytest.raises(InvalidInputError, match="exactly one"):
        memory.forget(**wanted)
