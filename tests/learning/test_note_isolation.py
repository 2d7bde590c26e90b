"""What one namespace is taught changes nothing that another one sees."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
import tables as schema
from langchain_core.documents import Document

from crabpath_retrievers import DuplicateIdError, InvalidInputError, NotFoundError
from crabpath_retrievers.core.changes import AdjustWeights, StageNodes, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.ingest.chunking import Chunking

TEXT = "Never skip CI for hotfixes."
QUESTION = "Which fruit is red?"


@pytest.fixture
def secret(memory) -> str:
    """A note of ann, with everything that leads to it."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"], title="CI", namespace="ann")
    memory.correct("No, blue.", wrong=["a"], related=[note], namespace="ann")
    return note


def read_corpus(memory):
    """All that every namespace sees."""
    store = memory.store
    tables = ("terms", "names", "addresses", "references", "edges")
    with store.open_reader() as connection:
        rows = {
            t: sorted(map(tuple, connection.execute(sa.select(getattr(schema, t))))) for t in tables
        }
    meta = {name: value for name, value in store.catalog.meta().items() if name != "notes"}
    clock = store.walk.get_clock("default")
    return (
        rows,
        meta,
        store.catalog.all_ids(),
        store.walk.read_facts("?", ["ci", "skip"]),
        clock.notes,
    )


def test_nothing_shared_holds_a_note(memory, host, index_vectors):
    before, vectors = read_corpus(memory), memory.index.search(memory.embedder.query(TEXT), 50)
    note = memory.teach(TEXT, query=QUESTION, related=["a"], title="CI", namespace="ann")
    index_vectors(memory)
    assert read_corpus(memory) == before
    assert memory.index.search(memory.embedder.query(TEXT), 50) == vectors
    assert host.found("ci hotfixes", "ann").count(note) == 1
    memory.forget(ids=note)
    assert read_corpus(memory) == before


@pytest.mark.parametrize("indexed", [False, True])
def test_another_namespace_never_finds_it(memory, host, secret, index_vectors, indexed):
    """Neither by its words, nor by its question, name, id or metadata."""
    if indexed:
        index_vectors(memory)
    memory.teach("Something else.", namespace="bob")
    for asked in (TEXT, QUESTION, "CI", f"CI\n{TEXT}"):
        for namespace in ("bob", "never seen"):
            found = host.found(asked, namespace, seed_ids=[secret], boost_tags=["teaching"])
            assert secret not in found
            assert set("abc") <= set(found)
        assert secret in host.found(asked, "ann")


def test_reads_by_id_and_key_are_scoped(memory, secret):
    store = memory.store
    ann, bob = store.walk.get_clock("ann").key, store.walk.get_clock("bob").key
    (key,) = store.learned.keys([secret]).values()
    assert [h.id for h in store.walk.get_nodes([secret], namespace=ann)] == [secret]
    for namespace in (0, bob, ann + 1):
        assert store.walk.get_nodes([secret], [key], namespace=namespace) == []
        assert store.catalog.documents([secret], namespace=namespace) == {}
    assert store.catalog.find_chunks(ids=[secret], documents=["", secret], sources=[""]) == []
    source = store.learned.keys(["a"])["a"]
    delta = WeightDelta(source, key, EdgeKind.CO_USED, 0.9)
    store.apply([AdjustWeights("bob", (delta,))])  # even an edge of one's own is no pointer to it
    frontier = store.walk.get_outgoing_edges([source], store.walk.get_clock("bob"))
    assert key not in {pointer.target.key for pointer in frontier.pointers}


def test_a_foreign_note_can_neither_be_named_nor_replaced(memory, secret):
    """Its id is taken, and its text is not told."""
    for call in (
        lambda: memory.teach("t", related=[secret], namespace="bob"),
        lambda: memory.correct("t", wrong=[secret], namespace="bob"),
        lambda: memory.learning.anchor(secret, namespace="bob"),
    ):
        with pytest.raises(NotFoundError, match="there is no document or note"):
            call()
    with pytest.raises(InvalidInputError, match="is taken") as error:
        memory.teach("t", id=secret, namespace="bob")
    assert TEXT not in str(error.value)
    with pytest.raises(InvalidInputError, match="belongs to a note") as error:
        memory.add_documents([Document("x", id=secret)])
    assert not isinstance(error.value, DuplicateIdError)
    assert memory.store.notes.get_facts([secret])[0].namespace == "ann"


def test_cleanup_keeps_notes_and_a_filter_hides_them(memory, host, secret):
    facts = memory.info()
    assert (facts["nodes"], facts["notes"], facts["sources"]) == (3, 2, 3)
    tagged = Document("Only this.", id="t", metadata={"lang": "en"})
    memory.add_documents([tagged], cleanup="full")
    assert memory.info()["nodes"] == 1
    assert secret in host.found(TEXT, "ann")
    found = host.found(TEXT, "ann", filter=lambda d: d.metadata.get("lang") == "en")
    assert found == ["t"]


def test_a_document_that_comes_at_the_same_time_wins(memory, secret, host):
    chunking = Chunking(memory.settings.ingest, split=False)
    (node,) = chunking.nodes([Document("Public text.", id=secret)])
    node = replace(node, vector=memory.embedder.query("Public text."))
    memory.store.apply([StageNodes((node,))])
    memory._services.ingest.recover()
    assert memory.store.notes.get_facts([secret]) == []
    assert host.answer("Public text.", "bob").documents[0].node.content == "Public text."
    assert memory.store.walk.read_facts("a", ["hotfixes", "public"]).frequencies == {"public": 1}
    assert memory.info()["nodes"] == 4


@pytest.mark.both_databases
def test_forgetting_a_namespace_forgets_its_notes(memory, host, secret, index_vectors):
    kept = memory.teach(TEXT, namespace="bob")
    index_vectors(memory)
    key = memory.store.walk.get_clock("ann").key
    memory.forget(namespace="ann")
    assert memory.store.notes.get_facts([secret]) == []
    assert memory.store.catalog.documents([secret], namespace=key) == {}
    assert host.found(TEXT, "bob")[0] == kept
    assert memory.info()["notes"] == 1
    if memory._services.notes._collections.available:
        assert memory.index.beside(f"notes-{key}").count() == 0
    memory.teach(TEXT, namespace="ann")
    assert memory.store.walk.get_clock("ann").notes == 1
