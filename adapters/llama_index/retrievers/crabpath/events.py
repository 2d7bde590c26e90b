"""``CrabPathEventHandler``: what LlamaIndex tells of its queries, as feedback."""

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

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import CrabPathError
from crabpath_retrievers.feedback.precedence import record_over, seen_feedback
from crabpath_retrievers.feedback.receipt import FeedbackFields, Receipt
from crabpath_retrievers.feedback.worker import Worker
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import OutcomePolicy
from llama_index.retrievers.crabpath.outcomes import seen_in
from llama_index.retrievers.crabpath.responses import (
    STREAMS,
    Outcome,
    answer_of,
    feedback_about,
    turns_of,
)
from llama_index.retrievers.crabpath.runs import Run, Runs
from llama_index.retrievers.crabpath.spans import SpanWatcher

_log = logging.getLogger(__name__)

TAG = "query_id"
"""Key of ``instrument_tags`` under which a program names its queries."""


class CrabPathEventHandler(BaseEventHandler):
    """Ties retrievals to the query, chat or agent run around them, and outcomes to retrievals.

    ::

        handler = CrabPathEventHandler(retriever.memory)
        with handler, instrument_tags({"query_id": "42"}):
            response = engine.query("how do I deploy?")
        handler.record("42", -1.0, correction="Deploys go through the pipeline.")

    What the handler learns by itself says its :class:`~crabpath_retrievers.OutcomePolicy`: from
    errors, and not from silence. A later :meth:`record` takes that back first, so that what a
    person says always counts.
    """

    _memory: CrabPath = PrivateAttr()
    _policy: OutcomePolicy = PrivateAttr()
    _runs: Runs = PrivateAttr()
    _spans: SpanWatcher = PrivateAttr()
    _work: deque[Feedback] = PrivateAttr(default_factory=deque)
    _worker: Worker = PrivateAttr()

    def __init__(
        self, memory: CrabPath, policy: OutcomePolicy | None = None, *, keep: int = 10_000
    ) -> None:
        """Teach a memory.

        Args:
            memory: The memory that is asked.
            policy: What counts as an outcome; None for ``OutcomePolicy()``.
            keep: Names of recent runs, and turns, that :meth:`record` can look up.
        """
        super().__init__()
        self._memory, self._policy = memory, policy or OutcomePolicy()
        self._runs = Runs(keep)
        self._spans = SpanWatcher(self._runs, self._ended)
        self._worker = Worker(self._learn, "crabpath-llama-index")

    @classmethod
    def class_name(cls) -> str:
        """Name in LlamaIndex's own serialisation."""
        return "CrabPathEventHandler"

    def attach(self, dispatcher: Dispatcher | None = None) -> Self:
        """Hear events and spans of a dispatcher, by default of all of LlamaIndex."""
        heard = dispatcher or get_dispatcher()
        self.detach(heard)
        heard.add_event_handler(self)
        heard.add_span_handler(self._spans)
        return self

    def detach(self, dispatcher: Dispatcher | None = None) -> None:
        """Hear no more; what has ended is still learned from. Safe to repeat."""
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
        """Note the turns and answers that an event tells of."""
        run = self._runs.of(event.span_id)
        if run is None:
            return
        names = [str(event.tags[TAG])] if TAG in event.tags else []
        if isinstance(event, RetrievalEndEvent):
            self._runs.turned(run, turns_of(event.nodes), names)
        elif isinstance(event, (QueryEndEvent, SynthesizeEndEvent)):
            self._runs.turned(run, turns_of(event.response), names)
            run.streamed = isinstance(event.response, STREAMS)
            run.answer = answer_of(event.response) or run.answer

    def record(
        self, query: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """Learn from what became of a query, now or a week later.

        Args:
            query: Its response, or the value of ``instrument_tags({"query_id": …})`` around it, or
                the span of its run, or a turn id.
            outcome: How good it was, in [-1, 1], or LlamaIndex's ``EvaluationResult``, which counts
                as the policy's ``score`` says; nothing is recorded where that is switched off.
            fields: As for :meth:`CrabPathRetriever.record`; give ``namespace`` to refuse turns of
                others.

        Raises:
            InvalidInputError: The response carries no turn, or a field cannot be used.
            StoreError: It could not be kept.
        """
        rule = self._policy.score
        if isinstance(outcome, EvaluationResult) and not rule.on:
            return []
        run = self._runs.find(query) if isinstance(query, str) else None
        if run is None:
            given = feedback_about(query, outcome, rule, **fields)
        else:
            if "used" not in fields:
                fields.setdefault("answer", run.answer)
            given = feedback_about([*run.turns], outcome, rule, **fields)
        self.flush()
        return [record_over(self._memory, feedback) for feedback in given]

    async def arecord(
        self, query: Any, outcome: Outcome, **fields: Unpack[FeedbackFields]
    ) -> list[Receipt]:
        """As :meth:`record`, off the event loop."""
        return await asyncio.to_thread(self.record, query, outcome, **fields)

    def flush(self) -> None:
        """Wait until all that has ended is learned from; it blocks."""
        self._worker.drain()

    def _ended(self, run: Run, result: Any, error: BaseException | None) -> None:
        """Learn from the end of a run, off the event loop if this is one."""
        kind = self._policy.first(seen_in(run, result, error, self._policy))
        if kind is None:
            return
        self._work += [
            seen_feedback(kind, self._policy, turn, answer=run.answer, namespace=None)
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
