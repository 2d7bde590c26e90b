"""``CrabPathEventHandler``: turns events of LlamaIndex queries into feedback.

Runs (query, chat or agent calls) and their turns are followed by the spans of LlamaIndex's trace.
Detects events at the end of a query.
"""

import asyncio
import inspect
import logging
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.evaluation import EvaluationResult
from llama_index.core.instrumentation import (  # type: ignore[attr-defined]  # as documented
    Dispatcher,
    get_dispatcher,
)
from llama_index.core.instrumentation.event_handlers import BaseEventHandler
from llama_index.core.instrumentation.events import BaseEvent
from llama_index.core.instrumentation.events.query import QueryEndEvent
from llama_index.core.instrumentation.events.retrieval import RetrievalEndEvent
from llama_index.core.instrumentation.events.synthesis import SynthesizeEndEvent
from llama_index.core.instrumentation.span import BaseSpan
from llama_index.core.instrumentation.span_handlers import BaseSpanHandler
from typing_extensions import Self, Unpack

from crabpath_retrievers import CrabPath, CrabPathError, Feedback, OutcomePolicy
from crabpath_retrievers.integration import (
    BackgroundWorker,
    EventKind,
    FeedbackFields,
    Receipt,
    arun,
    collect_exception_names,
    make_event_feedback,
    make_lock,
    perform,
)
from llama_index.retrievers.crabpath.responses import (
    STREAMS,
    Evaluated,
    get_answer_text,
    make_response_feedback,
    turns_of,
)

_OPEN = 100_000  # open spans to remember; the oldest are dropped


@dataclass(slots=True)
class QueryRun:
    """One outermost span of LlamaIndex's trace.

    Attributes:
        turns: Ids of its turns, in order.
        answer: Its answer; None without a text.
        names: Values of the program's tags.
        streamed: Whether its answer is read after its end.
        raised: Exception classes of its parts.
    """

    turns: dict[str, None] = field(default_factory=dict)
    answer: str | None = None
    names: set[str] = field(default_factory=set)
    streamed: bool = False
    raised: set[type[BaseException]] = field(default_factory=set)


class QueryTracker:
    """Open and recent runs, thread-safe and bounded."""

    def __init__(self, keep: int) -> None:
        """Remember the turns of the last ``keep`` runs."""
        self._keep = keep
        self._lock = make_lock()
        self._roots: OrderedDict[str, str] = OrderedDict()
        self._runs: OrderedDict[str, QueryRun] = OrderedDict()
        self._recent: OrderedDict[str, QueryRun] = OrderedDict()

    def enter(self, span: str, parent: str | None) -> None:
        """Start a span; without a known parent it is the outermost one of a run."""
        with self._lock:
            root = self._roots.get(parent or "", span)
            self._roots[span] = root
            _bound(self._roots, _OPEN)
            if root == span:
                self._runs[span] = QueryRun()
                _bound(self._runs, _OPEN)

    def of(self, span: str | None) -> QueryRun | None:
        """Return the run of an open span."""
        with self._lock:
            return self._runs.get(self._roots.get(span or "", ""))

    def add_turns(self, run: QueryRun, turns: Iterable[str], names: Iterable[str]) -> None:
        """Add turns and names to a run."""
        with self._lock:
            run.turns.update(dict.fromkeys(turns))
            run.names.update(names)

    def leave(self, span: str) -> QueryRun | None:
        """End a span; return its run if the span was the outermost one and the run has turns."""
        with self._lock:
            root = self._roots.pop(span, None)
            run = self._runs.pop(span, None) if root == span else None
            if run is None or not run.turns:
                return None
            for name in (span, *run.names, *run.turns):
                self._recent[name] = run
                self._recent.move_to_end(name)
            _bound(self._recent, self._keep)
            return run

    def find(self, name: str) -> QueryRun | None:
        """Find a recent run by its span id, a name, or the id of a turn."""
        with self._lock:
            return self._recent.get(name)


def _bound(held: OrderedDict[str, QueryRun] | OrderedDict[str, str], most: int) -> None:
    while len(held) > most:
        held.popitem(last=False)


