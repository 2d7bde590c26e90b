"""Learners of a stream: CrabPath, its frozen twin, and the trivial learners it has to beat.

All work on one memory: the frozen twin and the trivial learners never write to it, and what
CrabPath learns stays in a namespace of its own.
"""

from collections import defaultdict
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, NamedTuple, Protocol

import numpy as np

from crabpath_lab.loading import require_items
from crabpath_lab.streams.off_policy import LoggedTurn
from crabpath_lab.streams.simulated_feedback import (
    ReturnedChunk,
    SimulatedFeedback,
)
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import Turn, Vector
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.retrieval.pipeline import Answer

NAMESPACE = "learned"
_DEPTH_FACTOR = 3  # how many more documents trivial learners reorder than are returned
_STEP_SIZE = 0.3  # of the moving average
_SIMILAR = 0.8  # least cosine of a question whose documents are remembered
_NEIGHBOURS, _SHARPNESS, _PRIOR = 10, 6, 0.2  # of the vote of past questions


class RankedDocument(NamedTuple):
    """A returned document with its text and the frozen ranker's log-odds of relevance."""

    chunk: ReturnedChunk
    text: str
    odds: float


def require_ranking(found: Any, k: int, documents: AbstractSet[str] | None) -> None:
    """Raise TypeError or ValueError unless a learner has returned a ranking.

    ``documents`` are the ids that it may name; None for one that returns notes of its own as well.
    """
    require_items(found, RankedDocument)
    chunks = [one.chunk for one in found]
    kept = {
        f"at most {k} documents": len(found) <= k,
        "each chunk once": len({one.chunk for one in chunks}) == len(chunks),
        "finite odds": all(isfinite(one.odds) for one in found),
        "documents of the data set": documents is None or {c.document for c in chunks} <= documents,
    }
    for what, holds in kept.items():
        if not holds:
            msg = f"rank must return {what}, and returned {found!r:.200}"
            raise ValueError(msg)


def require_turn(turn: object) -> None:
    """Raise TypeError unless a learner has returned a turn's id or None."""
    if not isinstance(turn, str | None):
        msg = f"learn must return the id of a turn, which is a text, or None, not {turn!r:.80}"
        raise TypeError(msg)


class TaughtAnswer(NamedTuple):
    """The feedback that a learner got on one answer; ``turn`` is that of CrabPath."""

    vector: Vector
    ranked: Sequence[RankedDocument]
    signal: SimulatedFeedback
    turn: str | None = None


class StreamLearner(Protocol):
    """Answers questions, and gets feedback on each answer."""

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the k best documents, best first."""

    def learn(self, lesson: TaughtAnswer) -> str | None:
        """Learn from the feedback on the last answer; returns its turn, if there is one."""

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Undo a lesson as far as possible, and learn the right one."""


@dataclass(slots=True)
class FrozenLearner:
    """CrabPath without any feedback."""

    memory: CrabPath
    distinct: bool

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the k best documents, best first."""
        return ranked_documents(
            self.memory.retrieve(
                query, k=k, vector=vector, one_per_document=self.distinct, record=False
            )
        )

    def learn(self, lesson: TaughtAnswer) -> None:
        """Learn nothing."""

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Learn nothing."""


