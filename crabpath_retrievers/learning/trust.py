"""How far a namespace's memories may be believed: as far as what they bring is used.

Whether tasks are related is a property of the stream, and nothing in a query tells it. On questions
that have nothing in common, what a similar question used is never used again.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Returned, Turn

MEMORIES = ("episode", "usage")
"""Features that speak for documents because of other questions."""

ADVICE = "advice"
"""The feature by which the region MDP speaks for or against a kind of step."""

_RETURNED, _UNLIKELY = "returned", "unlikely"
_UNLIKELY_BELOW = 0.05  # probability below which a document that no memory speaks for is unlikely
_PRIOR = (0.5, 5.0)  # used and all before any: less than half believed, until it proves true
_PRIOR_RATE = 0.25  # share of the documents returned that an answer uses, before anything is known
_PRIOR_COUNT = 20.0  # documents after which what is known counts as much as that
_PRIOR_NATS = 3.0  # nats by which advice has to have proved right before it is half believed
_EPSILON = 1e-6  # of a probability whose logarithm is taken
_NONE: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Trust:
    """Per memory: how strongly it spoke for documents that were used, and for all known ones.

    Attributes:
        spoken: ``(used, all)`` by feature, sums of its value where it is above 0, times the
            weight of the feedback; also of all ``returned`` documents, and of the ``unlikely``
            ones among them, with 1 for each. Of ``advice``: the log-likelihood, in nats, that it
            won where it was right, and that it lost where it was wrong.
    """

    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, memory: str) -> float:
        """What the weight of a memory is multiplied by, in [0, 1].

        The mean of a Beta posterior over "what it speaks for is used", on a scale from 0, as
        seldom as unlikely documents, to 1, as often as any that is returned. Feedback that is
        often wrong calls unlikely documents used, and so does not lend trust to a memory.
        """
        used, known = self.spoken.get(memory, _NONE)
        rate = (used + _PRIOR[0]) / (known + _PRIOR[1])
        usual_rate, floor = (
            self._estimate_rate(_RETURNED, _PRIOR_RATE),
            self._estimate_rate(_UNLIKELY, 0.0),
        )
        return max(0.0, min(1.0, (rate - floor) / max(usual_rate - floor, _UNLIKELY_BELOW)))

    def believed(self) -> float:
        """What the weight of the region MDP's advice is multiplied by, in [0, 1].

        The posterior probability that use depends on the region and the kind of step together,
        against the model in which it does not (Hoeting et al. 1999, §2), from predictions that
        were made before their outcomes.
        """
        gained, lost = self.spoken.get(ADVICE, _NONE)
        return 1.0 / (1.0 + math.exp(min(700.0, _PRIOR_NATS - gained + lost)))

    def _estimate_rate(self, of: str, first: float) -> float:
        used, known = self.spoken.get(of, _NONE)
        return (used + first * _PRIOR_COUNT) / (known + _PRIOR_COUNT)

    def plus(self, amount: Mapping[str, tuple[float, float]], sign: float = 1.0) -> "Trust":
        """With what one feedback says, or without it where ``sign`` is -1."""
        total = dict(self.spoken)
        for memory, (used, known) in amount.items():
            before = total.get(memory, _NONE)
            total[memory] = (
                max(0.0, before[0] + sign * used),
                max(0.0, before[1] + sign * known),
            )
        return Trust(total)


def spoken(turns: Iterable[tuple[Turn, Credit]]) -> dict[str, tuple[float, float]]:
    """What feedback says about the memories that spoke for documents of its turns.

    Args:
        turns: Each with what became of it; only documents with a credit of their own count.
    """
    totals: dict[str, tuple[float, float]] = {}
    for turn, credit in turns:
        for item in turn.returned:
            if item.node in credit.documents:
                value = max(0.0, credit.documents[item.node])
                for memory, strength in _list_strengths(item):
                    used, known = totals.get(memory, _NONE)
                    amount = strength * credit.weight
                    totals[memory] = (used + amount * value, known + amount)
    return totals


def advised(
    turns: Iterable[tuple[Turn, Credit]], weight: float, counted: float
) -> dict[str, tuple[float, float]]:
    """What feedback says about the advice that its turns had: see ``Trust.spoken``.

    Args:
        turns: Each with what became of it; documents of known use count.
        weight: Of the feature where it is believed, in log-odds.
        counted: What it was multiplied by when the documents were ranked, in [0, 1].
    """
    gained = lost = 0.0
    for turn, credit in turns:
        for item in turn.returned:
            known, advice = credit.documents.get(item.node), item.features.get(ADVICE, 0.0)
            if not advice or known is None or not (known or item.node not in credit.inferred):
                continue
            probability = min(1.0 - _EPSILON, max(_EPSILON, item.probability))
            log_odds_without = (
                math.log(probability / (1.0 - probability)) - counted * weight * advice
            )
            used = max(0.0, known)
            gain = _log_likelihood(log_odds_without + weight * advice, used) - _log_likelihood(
                log_odds_without, used
            )
            gained += credit.weight * max(0.0, gain)
            lost += credit.weight * max(0.0, -gain)
    return {ADVICE: (gained, lost)} if gained or lost else {}


def _log_likelihood(odds: float, used: float) -> float:
    """Log-likelihood in nats of use, in [0, 1], under these log-odds."""
    return used * odds - math.log1p(math.exp(min(700.0, odds)))


def _list_strengths(item: Returned) -> Iterator[tuple[str, float]]:
    """What one document counts for, and how much."""
    yield _RETURNED, 1.0
    memory_values = [(memory, item.features.get(memory, 0.0)) for memory in MEMORIES]
    if not any(value > 0 for _, value in memory_values) and item.probability < _UNLIKELY_BELOW:
        yield _UNLIKELY, 1.0
    yield from ((memory, value) for memory, value in memory_values if value > 0)
