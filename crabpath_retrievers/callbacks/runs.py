"""Keeps track of runs: which retrievals belong to which chain, and what was said about it.

Finds the turns behind retrieved documents, matches citations with the documents, and makes feedback
about the turns of a chain from its most specific signal.
"""

import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from crabpath_retrievers.config.outcome_policy import (
    OBSERVED_KINDS,
    EventKind,
    OutcomePolicy,
    rank_kind,
)
from crabpath_retrievers.core.feedback import Feedback, FeedbackFields, RewardSource, SignalFields
from crabpath_retrievers.core.processes import make_lock
from crabpath_retrievers.core.query import find_session
from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.outcomes import (
    ParsedOutput,
    RetrievedTurn,
    find_turns,
    parse_outcome,
    select_use,
)
from crabpath_retrievers.learning.rules import make_event_id

FEEDBACK_EVENT = "crabpath_feedback"
"""Name of the custom event by which a chain sends feedback."""

TARGET_FIELDS = ("run_id", "thread_id", "turn_id")
_OWN_FIELDS = ("correction", "score", "outcome", "key", "source")
_ALL_FIELDS = {*_OWN_FIELDS, *SignalFields.__annotations__, *TARGET_FIELDS}


@dataclass(frozen=True, slots=True)
class FeedbackSignal:
    """One event or statement about how a chain did.

    Attributes:
        kind: Kind of the event.
        outcome: Outcome in [-1, 1].
        source: Reward source.
        key: Distinguishes signals of one kind; repeating a key changes nothing.
        correction: As in :class:`~crabpath_retrievers.core.feedback.Feedback`.
        fields: Other fields of the feedback.
    """

    kind: EventKind
    outcome: float
    source: RewardSource
    key: str = ""
    correction: str | None = None
    fields: FeedbackFields = field(default_factory=FeedbackFields)

    @property
    def explicit(self) -> bool:
        """Whether a person or program stated the outcome; otherwise it was observed."""
        return self.kind not in OBSERVED_KINDS

    def feedback_id(self, turn_id: str) -> str:
        """Return the id of the feedback: equal for the same signal about the same turn."""
        return make_event_id(self.kind, turn_id, self.key)


def make_observed_signals(kind: EventKind, policy: OutcomePolicy) -> list[FeedbackSignal]:
    """Make the signal of an observed event; none if the policy does not count it."""
    rule = policy.rule(kind)
    return [FeedbackSignal(kind, rule.outcome, rule.source)] if rule.on else []


def parse_signals(data: Any, policy: OutcomePolicy) -> list[FeedbackSignal]:
    """Parse feedback of a host about a chain; no signal if the policy does not count it.

    Args:
        data: ``correction`` (a text) or ``score`` in [0, 1], or ``outcome`` in [-1, 1]; ``key``
            tells scores apart; ``source`` and the keys of
            :class:`~crabpath_retrievers.core.feedback.SignalFields` are those of feedback.
        policy: Which kinds count.

    Raises:
        InvalidInputError: The data is not valid feedback.
    """
    if not isinstance(data, Mapping) or not _ALL_FIELDS.issuperset(data):
        allowed = ", ".join(sorted(_ALL_FIELDS))
        msg = f"feedback must be a mapping with some of {allowed}, not {data!r}"
        raise InvalidInputError(msg)
    if all(data.get(name) is None for name in ("correction", "score", "outcome")):
        msg = "feedback must have correction (a text), score (0 to 1) or outcome (-1 to 1)"
        raise InvalidInputError(msg)
    correction = data.get("correction")
    if is_blank(correction) and any(data.get(name) is not None for name in ("score", "outcome")):
        correction = None  # it says nothing, and the score counts
    if correction is not None and (not isinstance(correction, str) or is_blank(correction)):
        msg = f"a correction must be a text with the right answer, not {correction!r}"
        raise InvalidInputError(msg)
    kind: EventKind = "score" if correction is None else "correction"
    if not policy.rule(kind).on:
        return []
    given = {n: data[n] for n in SignalFields.__annotations__ if data.get(n) is not None}
    source = policy.rule(kind).source if data.get("source") is None else data["source"]
    outcome, fields = _parse_outcome(data, policy), cast("FeedbackFields", given)
    key = str(data.get("key", "score")) if correction is None else correction.strip()
    return [FeedbackSignal(kind, outcome, source, key, correction, fields)]


def _parse_outcome(data: Mapping[str, Any], policy: OutcomePolicy) -> float:
    if data.get("outcome") is not None:
        return parse_outcome(data["outcome"])
    if data.get("score") is not None:
        return policy.score.convert_score(data["score"])
    return policy.correction.outcome


