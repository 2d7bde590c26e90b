"""What a process remembers of the corpus is never older than the store."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.storage import GraphStore
from tests.seams import get_cache, set_bounds

TEXTS = {
    "Deploy": "To deploy, run Check CI and then Inspect Manifest.",
    "Check CI": "All checks must be green before a release.",
    "Inspect Manifest": "Compare the manifest with the last release.",
    "Rollback": "If Deploy fails, roll back.",
}
QUESTION = "how do I deploy?"
ANN = "ann"
CHANGES = {
    "add": lambda m: m.add_documents([make("Pager", "Before Deploy call the pager.")], split=False),
    "replace": lambda m: m.add_documents([make("Rollback", "Never roll back.")], split=False),
    "forget": lambda m: m.forget(["Check CI"]),
    "feedback": lambda m: record(m, 1.0),
    "failures": lambda m: [record(m, -1.0) for _ in range(3)],
    "teach": lambda m: m.teach("Deploy on Mondays.", namespace=ANN),
    "undo": lambda m: m.undo(record(m, 1.0), namespace=ANN),
    "authority": lambda m: m.learning.anchor("Check CI", authority="constitutional"),
    "edge": lambda m: m.graph.add_edge("Deploy", "Rollback", "temporal", weight=0.5, namespace=ANN),
    "maintain": lambda m: m.maintenance.run(),
    "restore": lambda m: (
        record(m, 1.0),
        m.namespaces.restore(m.namespaces.snapshot(ANN), namespace=ANN),
    ),
    "forget a namespace": lambda m: (record(m, 1.0), m.forget(namespace=ANN)),
}


def make(title: str, text: str) -> Document:
    return Document(text, id=title, metadata={"title": title, "source": title})


def record(memory: CrabPath, outcome: float) -> str:
    answer = memory.retrieve(QUESTION, k=2, namespace=ANN)
    used = [answer.documents[0].node.id] if outcome > 0 else []
    receipt = memory.record(Feedback(answer.turn.id, outcome, used=used, namespace=ANN))
    assert receipt.status == "applied"
    return receipt.feedback_id


@pytest.fixture
def memory(location):
    vectors = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(
        location, embeddings=vectors, vectors=InMemoryVectorStore(vectors)
    ) as opened:
        opened.add_documents([make(*item) for item in TEXTS.items()], split=False)
        yield opened


def read_all(store: GraphStore, namespace: str) -> list[object]:
    """All that a query may read of a store."""
    ids = sorted({*TEXTS, "Pager", *store.catalog.all_ids()})
    facts = store.walk.read_facts(namespace, ["deploy", "pager", "checks"], ["check ci", "pager"])
    clock = facts.clock
    heads = store.walk.get_nodes(ids, namespace=clock.key, corpus=clock.corpus)
    edges, stops = store.walk.get_outgoing_edges([head.key for head in heads], clock)
    return [
        (facts._replace(clock=None), clock),
        [head[:4] for head in heads],
        sorted((e.source, e.target.key, e.kind.value, round(e.weight, 9), e.prior) for e in edges),
        stops,
        store.walk.get_documents(ids, clock),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_after_every_change_it_is_what_a_new_process_reads(memory, location, change):
    """The changing process, one that had read everything before, and a new one read the same."""
    other, namespaces = GraphStore(location), ("default", ANN, "bob")
    for store in (memory.store, other):
        [read_all(store, name) for name in namespaces]
    CHANGES[change](memory)
    memory.store.flush()
    new = GraphStore(location)
    for name in namespaces:
        expected = read_all(new, name)
        assert read_all(other, name) == expected
        assert read_all(memory.store, name) == expected
        assert read_all(other, name) == expected
    new.close()
    other.close()


def test_a_note_is_not_remembered_for_others(memory):
    """Another namespace cannot see a note that its owner has just read."""
    note = memory.teach("Deploy on Mondays.", namespace=ANN)
    clocks = [memory.store.walk.read_facts(name, []).clock for name in (ANN, "bob", ANN)]
    assert [[*memory.store.walk.get_documents([note], clock)] for clock in clocks] == [
        [note],
        [],
        [note],
    ]


def test_memory_is_bounded(memory, monkeypatch):
    """With room for hardly anything, answers are the same."""
    expected = [r.node.id for r in memory.retrieve(QUESTION, k=4).documents]
    set_bounds(monkeypatch, bytes_remembered=1000)
    for _ in range(3):
        assert [r.node.id for r in memory.retrieve(QUESTION, k=4).documents] == expected
    assert get_cache(memory.store).corpus.size < 100_000


def test_threads_that_read_at_once_read_the_same(memory):
    """No thread sees half of what another one is about to remember."""
    expected = read_all(memory.store, "default")[1:]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(8) as pool:
            for _ in range(20):
                memory.store.walk.forget_corpus()
                for found in pool.map(lambda _: read_all(memory.store, "default"), range(8)):
                    assert found[1:] == expected
    finally:
        sys.setswitchinterval(interval)


@pytest.mark.slow
def test_what_is_forgotten_does_not_stay_in_the_process(memory):
    """The process that deletes a document drops its text at once."""
    read_all(memory.store, "default")
    memory.forget(["Check CI"])
    assert get_cache(memory.store).corpus.contents == {}
