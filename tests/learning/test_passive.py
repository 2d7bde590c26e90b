"""Learning without outcomes, where settings ask for it: joint retrieval, and skipped edges."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.config import LearningSettings

# Each page mentions five others, more than a walk follows.
TEXTS = [", ".join(f"Page {(n + 7 * step) % 60}" for step in range(1, 6)) for n in range(60)]
PAGES = [
    Document(f"Page {n} tells of {text}.", id=f"p{n}", metadata={"title": f"Page {n}"})
    for n, text in enumerate(TEXTS)
]
H = 0.06


@pytest.fixture
def open_pages(location):
    """Opens a memory of pages that mention each other."""
    opened = []

    def open_pages(**learning):
        vectors = DeterministicFakeEmbedding(size=16)
        settings = Settings(learning=LearningSettings(**learning))
        index = InMemoryVectorStore(vectors)
        memory = CrabPath.open(location, embeddings=vectors, vectors=index, settings=settings)
        memory.add_documents(PAGES, split=False, progress=None)
        opened.append(memory)
        return memory

    yield open_pages
    for memory in opened:
        memory.close()


def read_weights(memory, namespace="default"):
    """Learned weights by source, target and kind."""
    clock = memory.store.walk.get_clock(namespace)
    keys = {one.key: node for node, one in memory.store.learned.nodes(clock.key, [*IDS]).items()}
    found = memory.store.learned.weights(namespace, sorted(keys))
    return {(keys[a], keys[b], kind.label): w for (a, b, kind), w in found.items() if b in keys}


IDS = [page.id for page in PAGES]


@pytest.mark.both_databases
def test_nothing_is_learned_without_an_outcome_by_default(open_pages):
    memory = open_pages()
    for _ in range(3):
        memory.retrieve("Page 1?", k=2)
    assert read_weights(memory) == {}


@pytest.mark.both_databases
def test_documents_returned_together_are_joined_as_in_the_paper(open_pages):
    """The first time a pair is counted, then it gets an edge of h, which grows by h (1 - w)."""
    memory = open_pages(passive_rate=H)
    expected = 0.0
    for round_ in range(4):
        a, b = (item.node.id for item in memory.retrieve("Page 1?", k=2).documents)
        joined = {edge: w for edge, w in read_weights(memory).items() if edge[2] == "co_used"}
        expected = 0.0 if not round_ else expected + H * (1 - expected)
        edges = {(a, b, "co_used"), (b, a, "co_used")}
        assert joined == pytest.approx(dict.fromkeys(edges, expected) if round_ else {})
    memory.retrieve("Page 1?", k=2, record=False)
    assert read_weights(memory)[a, b, "co_used"] == pytest.approx(expected)
    (turn,) = {edge.feedback_id for edge in memory.graph.changes(source=a, limit=1)}
    assert memory.explain(turn).turn.query == "Page 1?"


async def test_namespaces_and_frozen_ones(open_pages):
    memory = open_pages(passive_rate=H)
    for _ in range(3):
        await memory.aio.retrieve("Page 1?", k=2, namespace="ann")
    assert len(read_weights(memory, "ann")) == 2
    assert read_weights(memory) == {}
    before = read_weights(memory, "ann")
    memory.namespaces.freeze("ann")
    memory.retrieve("Page 1?", k=2, namespace="ann")
    assert read_weights(memory, "ann") == before


def read_considered(turn):
    """Weights of the edges that a walk considered, and which of them it skipped."""
    weights, skipped = {}, set()
    for step in turn.steps:
        for edge in step.candidates:
            weights[step.node, edge.target, edge.kind] = edge.weight
            if edge.probability > 0 and edge.target not in (*step.chosen, *step.reflexes):
                skipped.add((step.node, edge.target, edge.kind))
    return weights, skipped


def test_skipped_edges_drift_to_0_and_others_stay(open_pages):
    """An edge that could have been followed and was not loses the penalty each time."""
    memory = open_pages(skip_penalty=0.02)
    before, skipped = read_considered(memory.retrieve("Page 1?", k=2).turn)
    after, _ = read_considered(memory.retrieve("Page 1?", k=2, record=False).turn)
    both = before.keys() & after.keys()
    assert skipped & both
    assert {edge: after[edge] for edge in both} == pytest.approx(
        {edge: before[edge] - 0.02 * (edge in skipped) for edge in both}
    )
    assert read_considered(memory.retrieve("Page 1?", k=2, namespace="ann").turn)[0] == before
    for _ in range(60):
        turn = memory.retrieve("Page 1?", k=2).turn
    assert min(read_considered(turn)[0].values()) >= 0


def test_feedback_and_its_undo_work_beside_it(open_pages):
    memory = open_pages(passive_rate=H, skip_penalty=0.02)
    for _ in range(2):
        answer = memory.retrieve("Page 1?", k=3)
    before = read_weights(memory)
    receipt = memory.record(answer, outcome=True, used=[answer.documents[0].node.id])
    assert receipt.status == "applied"
    memory.undo(receipt.feedback_id)
    assert read_weights(memory) == pytest.approx(before, abs=1e-6)