_PLACE = "langgraph_checkpoint_ns"


class OpenRun(NamedTuple):
    """A run that has started: its chain, its LangGraph task, and whether its output streams."""

    root: "ChainRun"
    place: str
    streams: bool


@dataclass(slots=True)
class ChainRun:
    """A run of a chain, with all runs below it.

    Attributes:
        id: Run id of the topmost run that the handler saw.
        thread: Conversation that it belongs to, if any.
        since: Start time on the monotonic clock, in seconds.
        turns: Turns by id, in order.
        signals: Signals so far.
        open: Ids of its runs, itself included, that have not ended.
        streams: Whether its output is streamed.
        streamed: Whether a part of the stream was complete.
        paused: Whether it waits for a person and may continue under another run id.
        resumed: Whether it continues a paused run.
        answered: Its answer and citations.
        aliases: Run ids that it had before it was paused.
    """

    id: str
    thread: str | None
    since: float
    turns: dict[str, RetrievedTurn] = field(default_factory=dict)
    signals: list[FeedbackSignal] = field(default_factory=list)
    open: set[str] = field(default_factory=set)
    streams: bool = False
    streamed: bool = False
    paused: bool = False
    resumed: bool = False
    answered: ParsedOutput = field(default_factory=ParsedOutput)
    aliases: tuple[str, ...] = ()

    @property
    def complete(self) -> bool:
        """Whether all runs of the chain ended, and its stream, if any, was complete."""
        return not self.open and (self.streamed or not self.streams)


class ChainTracker:
    """Open chains and the last ones that ended. Safe to use from several threads.

    At most ``most`` chains of either kind are kept, each for at most ``seconds``.
    """

    def __init__(self, most: int, seconds: float) -> None:
        """Keep at most ``most`` chains, each for at most ``seconds``.

        Raises:
            InvalidInputError: ``most`` is below 1, or ``seconds`` is not above 0.
        """
        if most < 1 or not seconds > 0:
            msg = f"keep at least 1 run for more than 0 seconds, not {most!r} for {seconds!r}"
            raise InvalidInputError(msg)
        self._most, self._seconds = most, seconds
        self._lock = make_lock()
        self._runs: dict[str, OpenRun] = {}
        self._going: OrderedDict[str, ChainRun] = OrderedDict()
        self._ended: OrderedDict[str, ChainRun] = OrderedDict()
        self._by_name: dict[str, ChainRun] = {}  # ended chains by run ids and turn ids
        self._threads: dict[str, ChainRun] = {}  # last ended chain of each thread

    def start(
        self, run_id: str, parent: str | None, metadata: Mapping[str, Any] | None, given: Any
    ) -> None:
        """Add a run that starts; ``parent`` is the run around it, None for a chain of its own.

        ``metadata`` and ``given``, the input, are those of the run.
        """
        about = metadata or {}
        place = str(about.get(_PLACE) or "")
        streams = _is_streaming(given)
        with self._lock:
            above = self._runs.get(parent) if parent else None
            root = above.root if above else self._start_chain(run_id, about, given, streams=streams)
            if place and above and place != above.place:
                # A task of a graph starts, perhaps as a retry: only its last attempt counts.
                root.turns = {t: turn for t, turn in root.turns.items() if turn.place != place}
            if root.thread is None:
                root.thread = find_session({"metadata": about})
            root.open.add(run_id)
            self._runs[run_id] = OpenRun(root, place, streams)

    def add_documents(self, run_id: str, documents: Any) -> None:
        """Add the turns of the documents that a retriever run returned."""
        with self._lock:
            run = self._runs.get(run_id)
            if run is not None:
                for turn in find_turns(documents, run_id, run.place):
                    run.root.turns.setdefault(turn.turn_id, turn)

    def end(self, run_id: str, *, streamed: bool = False) -> ChainRun | None:
        """End a run; return its chain, which the caller may change, if the chain ends with it.

        None if other runs of the chain go on, or the run is unknown. ``streamed`` says that its
        output was streamed.
        """
        with self._lock:
            run = self._runs.pop(run_id, None)
            if run is None:
                return None
            root = run.root
            root.open.discard(run_id)
            if run_id != root.id:
                root.streamed |= run.streams or streamed
                return None
            self._forget_runs(root)
            return root

    def keep(self, root: ChainRun) -> None:
        """Keep an ended chain for later feedback."""
        with self._lock:
            if root.turns:
                self._ended[root.id] = root
                if root.thread is not None:
                    self._threads[root.thread] = root
                self._by_name.update(dict.fromkeys(_collect_names(root), root))
            self._expire(self._ended, self._forget_ended)

    def find_ended(self, name: str) -> ChainRun | None:
        """Find an ended chain by its run id, a retriever's run id or a turn id; None if unknown."""
        with self._lock:
            return self._by_name.get(name)

    def find_last(self, thread: str) -> ChainRun | None:
        """Find the last ended chain of a thread; None without one."""
        with self._lock:
            return self._threads.get(thread)

    def find_open(self, run_id: str) -> ChainRun | None:
        """Find the chain of an open run; None if it is unknown."""
        with self._lock:
            run = self._runs.get(run_id)
            return None if run is None else run.root

    @property
    def retention(self) -> str:
        """Describe how many chains are kept, and for how long."""
        return f"{self._seconds:g} seconds, the last {self._most} of them"

    def __len__(self) -> int:
        """Count the open runs."""
        with self._lock:
            return len(self._runs)

    def _start_chain(
        self, run_id: str, about: Mapping[str, Any], given: Any, *, streams: bool
    ) -> ChainRun:
        root = ChainRun(
            run_id, find_session({"metadata": about}), time.monotonic(), streams=streams
        )
        root.resumed = root.thread is not None and _is_resuming(given)
        before = self._threads.get(root.thread or "") if root.resumed else None
        if before is not None and before.paused:
            root.turns.update(before.turns)
            root.signals += before.signals
            root.aliases = (before.id, *before.aliases)
        self._going[run_id] = root
        self._expire(self._going, self._forget_runs)
        return root

    def _expire(self, kept: OrderedDict[str, ChainRun], forget: Callable[[ChainRun], None]) -> None:
        now = time.monotonic()
        while len(kept) > 1:  # the newest stays
            oldest = next(iter(kept.values()))
            if len(kept) <= self._most and now - oldest.since <= self._seconds:
                break
            kept.pop(oldest.id)
            forget(oldest)

    def _forget_runs(self, root: ChainRun) -> None:
        self._going.pop(root.id, None)
        for run_id in root.open:
            self._runs.pop(run_id, None)

    def _forget_ended(self, root: ChainRun) -> None:
        for name in _collect_names(root):
            if self._by_name.get(name) is root:
                del self._by_name[name]
        if root.thread is not None and self._threads.get(root.thread) is root:
            del self._threads[root.thread]


