"""Memory contamination: whether remembered failures spoil a memory over time ([CVX RFC-013]).

A chain reads five documents, follows some, and says only whether it succeeded; a share of that is
wrong. A failure blames what was followed, relevant or not. Who remembers failures as if they were
successes brings back what failed; who punishes all that was returned punishes good documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from benchmarks.learning.paired_learners import DOCUMENTS_READ, PairedLearners
from crabpath_lab.learning_rules import use_rules
from crabpath_lab.statistics import bootstrap_interval, compare_paired
from crabpath_lab.streams.learners import (
    CrabPathLearner,
    FrozenLearner,
    TaughtAnswer,
)
from crabpath_lab.streams.simulated_feedback import (
    FeedbackSimulator,
    SimulatedFeedback,
)

METRIC = f"full@{DOCUMENTS_READ}"
EPOCHS = 3
DEFAULT = "wins only, context-aware decay"
FROZEN = "frozen"

VARIANTS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        DEFAULT: (),
        "wins only, blind decay": ("reward_decay blind",),
        "all experience, blind decay": ("experience all", "reward_decay blind"),
        "wins only, no decay": ("reward_decay none",),
    }
)
"""Rules by variant; the default comes first, as the others are compared with it."""

CLAIMED_ORDER = ("all experience, blind decay", "wins only, blind decay", DEFAULT)
"""The order that [CVX RFC-013] claims, worst first."""


@dataclass(slots=True)
class RecordingLearner(CrabPathLearner):
    """Learns, and keeps the feedback that it got."""

    signals: list[SimulatedFeedback] = field(default_factory=list)

    def learn(self, lesson: TaughtAnswer) -> str | None:
        """Record the feedback."""
        self.signals.append(lesson.signal)
        return CrabPathLearner.learn(self, lesson)


class OrderResult(NamedTuple):
    """One order of the questions.

    Attributes:
        full: ``METRIC`` by pass and question, in the order of the data, shape ``[E, n]``.
        kept: Turns of each pass that count in favour of what they followed, and how many had all
            evidence, shape ``[E, 2]``.
    """

    full: list[list[float]]
    kept: list[tuple[int, int]]


def run_contamination(pair: PairedLearners, noise: float, orders: int) -> Iterator[dict[str, Any]]:
    """Every variant and the frozen twin on the same orders, with the same wrong outcomes.

    Args:
        pair: The data set.
        noise: Share of the outcomes that are wrong, in [0, 0.5].
        orders: Orders of the questions, seeds 0, 1, …

    Yields:
        ``dataset``, ``noise``, ``orders``, ``variant``; ``epochs``: by pass the ``mean`` of
        ``METRIC`` with ``mean_ci95``, its paired ``difference`` to ``DEFAULT`` with ``ci95`` and
        ``p``, and ``successes``: the share of evidence in favour of documents, up to the
        end of the pass, that comes from true successes (None for the frozen twin);
        ``change``, ``late``: the last pass minus the first and minus the one before it, paired.
        Each question counts once, with its mean over all orders.
    """
    asked = replace(pair, ks=(DOCUMENTS_READ,))  # the chain reads what it asked for
    shipped: list[list[float]] = []
    for variant in (DEFAULT, FROZEN, *(name for name in VARIANTS if name != DEFAULT)):
        found = [_run_order(asked, variant, noise, seed) for seed in range(orders)]
        full: list[list[float]] = np.mean([one.full for one in found], axis=0).tolist()
        shipped = shipped or full
        yield {
            "dataset": pair.name,
            "noise": noise,
            "orders": orders,
            "variant": variant,
            "epochs": _summarize_epochs(full, shipped, _success_shares(found)),
            "change": compare_paired(full[-1], full[0]),
            "late": compare_paired(full[-1], full[-2]),
        }


def check_claimed_order(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Whether the last passes stand in the order that [CVX RFC-013] claims.

    Args:
        rows: What ``run_contamination`` yields, of any data sets.

    Returns:
        One entry per data set and share of noise that has all of ``CLAIMED_ORDER``: ``order``,
        worst first, and ``claimed``, whether no mean is above that of its successor in the claim.
    """
    found: dict[tuple[str, float], dict[str, float]] = {}
    for row in rows:
        if row["variant"] in CLAIMED_ORDER:
            of = found.setdefault((row["dataset"], row["noise"]), {})
            of[row["variant"]] = row["epochs"][-1]["mean"]
    return [
        {
            "dataset": dataset,
            "noise": noise,
            "order": sorted(CLAIMED_ORDER, key=means.__getitem__),
            "claimed": means[CLAIMED_ORDER[0]]
            <= means[CLAIMED_ORDER[1]]
            <= means[CLAIMED_ORDER[2]],
        }
        for (dataset, noise), means in found.items()
        if len(means) == len(CLAIMED_ORDER)
    ]


def _run_order(pair: PairedLearners, variant: str, noise: float, seed: int) -> OrderResult:
    simulator, schedule = (
        FeedbackSimulator("followed", noise, DOCUMENTS_READ),
        pair.schedule(EPOCHS, seed),
    )
    name = f"{variant}, noise {noise}, order {seed}"
    if variant == FROZEN:
        twin = FrozenLearner(pair.memory, pair.dataset.split)
        done = pair.run_stream(name, twin, simulator, schedule)
        return OrderResult([pair.score_pass_in_order(one)[METRIC] for one in done], [])
    with pair.namespace(name) as namespace, use_rules(*VARIANTS[variant]):
        learner = RecordingLearner(pair.memory, pair.dataset.split, namespace)
        done = pair.run_stream(name, learner, simulator, schedule)
    true = [pair.score_pass(one)[METRIC] for one in done]
    failures = "experience all" in VARIANTS[variant]
    return OrderResult(
        [pair.score_pass_in_order(one)[METRIC] for one in done],
        count_supporting(learner.signals, true, failures=failures),
    )


def count_supporting(
    signals: Sequence[SimulatedFeedback], true: Sequence[Sequence[float]], *, failures: bool
) -> list[tuple[int, int]]:
    """Turns by pass that count in favour of documents, and how many are true successes."""
    counts, remaining = [], iter(signals)
    for scores in true:
        supporting = [
            score
            for score, signal in zip(scores, remaining, strict=False)
            if signal.used and (failures or signal.outcome > 0)
        ]
        counts.append((len(supporting), int(sum(supporting))))
    return counts


def _success_shares(found: Sequence[OrderResult]) -> list[float | None]:
    """Share of true successes in memory at the end of each pass, over all orders."""
    if not all(one.kept for one in found):
        return [None] * EPOCHS
    supporting, true = np.sum([one.kept for one in found], axis=0).cumsum(axis=0).T
    shares = true / np.maximum(1, supporting)
    return [round(float(share), 4) for share in shares]


def _summarize_epochs(
    full: Sequence[Sequence[float]],
    shipped: Sequence[Sequence[float]],
    successes: Sequence[float | None],
) -> list[dict[str, Any]]:
    return [
        {
            "mean": round(float(np.mean(own)), 4),
            "mean_ci95": bootstrap_interval(own),
            **compare_paired(own, beside),
            "successes": share,
        }
        for own, beside, share in zip(full, shipped, successes, strict=True)
    ]
