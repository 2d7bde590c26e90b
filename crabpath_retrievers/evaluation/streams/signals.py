"""What a host would report about an answer, made from labels after the answer was scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

Kind = Literal["used", "answer", "outcome"]
KINDS: tuple[Kind, ...] = ("used", "answer", "outcome")


class Shown(NamedTuple):
    """A document that was returned: the id of its chunk, and of the document that is judged."""

    chunk: str
    document: str


class Signal(NamedTuple):
    """What is reported: an outcome, and perhaps which chunks were used, or the answer."""

    outcome: float
    used: tuple[str, ...] | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class Judge:
    """Reports on answers as one kind of host would.

    ``used``: the relevant ones among the returned documents; a success when there are any.
    ``answer``: a chain that had all evidence gave the right answer; otherwise it failed.
    ``outcome``: whether all evidence was returned, and nothing else.

    Attributes:
        kind: What is reported.
        noise: Chance that a report is flipped: of each document for ``used``, else of the outcome.
        needed: Documents that the chain reads; evidence behind them does not help it.
    """

    kind: Kind
    noise: float
    needed: int

    def signal(
        self,
        shown: Sequence[Shown],
        gold: frozenset[str],
        answer: str | None,
        rng: np.random.Generator,
    ) -> Signal:
        """The report about one answer.

        Args:
            shown: What was returned, best first.
            gold: The relevant documents.
            answer: The right answer, where the data has one.
            rng: Draws the noise.
        """
        if self.kind == "used":
            told = [(s.document in gold) != (rng.random() < self.noise) for s in shown]
            used = tuple(s.chunk for s, is_used in zip(shown, told, strict=True) if is_used)
            return Signal(1.0 if used else -1.0, used)
        success = gold <= {s.document for s in shown[: self.needed]}
        success ^= bool(rng.random() < self.noise)
        outcome = 1.0 if success else -1.0
        return Signal(outcome, answer=answer if self.kind == "answer" and success else None)
