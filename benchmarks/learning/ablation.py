"""What each mechanism of learning adds: one switched off, or all others."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.learning.paired_learners import DOCUMENTS_READ, PairedLearners
from crabpath_lab.learning_rules import use_rules
from crabpath_lab.statistics import compare_paired
from crabpath_lab.streams.prequential import StreamPass
from crabpath_lab.streams.simulated_feedback import (
    FeedbackKind,
    FeedbackSimulator,
)
from crabpath_retrievers.config import LearningSettings, Settings

METRIC = f"full@{DOCUMENTS_READ}"
EPOCHS = 2
_LEARNING = ("policy_gradient", "hebbian", "ranker", "usage", "episodes", "regions")
_SWITCHES = (*_LEARNING, "decay", "gate")
_DEFAULT = LearningSettings()


def _with_only(mechanism: str) -> LearningSettings:
    off: dict[str, Any] = {name: name == mechanism for name in _SWITCHES}
    return _DEFAULT.replace(**off)


def _without(mechanism: str) -> LearningSettings:
    off: dict[str, Any] = {mechanism: False}
    return _DEFAULT.replace(**off)


ABLATIONS: Mapping[str, LearningSettings] = MappingProxyType(
    {
        "all": _DEFAULT,
        **{f"without {name}": _without(name) for name in _SWITCHES},
        "rule myopic": _DEFAULT,
        "rule heuristic": _DEFAULT,
        "reward_decay blind": _DEFAULT,
        "reward_decay none": _DEFAULT,
        "experience all": _DEFAULT,
        **{f"only {name}": _with_only(name) for name in _LEARNING},
    }
)
"""Settings by variant, with the rules of that name; forgetting and the gate never stand alone."""

VARIANTS_BY_FEEDBACK: Mapping[FeedbackKind, tuple[str, ...]] = MappingProxyType(
    {
        "used": tuple(ABLATIONS),
        # An outcome alone reaches documents through the walk only.
        "outcome": (
            "all",
            "without policy_gradient",
            "rule myopic",
            "rule heuristic",
            "only policy_gradient",
        ),
    }
)
"""Variants by kind of feedback; ``all`` comes first, as the others are compared with it."""


def run_ablation(
    pair: PairedLearners,
    variants_by_kind: Mapping[FeedbackKind, Sequence[str]] = VARIANTS_BY_FEEDBACK,
) -> Iterator[dict[str, Any]]:
    """Every variant on the same stream of two passes, and the frozen twin.

    Args:
        pair: The data set; its frozen twin makes two passes.
        variants_by_kind: Variants by kind of feedback, ``all`` first.

    Yields:
        ``dataset``, ``feedback``, ``variant``, and ``parts``: ``first pass``, ``second half`` of
        it, ``second pass``, each with the ``mean`` of ``METRIC`` and its paired ``difference`` to
        ``all`` with ``ci95`` and ``p``.
    """
    for kind, variants in variants_by_kind.items():
        everything = _split_scores(pair, _run_variant(pair, kind, "all"))
        yield _make_row(pair, kind, "all", everything, everything)
        yield _make_row(pair, kind, "frozen", _split_scores(pair, pair.run_frozen()), everything)
        for variant in variants[1:]:
            own = _split_scores(pair, _run_variant(pair, kind, variant))
            yield _make_row(pair, kind, variant, own, everything)


def _run_variant(pair: PairedLearners, kind: FeedbackKind, variant: str) -> list[StreamPass]:
    memory = pair.with_settings(Settings().replace(learning=ABLATIONS[variant]))
    with pair.namespace(f"{kind}, {variant}") as namespace, use_rules(variant):
        return pair.run_learning(
            namespace, FeedbackSimulator(kind, 0.0, DOCUMENTS_READ), pair.schedule(EPOCHS), memory
        )


def _split_scores(pair: PairedLearners, done: Sequence[StreamPass]) -> dict[str, list[float]]:
    """Scores in the order of the stream, which is the same for all variants."""
    first, second = (pair.score_pass(one)[METRIC] for one in done)
    return {
        "first pass": first,
        "second half": first[len(first) // 2 :],
        "second pass": second,
    }


def _make_row(
    pair: PairedLearners,
    kind: FeedbackKind,
    variant: str,
    own: Mapping[str, Sequence[float]],
    everything: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    parts = {
        part: {"mean": round(float(np.mean(own[part])), 4)}
        | compare_paired(own[part], everything[part])
        for part in own
    }
    return {"dataset": pair.name, "feedback": kind, "variant": variant, "parts": parts}
