"""``CrabPathEventHandler``: turns events of LlamaIndex queries into feedback.

Detects events at the end of a query.
"""

import asyncio
import logging
from collections import deque
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
    perform,
)
from llama_index.retrievers.crabpath.responses import (
    STREAMS,
    Evaluated,
    get_answer_text,
    make_response_feedback,
    turns_of,
)
from llama_index.retrievers.crabpath.runs import QueryRun, QueryTracker, SpanWatcher


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
