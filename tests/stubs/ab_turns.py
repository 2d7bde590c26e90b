"""Turns of A/B trials, as short as they can be."""

import itertools
import time

from crabpath_lab.ab import TrialSettings
from crabpath_retrievers import ReturnedDocument, Turn

SMALL = TrialSettings(
    directional_turns=4,
    decisive_turns=8,
    min_sessions=2,
    checkpoint_turns=10,
    feedback_seconds=0.0,
    resamples=500,
)
_ids = itertools.count()


def turn_of(namespace="ann", *, returned=("a", "b"), created=None, query="What?", **fields):
    """A turn that returned these documents by search."""
    shown = tuple(ReturnedDocument(node, 0.5, "seed", (), {}) for node in returned)
    about = {"guardrails": (), "novelty": {}, "latency_ms": {"embed": 1.0, "walk": 2.0}, **fields}
    name, when = f"turn-{next(_ids)}", time.time() if created is None else created
    reached = {"seeds": (), "steps": (), "visited": (), "returned": shown}
    return Turn(
        id=name, namespace=namespace, clock=0, created=when, query=query, **reached, **about
    )