@dataclass(slots=True)
class CrabPathLearner:
    """CrabPath that gets feedback on every answer."""

    memory: CrabPath
    distinct: bool
    namespace: str = NAMESPACE
    turn: Turn | None = None

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the k best documents, best first."""
        answer = self.memory.retrieve(
            query, k=k, vector=vector, one_per_document=self.distinct, namespace=self.namespace
        )
        self.turn = answer.turn
        return ranked_documents(answer)

    def log_turn(
        self, vector: Vector, signal: SimulatedFeedback, gold: frozenset[str]
    ) -> LoggedTurn | None:
        """Log the last turn for off-policy estimates, before it teaches; None if not explored.

        A second query that is not recorded finds the documents without exploration.
        """
        turn = self.turn
        if turn is None or not turn.explored or signal.used is None:
            return None
        chances = {item.node: item.propensity for item in turn.returned}
        greedy = self.memory.retrieve(
            turn.query,
            k=len(chances),
            vector=vector,
            one_per_document=self.distinct,
            namespace=self.namespace,
            record=False,
        )
        covered = [
            item.node
            for item in greedy.documents
            if item.node.id in chances
            or not any(item.returned.features.get(name) for name in ("inhibition", "passed"))
        ]
        return LoggedTurn(
            chances,
            frozenset(signal.used),
            [node.id for node in covered],
            len(greedy.documents) - len(covered),
            sum(node.document in gold for node in covered),
        )

    def learn(self, lesson: TaughtAnswer) -> str | None:
        """Record the feedback."""
        turn = None if self.turn is None else self.turn.id
        self._record(turn, lesson.signal)
        return turn

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Undo the wrong feedback, and give the right one."""
        self.memory.undo(turn_id=lesson.turn, namespace=self.namespace)
        self._record(lesson.turn, right)

    def _record(self, turn: str | None, signal: SimulatedFeedback) -> None:
        named = signal.relevant
        relevant = None if named is None else [one.chunk for one in named]
        self.memory.record(
            Feedback(
                turn, signal.outcome, used=signal.used, relevant=relevant, answer=signal.answer
            )
        )


@dataclass(slots=True)
class ReorderingLearner:
    """Frozen ranking plus the log-odds of a trivial learner."""

    frozen: FrozenLearner

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the k best documents, best first."""
        found = self.frozen.rank(query, vector, k * _DEPTH_FACTOR)
        added = self.log_odds_bonus(found)
        order = np.argsort([-(r.odds + more) for r, more in zip(found, added, strict=True)])
        return [found[place] for place in order[:k]]

    def log_odds_bonus(self, found: Sequence[RankedDocument]) -> list[float]:
        """Compute the value to add to the log-odds of each document."""
        raise NotImplementedError


@dataclass(slots=True)
class BetaCounts(ReorderingLearner):
    """A Beta posterior for each document: how often it was used when it was returned."""

    wins: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: 2.0))
    losses: dict[str, float] = field(default_factory=lambda: defaultdict(lambda: 3.0))

    def log_odds_bonus(self, found: Sequence[RankedDocument]) -> list[float]:
        """Compute the log-odds of use above what is usual."""
        usual = np.log(2.0 / 3.0)
        documents = [r.chunk.document for r in found]
        return [float(np.log(self.wins[d] / self.losses[d]) - usual) for d in documents]

    def learn(self, lesson: TaughtAnswer) -> None:
        """Count uses and passes."""
        self._count(lesson.ranked, lesson.signal, 1.0)

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Take the wrong counts back."""
        self._count(lesson.ranked, lesson.signal, -1.0)
        self._count(lesson.ranked, right, 1.0)

    def _count(
        self, ranked: Sequence[RankedDocument], signal: SimulatedFeedback, by: float
    ) -> None:
        for document, credit in document_credits(ranked, signal).items():
            counts = self.wins if credit > 0 else self.losses
            counts[document] += by


