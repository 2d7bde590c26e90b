"""Turns written by hand: a few decisions and the documents that they led to."""

from dataclasses import replace
from itertools import pairwise

import pytest

from crabpath_retrievers.core.turn import (
    ConsideredEdge,
    PathEdge,
    ReturnedDocument,
    SeedRecord,
    Turn,
    WalkStep,
)


def make_step(node, weights, chosen=(), *, hop=0, relevance=None, tier="habitual", **fields):
    """A decision between pointers of these weights, by target; STOP scores 0 unless told."""
    near = relevance or {}
    offered = tuple(
        ConsideredEdge(target, "link", weight, near.get(target, 0.0), 0.5, tier)
        for target, weight in weights.items()
    )
    plain = {
        "reflexes": (),
        "stopped": False,
        "stop_weight": 0.0,
        "stop_probability": 0.1,
        "temperature": 1.0,
        "decided_by": "policy",
    }
    return WalkStep(
        node=node, hop=hop, candidates=offered, chosen=tuple(chosen), **{**plain, **fields}
    )


def make_route(*nodes):
    """The pointers from one node to the next."""
    return tuple(
        PathEdge(source, target, "link", 0.5, "habitual", 0.5) for source, target in pairwise(nodes)
    )


def make_turn(steps=(), returned=(), seeds=(("s", 0.9),)):
    """A turn; what it returned is given as the nodes of each route, from the seed on."""
    return Turn(
        id="turn",
        namespace="default",
        clock=1,
        created=0.0,
        query="q",
        seeds=tuple(SeedRecord(node, score, score, 0.0, 0.0) for node, score in seeds),
        steps=tuple(steps),
        visited=(),
        returned=tuple(
            ReturnedDocument(
                route[-1], 0.5, "seed" if len(route) == 1 else "walk", make_route(*route), {}
            )
            for route in returned
        ),
        guardrails=(),
        novelty={},
    )


@pytest.fixture(scope="session")
def step_of():
    """Writes down a decision."""
    return make_step


@pytest.fixture(scope="session")
def turn_of():
    """Writes down a turn."""
    return make_turn


@pytest.fixture(scope="session")
def returned(turn_of):
    """A turn that returned documents with these probabilities of relevance."""

    def _returned(**probabilities):
        items = (ReturnedDocument(node, p, "seed", (), {}) for node, p in probabilities.items())
        return replace(turn_of(), returned=tuple(items))

    return _returned
