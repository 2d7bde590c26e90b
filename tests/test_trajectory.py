"""The record of one retrieval: lossless as JSON, and the views that hosts read."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.turn import (
    ConsideredEdge,
    LazySteps,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Turn,
    WalkStep,
)


def candidate(target, weight, tier, probability=0.0, relevance=0.5):
    """A pointer that was offered."""
    return ConsideredEdge(target, "link", weight, relevance, probability, tier)


STEP = WalkStep(
    node="a",
    hop=0,
    candidates=(
        candidate("b", 0.9, "reflex", 1.0, relevance=0.7),
        candidate("c", 0.5, "habitual", 0.6, relevance=0.4),
        candidate("d", 0.4, "habitual", 0.1),
        candidate("c", -0.2, "inhibitory", relevance=0.4),
    ),
    chosen=("c",),
    reflexes=("b",),
    stopped=True,
    stop_weight=0.0,
    stop_probability=0.3,
    temperature=0.2,
    decided_by="policy",
)
TURN = Turn(
    id="turn",
    namespace="default",
    clock=3,
    created=1.5,
    query="Wer läuft seitwärts?",
    seeds=(SeedRecord("a", 0.8, 0.7, 0.6, 0.0, hinted=True),),
    steps=(STEP,),
    visited=("a", "b", "c"),
    returned=(
        ReturnedDocument(
            "c", 0.9, "walk", (PathEdge("a", "c", "link", 0.5, "habitual", 0.6),), {"bias": 1.0}
        ),
        ReturnedDocument("a", 0.8, "seed", (), {}),
    ),
    guardrails=("c",),
    novelty={"top": 0.7, "known": True, "novel": False},
    latency_ms={"walk": 1.25},
)


def test_a_record_survives_json():
    """Plain data goes out, and the equal record comes back, tuples included."""
    text = json.dumps(TURN.to_dict(), allow_nan=False)
    assert Turn.from_dict(json.loads(text)) == TURN


def test_a_real_record_survives_json():
    """What a retrieval wrote is read back as it was."""
    documents = [
        Document("Ada Lovelace wrote notes.", metadata={"title": "Ada Lovelace"}),
        Document("Charles Babbage knew Ada Lovelace."),
    ]
    with CrabPath.open(embeddings=DeterministicFakeEmbedding(size=8)) as memory:
        memory.add_documents(documents)
        turn = memory.retrieve("Who knew Ada Lovelace?").turn
        assert memory.store.turns.get(turn.id, namespace="default") == turn
    assert Turn.from_dict(json.loads(json.dumps(turn.to_dict()))) == turn


def test_the_follow_log_names_every_followed_pointer_with_its_channel():
    """Reflexes first, then decisions; weights are those of the pointers that were followed."""
    assert TURN.follow_log == (
        {"source": "a", "target": "b", "weight": 0.9, "decision_channel": "reflex"},
        {"source": "a", "target": "c", "weight": 0.5, "decision_channel": "policy"},
    )


def test_the_trace_gives_depth_and_score_of_visited_nodes():
    """A seed enters with its score; each pointer multiplies it: .8 · .9 and .8 · .5."""
    assert TURN.trace == (
        {"node_id": "a", "depth": 0, "energy": 0.8},
        {"node_id": "b", "depth": 1, "energy": pytest.approx(0.72)},
        {"node_id": "c", "depth": 1, "energy": pytest.approx(0.4)},
    )


def test_late_steps_are_described_once_and_by_whichever_thread_comes_first():
    """Whoever reads first describes; nobody describes twice."""
    described = Counter[int]()

    def describe(number):
        described[number] += 1
        return replace(STEP, node=f"n{number}")

    late = LazySteps([partial(describe, number) for number in range(3)])

    assert not described
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda _: [step.node for step in late], range(8)))
    assert seen == [["n0", "n1", "n2"]] * 8
    before = described.copy()
    assert late[1].node == "n1"
    assert late[:2] == late.all[:2]
    assert late == tuple(late)
    assert described == before
