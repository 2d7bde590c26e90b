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
_BAR = 0.05  # probability below which a document that no memory speaks for is unlikely
_FIRST = (0.5, 5.0)  # used and all before any: less than half believed, until it proves true
_USUAL = 0.25  # share of the documents returned that an answer uses, before anything is known
_STEADY = 20.0  # documents after which what is known counts as much as that
_DOUBT = 3.0  # nats by which advice has to have proved right before it is half believed
_SURE = 1e-6  # of a probability whose logarithm is taken
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
        rate = (used + _FIRST[0]) / (known + _FIRST[1])
        usual, floor = self._rate(_RETURNED, _USUAL), self._rate(_UNLIKELY, 0.0)
        return max(0.0, min(1.0, (rate - floor) / max(usual - floor, _BAR)))

    def believed(self) -> float:
        """What the weight of the region MDP's advice is multiplied by, in [0, 1].

        The posterior probability that use depends on the region and the kind of step together,
        against the model in which it does not (Hoeting et al. 1999, §2), from predictions that
        were made before their outcomes.
        """
        won, lost = self.spoken.get(ADVICE, _NONE)
        return 1.0 / (1.0 + math.exp(min(700.0, _DOUBT - won + lost)))

    def _rate(self, of: str, first: float) -> float:
        used, known = self.spoken.get(of, _NONE)
        return (used + first * _STEADY) / (known + _STEADY)

    def plus(self, more: Mapping[str, tuple[float, float]], sign: float = 1.0) -> "Trust":
        """With what one feedback says, or without it where ``sign`` is -1."""
        total = dict(self.spoken)
        for memory, (used, known) in more.items():
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
    found: dict[str, tuple[float, float]] = {}
    for turn, credit in turns:
        for item in turn.returned:
            if item.node in credit.documents:
                value = max(0.0, credit.documents[item.node])
                for memory, strength in _strengths(item):
                    used, known = found.get(memory, _NONE)
                    more = strength * credit.weight
                    found[memory] = (used + more * value, known + more)
    return found


def advised(
    turns: Iterable[tuple[Turn, Credit]], weight: float, counted: float
) -> dict[str, tuple[float, float]]:
    """What feedback says about the advice that its turns had: see ``Trust.spoken``.

    Args:
        turns: Each with what became of it; documents of known use count.
        weight: Of the feature where it is believed, in log-odds.
        counted: What it was multiplied by when the documents were ranked, in [0, 1].
    """
    won = lost = 0.0
    for turn, credit in turns:
        for item in turn.returned:
            known, advice = credit.documents.get(item.node), item.features.get(ADVICE, 0.0)
            if not advice or known is None or not (known or item.node not in credit.inferred):
                continue
            shown = min(1.0 - _SURE, max(_SURE, item.probability))
            without = math.log(shown / (1.0 - shown)) - counted * weight * advice
            used = max(0.0, known)
            gain = _likelihood(without + weight * advice, used) - _likelihood(without, used)
            won += credit.weight * max(0.0, gain)
            lost += credit.weight * max(0.0, -gain)
    return {ADVICE: (won, lost)} if won or lost else {}


def _likelihood(odds: float, used: float) -> float:
    """Log-likelihood in nats of use, in [0, 1], under these log-odds."""
    return used * odds - math.log1p(math.exp(min(700.0, odds)))


def _strengths(item: Returned) -> Iterator[tuple[str, float]]:
    """What one document counts for, and how much."""
    yield _RETURNED, 1.0
    spoke = [(memory, item.features.get(memory, 0.0)) for memory in MEMORIES]
    if not any(value > 0 for _, value in spoke) and item.probability < _BAR:
        yield _UNLIKELY, 1.0
    yield from ((memory, value) for memory, value in spoke if value > 0)
