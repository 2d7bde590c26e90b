"""Feedback as hosts would report it, simulated from labels after an answer was scored."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

FeedbackKind = Literal["used", "answer", "outcome", "followed"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = ("used", "answer", "outcome", "followed")


class ReturnedChunk(NamedTuple):
    """A returned chunk: its id, and the id of its document."""

    chunk: str
    document: str


class SimulatedFeedback(NamedTuple):
    """Simulated feedback: an outcome, and optionally the chunks used or the answer."""

    outcome: float
    used: tuple[str, ...] | None = None
    answer: str | None = None


@dataclass(frozen=True, slots=True)
class FeedbackSimulator:
    """Simulates the feedback of one kind of host.

    ``used``: the relevant ones among the returned documents; a success when there are any.
    ``answer``: a chain that had all evidence gave the right answer; otherwise it failed.
    ``outcome``: whether all evidence was returned, and nothing else.
    ``followed``: the same outcome, and the documents that the chain followed ([CVX RFC-013]): the
    relevant ones that it read and, for each that it missed, the best other one. A wrong outcome
    changes nothing of what it followed, so a failure blames relevant documents too.

    Attributes:
        kind: Kind of feedback.
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
        """Feedback on one answer.

        Args:
            shown: Returned chunks, best first.
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
    """Chunks followed by a chain that looks for as many documents as its answer needs.

    Args:
        read: What it reads, best first.
        gold: What it needs.
    """
    had = {s.document for s in read} & gold
    others = dict.fromkeys(s.document for s in read if s.document not in gold)
    instead = list(others)[: len(gold) - len(had)]
    return tuple(s.chunk for s in read if s.document in had or s.document in instead)
