"""What the region MDP gives: on against off, and without each thing that rests on it."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.evaluation.learning.subject import READ, Subject
from crabpath_retrievers.evaluation.scoring.comparison import compared
from crabpath_retrievers.evaluation.scoring.measures import PerQuery
from crabpath_retrievers.evaluation.streams.signals import Judge, Kind

ON = "regions on"
EPOCHS = 2
_DEFAULT = LearningSettings()

VARIANTS: Mapping[str, LearningSettings] = MappingProxyType(
    {
        ON: _DEFAULT,
        "regions off": _DEFAULT.replace(regions=False),
        "without typed": _DEFAULT.replace(typed=False),
        "without region_baseline": _DEFAULT.replace(region_baseline=False),
        "reward_decay none": _DEFAULT.replace(reward_decay="none"),
        "reward_decay blind": _DEFAULT.replace(reward_decay="blind"),
    }
)
"""The default comes first, as the others are compared with it."""

TOLD: tuple[Kind, ...] = ("used", "outcome")

Scores = Mapping[str, Mapping[str, float]]
"""Mean score over all orders, by measure and question."""


def region_rows(
    subject: Subject,
    orders: int,
    told: Sequence[Kind] = TOLD,
    variants: Sequence[str] = tuple(VARIANTS),
) -> Iterator[dict[str, Any]]:
    """Every variant on the same streams of two passes.

    Args:
        subject: The data set.
        orders: Orders of the questions, seeds 0, 1, …
        told: Kinds of feedback.
        variants: Those that are measured; ``ON`` always is, as the others are compared with it.

    Yields:
        ``dataset``, ``feedback``, ``orders``, ``variant``, and ``parts``: ``first pass``,
        ``second half`` of it, ``second pass``, each with, by ``full@k``, the ``mean`` and the
        paired ``difference`` to ``ON`` with ``ci95`` and ``p``. Each question counts once, with
        its mean over the orders that have it in that part.
    """
    for kind in told:
        beside: dict[str, Scores] = {}
        for variant in dict.fromkeys((ON, *variants)):
            own = _parts(subject, kind, variant, orders)
            beside = beside or own
            yield {
                "dataset": subject.name,
                "feedback": kind,
                "orders": orders,
                "variant": variant,
                "parts": {part: _figures(own[part], beside[part]) for part in own},
            }


def _parts(subject: Subject, kind: Kind, variant: str, orders: int) -> dict[str, Scores]:
    seeds = [_one_order(subject, kind, variant, seed) for seed in range(orders)]
    return {part: _pooled([one[part] for one in seeds]) for part in seeds[0]}


def _one_order(
    subject: Subject, kind: Kind, variant: str, seed: int
) -> dict[str, dict[str, dict[str, float]]]:
    """Scores by part, measure and question."""
    memory = subject.with_settings(Settings().replace(learning=VARIANTS[variant]))
    course = subject.course(EPOCHS, seed)
    with subject.namespace(f"{variant}, {kind}, order {seed}") as namespace:
        done = subject.learned(namespace, Judge(kind, 0.0, READ), course, memory)
    first, second = (subject.scores(one) for one in done)
    asked = course.order(list(subject.dataset.queries))
    half = len(asked) // 2
    return {
        "first pass": _by_question(subject, first, asked, 0),
        "second half": _by_question(subject, first, asked, half),
        "second pass": _by_question(subject, second, asked, 0),
    }


def _by_question(
    subject: Subject, scores: PerQuery, asked: Sequence[str], begin: int
) -> dict[str, dict[str, float]]:
    names = [f"full@{k}" for k in subject.ks]
    return {n: dict(zip(asked[begin:], scores[n][begin:], strict=True)) for n in names}


def _pooled(orders: Sequence[Scores]) -> Scores:
    """The mean of each question over the orders that have it: n is at most their number."""
    pooled: dict[str, dict[str, float]] = {}
    for name in orders[0]:
        found = defaultdict[str, list[float]](list)
        for one in orders:
            for query, score in one[name].items():
                found[query].append(score)
        pooled[name] = {query: float(np.mean(found[query])) for query in sorted(found)}
    return pooled


def _figures(own: Scores, beside: Scores) -> dict[str, dict[str, Any]]:
    return {
        name: {"mean": round(float(np.mean(list(own[name].values()))), 4)}
        | compared(list(own[name].values()), list(beside[name].values()))
        for name in own
    }
