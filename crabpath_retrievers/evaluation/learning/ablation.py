"""What each mechanism of learning adds: one switched off, or all others."""

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.evaluation.learning.subject import READ, Subject
from crabpath_retrievers.evaluation.scoring.comparison import compared
from crabpath_retrievers.evaluation.streams.prequential import Pass
from crabpath_retrievers.evaluation.streams.signals import Judge, Kind

METRIC = f"full@{READ}"
EPOCHS = 2
_LEARNING = ("policy_gradient", "hebbian", "ranker", "usage", "episodes", "regions")
_SWITCHES = (*_LEARNING, "decay", "typed", "region_baseline")
_DEFAULT = LearningSettings()


def _only(mechanism: str) -> LearningSettings:
    off: dict[str, Any] = {name: name == mechanism for name in _SWITCHES}
    return _DEFAULT.replace(**off)


def _without(mechanism: str) -> LearningSettings:
    off: dict[str, Any] = {mechanism: False}
    return _DEFAULT.replace(**off)


VARIANTS: Mapping[str, LearningSettings] = MappingProxyType(
    {
        "all": _DEFAULT,
        **{f"without {name}": _without(name) for name in _SWITCHES},
        "rule myopic": _DEFAULT.replace(credit_rule="myopic"),
        "rule heuristic": _DEFAULT.replace(credit_rule="heuristic"),
        "reward_decay blind": _DEFAULT.replace(reward_decay="blind"),
        "reward_decay none": _DEFAULT.replace(reward_decay="none"),
        "experience all": _DEFAULT.replace(experience="all"),
        **{f"only {name}": _only(name) for name in _LEARNING},
    }
)
"""What only forgets, or serves another mechanism, never stands alone."""

TOLD: Mapping[Kind, tuple[str, ...]] = MappingProxyType(
    {
        "used": tuple(VARIANTS),
        # A bare outcome reaches documents through the walk only.
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


def ablated(
    subject: Subject, told: Mapping[Kind, Sequence[str]] = TOLD
) -> Iterator[dict[str, Any]]:
    """Every variant on the same stream of two passes, and the frozen twin.

    Args:
        subject: The data set; its frozen twin makes two passes.
        told: Variants by kind of feedback, ``all`` first.

    Yields:
        ``dataset``, ``feedback``, ``variant``, and ``parts``: ``first pass``, ``second half`` of
        it, ``second pass``, each with the ``mean`` of ``METRIC`` and its paired ``difference`` to
        ``all`` with ``ci95`` and ``p``.
    """
    for kind, variants in told.items():
        everything = _parts(subject, _streamed(subject, kind, "all"))
        yield _row(subject, kind, "all", everything, everything)
        yield _row(subject, kind, "frozen", _parts(subject, subject.frozen()), everything)
        for variant in variants[1:]:
            own = _parts(subject, _streamed(subject, kind, variant))
            yield _row(subject, kind, variant, own, everything)


def _streamed(subject: Subject, kind: Kind, variant: str) -> list[Pass]:
    memory = subject.with_settings(Settings().replace(learning=VARIANTS[variant]))
    with subject.namespace(f"{kind}, {variant}") as namespace:
        return subject.learned(namespace, Judge(kind, 0.0, READ), subject.course(EPOCHS), memory)


def _parts(subject: Subject, done: Sequence[Pass]) -> dict[str, list[float]]:
    """Scores in the order of the stream, which is the same for all variants."""
    first, second = (subject.scores(one)[METRIC] for one in done)
    return {
        "first pass": first,
        "second half": first[len(first) // 2 :],
        "second pass": second,
    }


def _row(
    subject: Subject,
    kind: Kind,
    variant: str,
    own: Mapping[str, Sequence[float]],
    everything: Mapping[str, Sequence[float]],
) -> dict[str, Any]:
    parts = {
        part: {"mean": round(float(np.mean(own[part])), 4)} | compared(own[part], everything[part])
        for part in own
    }
    return {"dataset": subject.name, "feedback": kind, "variant": variant, "parts": parts}
