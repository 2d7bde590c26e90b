"""Two agents on one corpus (CrabPath paper §6.2): they learn apart, only where they went."""

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config import SeedSettings

TOWNS = 30
QUERY = "Where is the old harbour?"


@pytest.fixture
def corpus(location):
    """Thirty pages that mention each other in a ring; a walk enters at two of them."""
    vectors = DeterministicFakeEmbedding(size=16)
    given = {"embeddings": vectors, "vectors": InMemoryVectorStore(vectors)}
    chosen = Settings(seeds=SeedSettings(max_entries=2))
    names = [f"Town{n:02d}" for n in range(TOWNS)]
    with CrabPath.open(location, settings=chosen, **given) as memory:
        memory.add_documents(
            [
                Document(
                    f"{name} lies beside {names[n - 1]} and {names[n - 2]}. Old harbour {n}.",
                    id=name,
                    metadata={"title": name},
                )
                for n, name in enumerate(names)
            ]
        )
        yield memory


def rank(memory, namespace):
    """What a namespace is answered, in order, without a trace."""
    answer = memory.retrieve(QUERY, k=6, namespace=namespace, record=False)
    return [item.node.id for item in answer.documents]


def teach(memory, namespace, good, bad):
    """Six times: what was good helped, what was bad misled."""
    for _ in range(6):
        for outcome, used in ((1.0, good), (-1.0, bad)):
            turn = memory.retrieve(QUERY, k=8, namespace=namespace).turn
            returned = {item.node for item in turn.returned}
            given = [node for node in used if node in returned]
            assert memory.record(Feedback(turn.id, outcome, used=given)).status == "applied"


def test_namespaces_learn_apart(corpus, state_of):
    """Opposite feedback ranks the same corpus the other way round; a third one does not notice."""
    asked = [rank(corpus, namespace) for namespace in ("left", "right", "third")]
    assert asked[0] == asked[1] == asked[2]
    first, second = asked[0][:2], asked[0][2:4]
    turn = corpus.retrieve(QUERY, k=8, namespace="third").turn
    corpus.record(Feedback(turn.id, 1.0, used=asked[0][:1]))
    untouched = state_of(corpus, "third"), rank(corpus, "third")
    structure = corpus.info()["edges"]
    turn = corpus.retrieve(QUERY, k=8, namespace="fresh").turn
    fresh = corpus.record(Feedback(turn.id, 1.0, used=asked[0][-1:])).feedback_id
    assert rank(corpus, "fresh") != asked[0]
    teach(corpus, "left", first, second)
    teach(corpus, "right", second, first)
    assert set(rank(corpus, "left")[:2]) == set(first)
    assert set(rank(corpus, "right")[:2]) == set(second)
    assert (state_of(corpus, "third"), rank(corpus, "third")) == untouched
    corpus.undo(fresh)
    assert rank(corpus, "fresh") == asked[0]
    assert corpus.info()["edges"] == structure, "structure is stored once and shared"
    # A row only where feedback moved an edge; none in a namespace that only asks.
    for _ in range(5):
        corpus.retrieve(QUERY, k=8, namespace="reader")
    known = state_of(corpus, "left")
    rows, moves = (set(known[f"crabpath_{t}"]) for t in ("overlay", "weight_changes"))
    assert rows
    assert rows == {name[:3] for name in moves}
    assert len(rows) < sum(structure.values()) / 2
    assert state_of(corpus, "reader") == state_of(corpus, "never seen")