@dataclass(slots=True)
class MovingAverage(ReorderingLearner):
    """An exponential moving average of the credit of each document."""

    averages: dict[str, float] = field(default_factory=lambda: defaultdict(float))

    def log_odds_bonus(self, found: Sequence[RankedDocument]) -> list[float]:
        """Return the average, in log-odds."""
        return [2.0 * self.averages[r.chunk.document] for r in found]

    def learn(self, lesson: TaughtAnswer) -> None:
        """Move the averages."""
        for document, credit in document_credits(lesson.ranked, lesson.signal).items():
            self.averages[document] += _STEP_SIZE * (credit - self.averages[document])

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Learn the right answer; the wrong one fades."""
        self.learn(lesson._replace(signal=right))


@dataclass(slots=True)
class QueryCache(ReorderingLearner):
    """Documents used for the most similar past question come first, if it is similar enough."""

    queries: list[Vector] = field(default_factory=list)
    used: list[dict[str, RankedDocument]] = field(default_factory=list)

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the remembered documents first, then as the frozen ranking."""
        found = {r.chunk.document: r for r in self.frozen.rank(query, vector, k)}
        return list({**self._look_up(vector), **found}.values())[:k]

    def _look_up(self, vector: Vector) -> dict[str, RankedDocument]:
        if not self.queries:
            return {}
        cosines = np.stack(self.queries) @ vector
        best = int(cosines.argmax())
        return self.used[best] if cosines[best] >= _SIMILAR else {}

    def learn(self, lesson: TaughtAnswer) -> None:
        """Store the documents used by a success, and those that are named as relevant."""
        used = self._find_used(lesson.ranked, lesson.signal)
        if used:
            self.queries.append(lesson.vector)
            self.used.append(used)

    def correct(self, lesson: TaughtAnswer, right: SimulatedFeedback) -> None:
        """Store the right documents in place of the wrong ones."""
        for place, past in enumerate(self.queries):
            if past is lesson.vector:
                self.used[place] = self._find_used(lesson.ranked, right)
                return
        self.learn(lesson._replace(signal=right))

    def _find_used(
        self, ranked: Sequence[RankedDocument], signal: SimulatedFeedback
    ) -> dict[str, RankedDocument]:
        credit = document_credits(ranked, signal)
        used = {r.chunk.document: r for r in ranked if credit.get(r.chunk.document, 0.0) > 0}
        others = {one.chunk: one for one in signal.relevant or () if one.document not in used}
        nodes = self.frozen.memory.store.catalog.documents([*others]) if others else {}
        return used | {
            others[chunk].document: RankedDocument(others[chunk], node.content, 0.0)
            for chunk, node in nodes.items()
        }


class NearestNeighbours(QueryCache):
    """The nearest past questions vote for the documents used for them (Fix & Hodges 1951).

    A vote counts ``cosine^6``, and the frozen ranking .2 of its probability: chosen so that the
    figures published for ToolLens are reached.
    """

    def rank(self, query: str, vector: Vector, k: int) -> list[RankedDocument]:
        """Rank the documents with the most votes first."""
        found = {r.chunk.document: r for r in self.frozen.rank(query, vector, k)}
        votes = {d: _PRIOR / (1.0 + float(np.exp(-r.odds))) for d, r in found.items()}
        cosines = np.stack(self.queries) @ vector if self.queries else np.zeros(0)
        for place in np.argsort(-cosines, kind="stable")[:_NEIGHBOURS].tolist():
            for document, remembered in self.used[place].items():
                vote = max(0.0, float(cosines[place])) ** _SHARPNESS
                votes[document] = votes.get(document, 0.0) + vote
                found.setdefault(document, remembered)
        return [found[document] for document in sorted(votes, key=lambda d: -votes[d])[:k]]


def document_credits(
    ranked: Sequence[RankedDocument], signal: SimulatedFeedback
) -> dict[str, float]:
    """Assign credit by document: its use if reported, else the outcome."""
    if signal.relevant is not None:
        return {r.chunk.document: 0.0 for r in ranked} | {
            one.document: 1.0 for one in signal.relevant
        }
    if signal.used is None:
        return {r.chunk.document: signal.outcome for r in ranked}
    used = set(signal.used)
    return {r.chunk.document: signal.outcome if r.chunk.chunk in used else 0.0 for r in ranked}


def ranked_documents(answer: Answer) -> list[RankedDocument]:
    """List the documents of an answer with their log-odds."""
    return [
        RankedDocument(
            ReturnedChunk(item.node.id, item.node.document),
            item.node.content,
            float(np.log(item.score + 1e-9) - np.log1p(1e-9 - item.score)),
        )
        for item in answer.documents
    ]
