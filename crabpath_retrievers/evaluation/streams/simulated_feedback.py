"""What a host would report about an answer, made from labels after the answer was scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

FeedbackKind = Literal["used", "answer", "outcome", "followed"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = ("used", "answer", "outcome", "followed")


class ReturnedChunk(NamedTuple):
    """A document that was returned: the id of its chunk, and of the document that is judged."""

    chunk: str
    document: str


class SimulatedFeedback(NamedTuple):
    """What is reported: an outcome, and perhaps which chunks were used, or the answer."""

    outcome: float
    used: tuple[str, ...] | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class FeedbackSimulator:
    """Reports on answers as one kind of host would.

    ``used``: the relevant ones among the returned documents; a success when there are any.
    ``answer``: a chain that had all evidence gave the right answer; otherwise it failed.
    ``outcome``: whether all evidence was returned, and nothing else.
    ``followed``: the same outcome, and the documents that the chain followed ([CVX RFC-013]): the
    relevant ones that it read and, for each that it missed, the best other one. A wrong outcome
    changes nothing of what it followed, so a failure blames relevant documents too.

    Attributes:
        kind: What is reported.
        noise: Chance that a report is flipped: of each document for ``used``, else of the outcome.
        needed: Documents that the chain reads; evidence behind them does not help it.
    """

    kind: FeedbackKind
    noise: float
    needed: int

    def simulate(
        self,
        shown: Sequence[ReturnedChunk],
        gold: frozenset[str],
        answer: str | None,
        rng: np.random.Generator,
    ) -> SimulatedFeedback:
        """The report about one answer.

        Args:
            shown: What was returned, best first.
            gold: The relevant documents.
            answer: The right answer, where the data has one.
            rng: Draws the noise.
        """
        if self.kind == "used":
            flags = [(s.document in gold) != (rng.random() < self.noise) for s in shown]
            used = tuple(s.chunk for s, is_used in zip(shown, flags, strict=True) if is_used)
            return SimulatedFeedback(1.0 if used else -1.0, used)
        read = shown[: self.needed]
        success = gold <= {s.document for s in read}
        # One draw per turn, whatever was returned: the same turns are wrong for all learners.
        success ^= bool(rng.random() < self.noise)
        outcome = 1.0 if success else -1.0
        if self.kind == "followed":
            return SimulatedFeedback(outcome, select_followed(read, gold))
        return SimulatedFeedback(
            outcome, answer=answer if self.kind == "answer" and success else None
        )


def select_followed(read: Sequence[ReturnedChunk], gold: frozenset[str]) -> tuple[str, ...]:
    """Chunks that a chain follows which looks for as many documents as its answer needs.

    Args:
        read: What it reads, best first.
        gold: What it needs.
    """
    had = {s.document for s in read} & gold
    others = dict.fromkeys(s.document for s in read if s.document not in gold)
    instead = list(others)[: len(gold) - len(had)]
    return tuple(s.chunk for s in read if s.document in had or s.document in instead)
