"""Whether what is remembered spoils a memory over time: the experiment of document 004 E.

A chain reads five documents, follows some, and says only whether it succeeded; a share of that is
wrong. A failure blames what was followed, relevant or not. Who remembers failures as if they were
successes brings back what failed; who punishes all that was returned punishes good documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.evaluation.learning.subject import READ, Subject
from crabpath_retrievers.evaluation.scoring.comparison import compared, interval
from crabpath_retrievers.evaluation.streams.learners import Frozen, Learned, Ranked
from crabpath_retrievers.evaluation.streams.signals import Judge, Signal
from crabpath_retrievers.graph import Vector

METRIC = f"full@{READ}"
EPOCHS = 3
SHIPPED = "wins only, context-aware decay"
FROZEN = "frozen"
_DEFAULT = LearningSettings()

VARIANTS: Mapping[str, LearningSettings] = MappingProxyType(
    {
        SHIPPED: _DEFAULT,
        "wins only, blind decay": _DEFAULT.replace(reward_decay="blind"),
        "all experience, blind decay": _DEFAULT.replace(experience="all", reward_decay="blind"),
        "wins only, no decay": _DEFAULT.replace(reward_decay="none"),
    }
)
"""The default comes first, as the others are compared with it."""

CLAIMED = ("all experience, blind decay", "wins only, blind decay", SHIPPED)
"""The order that document 004 E claims, worst first."""


@dataclass(slots=True)
class Told(Learned):
    """Learns, and keeps what it was told."""

    signals: list[Signal] = field(default_factory=list)

    def learn(self, vector: Vector, ranked: Sequence[Ranked], signal: Signal) -> None:
        """Record the feedback."""
        self.signals.append(signal)
        Learned.learn(self, vector, ranked, signal)


class Followed(NamedTuple):
    """One order of the questions.

    Attributes:
        full: ``METRIC`` by pass and question, in the order of the data, shape ``[E, n]``.
        kept: Turns of each pass that speak for what they followed, and how many of these had all
            evidence, shape ``[E, 2]``.
    """

    full: list[list[float]]
    kept: list[tuple[int, int]]


def contaminated(subject: Subject, noise: float, orders: int) -> Iterator[dict[str, Any]]:
    """Every variant and the frozen twin on the same orders, with the same wrong outcomes.

    Args:
        subject: The data set.
        noise: Share of the outcomes that are wrong, in [0, 0.5].
        orders: Orders of the questions, seeds 0, 1, …

    Yields:
        ``dataset``, ``noise``, ``orders``, ``variant``; ``epochs``: by pass the ``mean`` of
        ``METRIC`` with ``mean_ci95``, its paired ``difference`` to ``SHIPPED`` with ``ci95`` and
        ``p``, and ``successes``: the share of all that memory says in favour of documents, up to
        the end of the pass, which comes from true successes (None for who remembers nothing);
        ``change``, ``late``: the last pass minus the first and minus the one before it, paired.
        Each question counts once, with its mean over all orders.
    """
    asked = replace(subject, ks=(READ,))  # the chain reads what it asked for
    shipped: list[list[float]] = []
    for variant in (SHIPPED, FROZEN, *(name for name in VARIANTS if name != SHIPPED)):
        found = [_one_order(asked, variant, noise, seed) for seed in range(orders)]
        full: list[list[float]] = np.mean([one.full for one in found], axis=0).tolist()
        shipped = shipped or full
        yield {
            "dataset": subject.name,
            "noise": noise,
            "orders": orders,
            "variant": variant,
            "epochs": _epochs(full, shipped, _successes(found)),
            "change": compared(full[-1], full[0]),
            "late": compared(full[-1], full[-2]),
        }


def ordered(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Whether the last passes stand in the order that document 004 E claims.

    Args:
        rows: What ``contaminated`` yields, of any data sets.

    Returns:
        One entry per data set and share of noise of which all of ``CLAIMED`` are there: ``order``,
        worst first, and ``claimed``, whether no mean is above that of its successor in the claim.
    """
    found: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        if row["variant"] in CLAIMED:
            of = found.setdefault((row["dataset"], row["noise"]), {})
            of[row["variant"]] = row["epochs"][-1]["mean"]
    return [
        {
            "dataset": dataset,
            "noise": noise,
            "order": sorted(CLAIMED, key=means.__getitem__),
            "claimed": means[CLAIMED[0]] <= means[CLAIMED[1]] <= means[CLAIMED[2]],
        }
        for (dataset, noise), means in found.items()
        if len(means) == len(CLAIMED)
    ]


def _one_order(subject: Subject, variant: str, noise: float, seed: int) -> Followed:
    judge, course = Judge("followed", noise, READ), subject.course(EPOCHS, seed)
    name = f"{variant}, noise {noise}, order {seed}"
    if variant == FROZEN:
        twin = Frozen(subject.memory, subject.dataset.split)
        done = subject.follow(name, twin, judge, course)
        return Followed([subject.scores_in_order(one)[METRIC] for one in done], [])
    memory = subject.with_settings(Settings().replace(learning=VARIANTS[variant]))
    with subject.namespace(name) as namespace:
        told = Told(memory, subject.dataset.split, namespace)
        done = subject.follow(name, told, judge, course)
    true = [subject.scores(one)[METRIC] for one in done]
    failures = VARIANTS[variant].experience == "all"
    return Followed(
        [subject.scores_in_order(one)[METRIC] for one in done],
        _kept(told.signals, true, failures=failures),
    )


def _kept(
    signals: Sequence[Signal], true: Sequence[Sequence[float]], *, failures: bool
) -> list[tuple[int, int]]:
    """Turns by pass that speak for documents, and how many of them are true successes."""
    kept, told = [], iter(signals)
    for scores in true:
        spoke = [
            score
            for score, signal in zip(scores, told, strict=False)
            if signal.used and (failures or signal.outcome > 0)
        ]
        kept.append((len(spoke), int(sum(spoke))))
    return kept


def _successes(found: Sequence[Followed]) -> list[float | None]:
    """Share of true successes in memory at the end of each pass, over all orders."""
    if not all(one.kept for one in found):
        return [None] * EPOCHS
    spoke, true = np.sum([one.kept for one in found], axis=0).cumsum(axis=0).T
    shares = true / np.maximum(1, spoke)
    return [round(float(share), 4) for share in shares]


def _epochs(
    full: Sequence[Sequence[float]],
    shipped: Sequence[Sequence[float]],
    successes: Sequence[float | None],
) -> list[dict[str, Any]]:
    return [
        {
            "mean": round(float(np.mean(own)), 4),
            "mean_ci95": interval(own),
            **compared(own, beside),
            "successes": share,
        }
        for own, beside, share in zip(full, shipped, successes, strict=True)
    ]
