"""Feedback as hosts would report it, simulated from labels after an answer was scored."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple, get_args

import numpy as np

FeedbackKind = Literal["used", "relevant", "answer", "outcome", "followed"]
FEEDBACK_KINDS: tuple[FeedbackKind, ...] = get_args(FeedbackKind)


class ReturnedChunk(NamedTuple):
    """A chunk: its id, and the id of its document."""

    chunk: str
    document: str


class SimulatedFeedback(NamedTuple):
    """Simulated feedback: outcome and labels; None for a silent host.

    Attributes:
        outcome: How well the chain did, in [-1, 1].
        used: Ids of the returned chunks that were used.
        answer: The chain's answer.
        relevant: One chunk of every relevant document, returned or not.
    """

    outcome: float
    used: tuple[str, ...] | None = None
    answer: str | None = None
    relevant: tuple[ReturnedChunk, ...] | None = None


@dataclass(frozen=True, slots=True)
class FeedbackSimulator:
    """Simulates the feedback of one kind of host.

    ``used``: the relevant ones among the returned documents; a success when there are any.
    ``relevant``: that, and all relevant documents, returned or not.
    ``answer``: a chain that had all evidence gave the right answer; otherwise it failed.
    ``outcome``: whether all evidence was returned, and nothing else.
    ``followed``: the same outcome, and the documents that the chain followed ([CVX RFC-013]): the
    relevant ones that it read and, for each that it missed, the best other one. A wrong outcome
    changes nothing of what it followed, so a failure blames relevant documents too.

    Attributes:
        kind: Kind of feedback.
        noise: Chance that a report is flipped: of each document for ``used``, else of the outcome;
            for ``relevant``, that another document is named in place of a relevant one.
        needed: Documents that the chain reads; evidence behind them does not help it.
        chunks: The first chunk by document of the corpus, for ``relevant``.
    """

    kind: FeedbackKind
    noise: float
    needed: int
    chunks: Mapping[str, str] = field(default_factory=dict)

    def mislead(self) -> "FeedbackSimulator":
        """Make a host that is wrong about everything that it reports."""
        return replace(self, noise=1.0)

    def simulate(
        self,
        shown: Sequence[ReturnedChunk],
        gold: frozenset[str],
        answer: str | None,
        rng: np.random.Generator,
    ) -> SimulatedFeedback:
        """Simulate the feedback on one answer: returned chunks, best first, against the labels."""
        if self.kind == "relevant":
            return self._name_relevant(shown, gold, rng)
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

    def _name_relevant(
        self, shown: Sequence[ReturnedChunk], gold: frozenset[str], rng: np.random.Generator
    ) -> SimulatedFeedback:
        """Report used chunks, and one chunk of every document that counts as relevant."""
        others = [document for document in self.chunks if document not in gold]
        # The same draws whatever was returned: the same reports are wrong for all learners.
        drawn = [(g, rng.random(), rng.random()) for g in sorted(gold)]
        named = {
            others[int(place * len(others))] if chance < self.noise and others else document
            for document, chance, place in drawn
        }
        returned = [s for s in shown if s.document in named]
        best = {s.document: s for s in reversed(returned)}
        relevant = tuple(
            best.get(d, ReturnedChunk(self.chunks[d], d)) for d in sorted(named & {*self.chunks})
        )
        used = tuple(s.chunk for s in returned)
        return SimulatedFeedback(1.0 if used else -1.0, used, relevant=relevant)


def select_followed(read: Sequence[ReturnedChunk], gold: frozenset[str]) -> tuple[str, ...]:
    """Select the chunks that a chain follows if it wants as many documents as its answer needs.

    ``read`` is what it reads, best first; ``gold`` what it needs.
    """
    had = {s.document for s in read} & gold
    others = dict.fromkeys(s.document for s in read if s.document not in gold)
    instead = list(others)[: len(gold) - len(had)]
    return tuple(s.chunk for s in read if s.document in had or s.document in instead)
