"""Prequential evaluation: a learner answers each question, is scored, and then gets feedback."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

import numpy as np

from crabpath_lab.datasets import Dataset
from crabpath_lab.streams.learners import (
    CrabPathLearner,
    RankedDocument,
    StreamLearner,
    TaughtAnswer,
    require_ranking,
    require_turn,
)
from crabpath_lab.streams.off_policy import LoggedTurn
from crabpath_lab.streams.simulated_feedback import (
    FeedbackSimulator,
    SimulatedFeedback,
)
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.text import tokenise
from crabpath_retrievers.vectors.embedder import Embedder

StreamKind = Literal["prequential", "repair", "transfer", "drift"]
STREAM_KINDS: tuple[StreamKind, ...] = get_args(StreamKind)
REPAIR_ARMS = ("clean", "wrong", "repaired")
"""Nothing wrong; 20% of the feedback wrong; the same, corrected before the second pass."""

_WRONG = 0.2  # share of the feedback that is wrong before a repair
_QUARTERS = 4
_MOVED = 0.1  # share of the relevant documents that swap their relevance in a drift


class Question(NamedTuple):
    """One question of a pass, with what is relevant at this time.

    ``gets_feedback`` says whether feedback follows, ``wrong`` whether that is wrong, ``moved``
    whether it is asked ``before`` or ``after`` the relevance of one of its documents moves.
    """

    query: str
    text: str
    gold: frozenset[str]
    gets_feedback: bool = True
    wrong: bool = False
    moved: str = ""


class StreamPart(NamedTuple):
    """Questions that are summarised together: their places in one pass."""

    name: str
    epoch: int
    places: Sequence[int]


@dataclass(frozen=True, slots=True)
class StreamSchedule:
    """The order of a stream, the same for every learner.

    ``prequential``: feedback follows every answer. ``transfer``: only in the first half; the
    second half has new questions. ``drift``: half way a tenth of the relevant documents swap their
    relevance with those that share most of their words. ``repair`` (AgentMemoryBench): feedback in
    the first half, 20% of it wrong; then that is corrected, and all questions are asked.

    Attributes:
        epochs: Passes over the questions, of ``prequential`` and ``drift``.
        seed: Draws the order, the words that are dropped, the noise, and what is wrong or moves.
        dropped: Share of the words of a question that later passes leave out, in [0, 1).
        kind: Kind of the stream.
        arm: Of ``repair``: one of ``REPAIR_ARMS``.
    """

    epochs: int = 1
    seed: int = 0
    dropped: float = 0.0
    kind: StreamKind = "prequential"
    arm: str = REPAIR_ARMS[0]

    def order_queries(self, queries: Sequence[str]) -> list[str]:
        """Order the questions as they are asked."""
        rng = np.random.default_rng(self.seed)
        return [queries[place] for place in rng.permutation(len(queries))]

    def reword(self, text: str, epoch: int, place: int) -> str:
        """Return the wording of a question in one pass."""
        if not epoch or not self.dropped:
            return text
        words = text.split()
        rng = np.random.default_rng([self.seed, epoch, place])
        kept = [word for word in words if rng.random() >= self.dropped]
        return " ".join(kept or words)

    def plan_passes(self, dataset: Dataset) -> list[list[Question]]:
        """List the questions of each pass."""
        order = self.order_queries(list(dataset.queries))
        middle, everyone = len(order) // 2, range(len(order))
        moves = self._draw_moves(dataset) if self.kind == "drift" else {}

        def ask(
            place: int, epoch: int = 0, *, gets_feedback: bool = True, wrong: bool = False
        ) -> Question:
            query = order[place]
            text, gold = self.reword(dataset.queries[query], epoch, place), dataset.qrels[query]
            if moves.keys().isdisjoint(gold):
                return Question(query, text, gold, gets_feedback, wrong)
            if epoch * len(order) + place < len(order) * self.epochs // 2:
                return Question(query, text, gold, moved="before")
            return Question(query, text, frozenset(moves.get(d, d) for d in gold), moved="after")

        if self.kind == "transfer":
            later = [ask(place, gets_feedback=False) for place in everyone[middle:]]
            return [[ask(place) for place in everyone[:middle]], later]
        if self.kind == "repair":
            drawn = np.random.default_rng([self.seed, 3]).permutation(middle).tolist()
            count = 0 if self.arm == REPAIR_ARMS[0] else max(1, round(_WRONG * middle))
            first = [ask(place, wrong=place in drawn[:count]) for place in everyone[:middle]]
            return [
                first,
                [ask(place, int(place < middle), gets_feedback=False) for place in everyone],
            ]
        return [[ask(place, epoch) for place in everyone] for epoch in range(self.epochs)]

    def judge(self, dataset: Dataset) -> dict[str, frozenset[str]]:
        """List the relevant documents of each question when it was first asked."""
        passes = reversed(self.plan_passes(dataset))
        gold = {question.query: question.gold for asked in passes for question in asked}
        return {query: gold[query] for query in dataset.queries}

    def _draw_moves(self, dataset: Dataset) -> dict[str, str]:
        """Draw documents; each swaps its relevance with the most similar one, mapped both ways."""
        words = {d.id: {*tokenise(d.page_content)} for d in dataset.documents if d.id}
        relevant = sorted(words.keys() & frozenset().union(*dataset.qrels.values()))
        drawn = np.random.default_rng([self.seed, 2]).permutation(len(relevant))
        moves: dict[str, str] = {}
        for place in drawn[: max(1, round(_MOVED * len(relevant)))].tolist():
            own = relevant[place]
            others = words.keys() - moves.keys() - {own}
            if own not in moves and others:
                shared = {
                    d: len(words[own] & words[d]) / len(words[own] | words[d]) for d in others
                }
                other = max(sorted(others), key=shared.__getitem__)
                moves |= {own: other, other: own}
        return moves

    def list_parts(self, dataset: Dataset) -> list[StreamPart]:
        """List the parts that are summarised: passes, halves, quarters, parts of the stream."""
        passes = self.plan_passes(dataset)
        sizes = [len(asked) for asked in passes]
        parts = [StreamPart(f"epoch {n}", n - 1, range(size)) for n, size in enumerate(sizes, 1)]
        quarters = _cut_in_quarters("", parts[0])
        if self.kind == "transfer":
            return [*quarters, parts[0], parts[1]._replace(name="new questions")]
        if self.kind == "repair":
            again, new = range(sizes[0]), range(sizes[0], sizes[1])
            after = [StreamPart("asked again", 1, again), StreamPart("new questions", 1, new)]
            return [*quarters, parts[0], parts[1]._replace(name="after"), *after]
        parts += [*quarters, StreamPart("second half", 0, range(sizes[0] // 2, sizes[0]))]
        for when in ("before", "after"):
            for epoch, asked in enumerate(passes):
                places = [place for place, question in enumerate(asked) if question.moved == when]
                if places:
                    part = StreamPart(f"moved, {when}", epoch, places)
                    parts += [part, *_cut_in_quarters(f"{part.name}, ", part)]
        return parts


def _cut_in_quarters(prefix: str, whole: StreamPart) -> list[StreamPart]:
    cut = np.array_split(np.array(whole.places, dtype=np.intp), _QUARTERS)
    return [
        StreamPart(f"{prefix}quarter {number}", whole.epoch, places.tolist())
        for number, places in enumerate(cut, 1)
        if places.size
    ]


@dataclass(slots=True)
class StreamPass:
    """Answers and gold of one learner in one pass by query id, with times in milliseconds.

    ``logged`` has the turns with exploration.
    """

    found: dict[str, list[RankedDocument]] = field(default_factory=dict)
    rank_ms: list[float] = field(default_factory=list)
    learn_ms: list[float] = field(default_factory=list)
    gold: dict[str, frozenset[str]] = field(default_factory=dict)
    logged: list[LoggedTurn] = field(default_factory=list)


def run_stream(
    name: str,
    learner: StreamLearner,
    dataset: Dataset,
    embedder: Embedder,
    simulator: FeedbackSimulator,
    schedule: StreamSchedule,
    k: int,
) -> list[StreamPass]:
    """Run one learner on the whole stream, k documents a question.

    Returns one pass after the other, queries in the order in which they were asked. Labels are read
    after each answer; embedding is not timed; ``name`` stands beside the progress bar.
    """
    planned = schedule.plan_passes(dataset)
    rng, misled = (np.random.default_rng([schedule.seed, draw]) for draw in (1, 4))
    passes = []
    known = {str(document.id) for document in dataset.documents}
    documents = None if isinstance(learner, CrabPathLearner) else known
    with bar(sum(map(len, planned)), description=f"{name}: stream") as advance:
        for asked in planned:
            done = StreamPass()
            mistakes: list[tuple[TaughtAnswer, SimulatedFeedback]] = []
            for question in asked:
                query, gold = question.query, question.gold
                vector = embedder.query(question.text)
                started = time.perf_counter()
                found = learner.rank(question.text, vector, k)
                done.rank_ms.append((time.perf_counter() - started) * 1000)
                require_ranking(found, k, documents)
                done.found[query], done.gold[query] = found, gold
                if question.gets_feedback:
                    shown = [item.chunk for item in found]
                    answer = dataset.answers.get(query)
                    signal = right = simulator.simulate(shown, gold, answer, rng)
                    if question.wrong:
                        signal = simulator.mislead().simulate(shown, gold, answer, misled)
                    if isinstance(learner, CrabPathLearner):
                        logged = learner.log_turn(vector, signal, gold)
                        done.logged += [] if logged is None else [logged]
                    started = time.perf_counter()
                    lesson = TaughtAnswer(vector, found, signal)
                    turn = learner.learn(lesson)
                    done.learn_ms.append((time.perf_counter() - started) * 1000)
                    require_turn(turn)
                    if question.wrong:
                        mistakes.append((lesson._replace(turn=turn), right))
                advance(1)
            if schedule.arm == REPAIR_ARMS[-1]:
                for lesson, right in mistakes:
                    learner.correct(lesson, right)
            passes.append(done)
    return passes