OnRunEnd = Callable[[QueryRun, Any, BaseException | None], None]


class SpanWatcher(BaseSpanHandler[BaseSpan]):
    """Follows spans, and keeps only their runs."""

    _runs: QueryTracker = PrivateAttr()
    _ended: OnRunEnd = PrivateAttr()

    def __init__(self, runs: QueryTracker, ended: OnRunEnd) -> None:
        """Track ``runs``; call ``ended`` with each ended run with turns, its result and error."""
        super().__init__()
        self._runs, self._ended = runs, ended

    def new_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002  the base passes all by name
        instance: Any | None = None,  # noqa: ARG002
        parent_span_id: str | None = None,
        tags: dict[str, Any] | None = None,  # noqa: ARG002
        **_kwargs: Any,
    ) -> None:
        """Handle the start of a span."""
        self._runs.enter(id_, parent_span_id)

    def prepare_to_exit_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any | None = None,  # noqa: ARG002
        result: Any | None = None,
        **_kwargs: Any,
    ) -> None:
        """Handle the end of a span without error."""
        if run := self._runs.leave(id_):
            self._ended(run, result, None)

    def prepare_to_drop_span(
        self,
        id_: str,
        bound_args: inspect.BoundArguments,  # noqa: ARG002
        instance: Any | None = None,  # noqa: ARG002
        err: BaseException | None = None,
        **_kwargs: Any,
    ) -> None:
        """Handle the end of a span with an error."""
        run = self._runs.of(id_)
        if run is not None and err is not None:
            run.raised.add(type(err))
        if run := self._runs.leave(id_):
            self._ended(run, None, err)


def detect_run_events(
    run: QueryRun, result: Any, error: BaseException | None, policy: OutcomePolicy
) -> set[EventKind]:
    """Detect the events of a run that ended, counted or not, and set its answer."""
    result = getattr(result, "result", result)  # unwrap the result of an agent's workflow
    said = result if isinstance(result, str) else get_answer_text(result)
    run.answer = said or run.answer
    if error is not None:
        return (
            {"chain_error"}
            if policy.is_about_documents(collect_exception_names(type(error)))
            else set()
        )
    failed = any(
        policy.is_about_documents(collect_exception_names(raised)) for raised in run.raised
    )
    if run.raised and result is None:  # a workflow that raised ends without a result
        return {"chain_error"} if failed else set()
    seen: set[EventKind] = {"tool_error"} if failed else set()
    streamed = isinstance(result, STREAMS) or (run.streamed and not said)
    return seen if streamed or run.answer is None else {*seen, "silent_success"}


_log = logging.getLogger(__name__)

TAG = "query_id"
"""Key of ``instrument_tags`` with the program's name of a query."""