def _collect_names(root: ChainRun) -> list[str]:
    turns = root.turns.values()
    return [root.id, *root.aliases, *root.turns, *(turn.run_id for turn in turns)]


def _is_streaming(given: Any) -> bool:
    """Whether a run streams: LangChain then starts it with an empty input ``given``."""
    # Comparing the whole input would raise if it contains arrays.
    text = given["input"] if isinstance(given, dict) and [*given] == ["input"] else None
    return isinstance(text, str) and not text


def _is_resuming(given: Any) -> bool:
    """Whether a graph resumes a paused run."""
    return given is None or getattr(given, "resume", None) is not None


def select_most_specific(signals: Iterable[FeedbackSignal]) -> FeedbackSignal | None:
    """Return the most specific signal, the last one of several; None without signals."""
    latest_first = reversed([*signals])
    return min(latest_first, key=lambda signal: rank_kind(signal.kind), default=None)


def make_feedback(
    root: ChainRun, signal: FeedbackSignal | None, only: str | None = None
) -> list[Feedback]:
    """Make feedback about every turn of a chain.

    A correction becomes a note of the latest turn; the other turns get the outcome only.

    Args:
        root: The chain.
        signal: The signal that counts; None for no feedback.
        only: Id of a turn or of its retriever run; None for all turns.
    """
    if signal is None:
        return []
    turns = [turn for turn in root.turns.values() if only in {None, turn.turn_id, turn.run_id}]
    made, known = [], {turn.turn_id: turn.ids_by_name for turn in turns}
    for turn in turns:
        fields: FeedbackFields = {
            **signal.fields,
            "namespace": signal.fields.get("namespace") or turn.namespace,
            "correction": signal.correction if turn is turns[-1] else None,
            "source": signal.source,
            "feedback_id": signal.feedback_id(turn.turn_id),
        }
        if signal.explicit or signal.kind == "silent_success":
            if fields.get("used") is None and fields.get("relevant") is None:
                fields["used"] = turn.select_used(root.answered.cited, places=len(turns) == 1)
            if fields.get("answer") is None:
                fields["answer"] = root.answered.text
        use = select_use(fields, turn.turn_id, known)
        made.append(Feedback(turn.turn_id, signal.outcome, **use))
    return made
