"""Reliability of a namespace's memories: how often the documents that they support are used.

Whether tasks repeat is a property of the stream of questions, and no single query shows it. On
questions that have nothing in common, documents used for a similar question are not used again.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.turn import ReturnedDocument, Turn

MEMORY_FEATURES = ("episode", "usage")
"""Ranker features that carry feedback on other questions."""

SCALED_FEATURES = {"episode": "episode", "missed": "episode", "usage": "usage"}
"""Ranker features whose weights the reliability of a memory scales, and that memory."""

_RETURNED, _UNLIKELY = "returned", "unlikely"
_UNLIKELY_BELOW = 0.05  # probability below which a document without memory support is unlikely
_PRIOR = (0.5, 5.0)  # prior (used, all): less than half reliable before any evidence
_PRIOR_RATE = 0.25  # prior share of returned documents that an answer uses
_PRIOR_COUNT = 20.0  # weight of that prior, in documents
_NONE: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reliability:
    """Per memory feature: its support for documents that were used, and for all with known use.

    Attributes:
        spoken: ``(used, all)`` by feature: sums of its value where it is above 0, times the weight
            of the feedback; also of all ``returned`` documents and of the ``unlikely`` ones among
            them, with 1 for each.
    """

    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, memory: str) -> float:
        """Return the factor for the weight of a memory feature, in [0, 1].

        The mean of a Beta posterior over "a supported document is used", on a scale from 0 (as
        rarely as unlikely documents) to 1 (as often as any returned document). Feedback that is
        often wrong marks unlikely documents as used and so does not make a memory reliable.
        """
        used, known = self.spoken.get(memory, _NONE)
        rate = (used + _PRIOR[0]) / (known + _PRIOR[1])
        usual_rate, floor = (
            self._estimate_rate(_RETURNED, _PRIOR_RATE),
            self._estimate_rate(_UNLIKELY, 0.0),
        )
        return max(0.0, min(1.0, (rate - floor) / max(usual_rate - floor, _UNLIKELY_BELOW)))

    def _estimate_rate(self, of: str, first: float) -> float:
        used, known = self.spoken.get(of, _NONE)
        return (used + first * _PRIOR_COUNT) / (known + _PRIOR_COUNT)

    def plus(self, amount: Mapping[str, tuple[float, float]], sign: float = 1.0) -> "Reliability":
        """Return the reliability with the evidence of one feedback, or without it (``sign`` -1)."""
        total = dict(self.spoken)
        for memory, (used, known) in amount.items():
            before = total.get(memory, _NONE)
            total[memory] = (
                max(0.0, before[0] + sign * used),
                max(0.0, before[1] + sign * known),
            )
        return Reliability(total)


def measure_memories(turns: Iterable[tuple[Turn, Credit]]) -> dict[str, tuple[float, float]]:
    """Return the evidence of feedback about the memories that supported documents of its turns.

    Args:
        turns: Turns with their credit; only documents with a credit of their own count.
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


def _list_strengths(item: ReturnedDocument) -> Iterator[tuple[str, float]]:
    """Yield what one returned document counts for, with its strength."""
    yield _RETURNED, 1.0
    memory_values = [(memory, item.features.get(memory, 0.0)) for memory in MEMORY_FEATURES]
    if not any(value > 0 for _, value in memory_values) and item.probability < _UNLIKELY_BELOW:
        yield _UNLIKELY, 1.0
    yield from ((memory, min(1.0, value)) for memory, value in memory_values if value > 0)
