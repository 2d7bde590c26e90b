"""How far a namespace's memories may be believed: they are until they bring what nobody uses.

Whether tasks are related is a property of the stream, and nothing in a query tells it. On questions
that have nothing in common, what a similar question used is never used again.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

MEMORIES = ("episode", "usage")
"""Features that speak for documents because of other questions."""

_FIRST = 1.0  # uses and passes before any
_USUAL = 0.25  # share of the documents returned that an answer uses; then a memory brings no harm
_NONE: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Trust:
    """Per memory: how strongly it spoke for documents that were used, and for all known ones.

    Attributes:
        spoken: ``(used, all)`` by feature, sums of its value where it is above 0, times the
            weight of the feedback.
    """

    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, memory: str) -> float:
        """What the weight of a memory is multiplied by, in [0, 1].

        The mean of a Beta posterior over "what it speaks for is used", relative to what is
        usual, at most 1.
        """
        used, known = self.spoken.get(memory, _NONE)
        return min(1.0, (used + _FIRST) / (known + 2 * _FIRST) / _USUAL)

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
            value = credit.documents.get(item.node)
            for memory in MEMORIES if value is not None else ():
                strength = max(0.0, item.features.get(memory, 0.0)) * credit.weight
                used, known = found.get(memory, _NONE)
                more = strength * max(0.0, value or 0.0)
                if strength:
                    found[memory] = (used + more, known + strength)
    return found
