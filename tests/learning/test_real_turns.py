"""The learning rules on turns of a real walk."""

from collections import defaultdict

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.learning.policy_gradient import policy_gradient
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

SETTINGS = Settings()
NAMES = [f"Station {letter}{letter.lower()}rum" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ"]


@pytest.fixture(scope="module")
def turn():
    """An exploring retrieval among 26 stations, each of which names the next three."""
    documents = [
        Document(
            f"The line runs on to {NAMES[(n + 1) % 26]}, {NAMES[(n + 2) % 26]} and "
            f"{NAMES[(n + 5) % 26]}.",
            id=f"d{n}",
            metadata={"title": name},
        )
        for n, name in enumerate(NAMES)
    ]
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents(documents)
        return memory.retrieve(f"Where does {NAMES[0]} lead?", k=20, explore=7).turn


def decided(turn):
    """Pointers that were followed by decision."""
    return {(step.node, target) for step in turn.steps for target in step.chosen}


def gradient(turn, credit):
    """Changes under default settings."""
    return policy_gradient(turn, credit, 0.0, SETTINGS.learning, stop=SETTINGS.policy.stop_score)


def test_the_walk_decided_and_returned_what_it_found(turn):
    """Otherwise the other tests would prove nothing."""
    assert turn.explored
    routes = [item.path for item in turn.returned if item.path]
    assert any((edge.source, edge.target) in decided(turn) for path in routes for edge in path)


@pytest.mark.parametrize("z", [1.0, -1.0])
def test_an_outcome_moves_what_was_followed_and_sums_to_zero(turn, z):
    """Followed pointers go where the outcome points; every node keeps its sum."""
    deltas = gradient(turn, Credit(z))
    moved = {d[:2]: d.delta for d in deltas if d[:2] in decided(turn)}
    sums = defaultdict(float)
    for delta in deltas:
        sums[delta.source] += delta.delta
    assert moved
    assert all(delta * z > 0 for delta in moved.values())
    assert all(total == pytest.approx(0, abs=1e-12) for total in sums.values())


def test_changes_concern_edges_that_were_offered(turn):
    """Every change names a pointer of the record, or STOP at a node that decided."""
    offered = {(step.node, c.target, c.kind) for step in turn.steps for c in step.candidates}
    offered |= {(step.node, None, "stop") for step in turn.steps}
    assert {delta[:3] for delta in gradient(turn, Credit(1.0))} <= offered


def test_a_stored_record_teaches_the_same(turn):
    """Learning may happen a week later, from the record."""
    read = Turn.from_dict(turn.to_dict())
    assert gradient(read, Credit(1.0)) == gradient(turn, Credit(1.0))