class CrabPathEventHandler(BaseEventHandler):
    """Connects retrievals with the query, chat or agent run around them, and records feedback.

    ::

        handler = CrabPathEventHandler(retriever.memory)
        with handler, instrument_tags({"query_id": "42"}):
            response = engine.query("how do I deploy?")
        handler.record("42", -1.0, correction="Deploys go through the pipeline.")

    Its :class:`~crabpath_retrievers.OutcomePolicy` defines which events it records by itself: by
    default errors, but not answers without feedback. A later :meth:`record` undoes that first, so
    that feedback of a person always counts.
    """

    _memory: CrabPath = PrivateAttr()
    _policy: OutcomePolicy = PrivateAttr()
    _runs: QueryTracker = PrivateAttr()
    _spans: SpanWatcher = PrivateAttr()
    _work: deque[Feedback] = PrivateAttr(default_factory=deque)
    _worker: BackgroundWorker = PrivateAttr()

    def __init__(
        self, memory: CrabPath, policy: OutcomePolicy | None = None, *, keep: int = 10_000
    ) -> None:
        """Record feedback in a memory.

        Args:
            memory: The memory that the queries use.
            policy: Which events count as feedback; None for ``OutcomePolicy()``.
            keep: Number of names of recent runs and turns that :meth:`record` can look up.
        """
        super().__init__()
        self._memory, self._policy = memory, policy or OutcomePolicy()
        self._runs = QueryTracker(keep)
        self._spans = SpanWatcher(self._runs, self._handle_end)
        self._worker = BackgroundWorker(self._learn, "crabpath-llama-index")

    @classmethod
    def class_name(cls) -> str:
        """Name in LlamaIndex's own serialisation."""
        return "CrabPathEventHandler"

    def attach(self, dispatcher: Dispatcher | None = None) -> Self:
        """Handle events and spans of a dispatcher, by default of all of LlamaIndex."""
        heard = dispatcher or get_dispatcher()
        self.detach(heard)
        heard.add_event_handler(self)
        heard.add_span_handler(self._spans)
        return self

    def detach(self, dispatcher: Dispatcher | None = None) -> None:
        """Stop handling; feedback of ended runs is still recorded. Safe to repeat."""
        heard = dispatcher or get_dispatcher()
        heard.event_handlers = [h for h in heard.event_handlers if h is not self]
        heard.span_handlers = [h for h in heard.span_handlers if h is not self._spans]

    def __enter__(self) -> Self:
        """Attach for the length of a ``with`` block."""
        return self.attach()

    def __exit__(self, *_error: object) -> None:
        """Detach."""
        self.detach()

    def handle(self, event: BaseEvent, **_kwargs: Any) -> None:
        """Add the turns and answer of an event to its run."""
        run = self._runs.of(event.span_id)
        if run is None:
            return
        names = [str(event.tags[TAG])] if TAG in event.tags else []
        if isinstance(event, RetrievalEndEvent):
            self._runs.add_turns(run, turns_of(event.nodes), names)
        elif isinstance(event, (QueryEndEvent, SynthesizeEndEvent)):
            self._runs.add_turns(run, turns_of(event.response), names)
            run.streamed = isinstance(event.response, STREAMS)
            run.answer = get_answer_text(event.response) or run.answer

    def record(
        self, query: object, outcome: Evaluated, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """Record feedback for a query, now or a week later.

        Args:
            query: Its response, or the value of ``instrument_tags({"query_id": …})`` around it, or
                the span id of its run, or a turn id.
            outcome: The outcome, in [-1, 1], or LlamaIndex's ``EvaluationResult``, which counts by
                the policy's ``score``; nothing is recorded if that rule is off.
            fields: As for :meth:`CrabPathRetriever.record`; give ``namespace`` to refuse turns of
                others.

        Raises:
            InvalidInputError: The response has no turn, or a field is not valid.
            StoreError: The feedback could not be stored.
        """
        rule = self._policy.score
        if isinstance(outcome, EvaluationResult) and not rule.on:
            return []
        run = self._runs.find(query) if isinstance(query, str) else None
        if run is None:
            given = make_response_feedback(query, outcome, rule, **fields)
        else:
            if "used" not in fields:
                fields.setdefault("answer", run.answer)
            given = make_response_feedback([*run.turns], outcome, rule, **fields)
        self.flush()
        return [self._memory.record(feedback) for feedback in given]

    async def arecord(
        self, query: object, outcome: Evaluated, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """As :meth:`record`, off the event loop."""
        return await arun(perform(self.record, query, outcome, **fields))

    def flush(self) -> None:
        """Block until feedback of all ended runs is recorded."""
        self._worker.drain()

    def _handle_end(self, run: QueryRun, result: Any, error: BaseException | None) -> None:
        """Record feedback for a run that ended; in a thread if called on an event loop."""
        kind = self._policy.first(detect_run_events(run, result, error, self._policy))
        if kind is None:
            return
        self._work += [
            make_event_feedback(kind, self._policy, turn, answer=run.answer, namespace=None)
            for turn in run.turns
        ]
        if _on_event_loop():
            self._worker.wake()
        else:
            self._learn()

    def _learn(self) -> None:
        while self._work:
            try:
                self._memory.record(self._work.popleft())
            except IndexError:  # another thread took it
                return
            except CrabPathError:
                _log.warning("an outcome could not be learned from", exc_info=True)


def _on_event_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True
