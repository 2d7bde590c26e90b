"""``CrabPathCallbackHandler``: turns the events of LangChain runs into feedback."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler

from crabpath_retrievers.callbacks.listener import AnswerParser, ChainListener
from crabpath_retrievers.callbacks.recording import FeedbackRecorder, OnReceipt, require_memory
from crabpath_retrievers.callbacks.runs import ChainTracker
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import OutcomePolicy

MOST_RUNS = 2_000
KEEP_SECONDS = 86_400.0


class _Handler:
    """Common part of both handlers; LangChain's events are in the classes below."""

    def __init__(
        self,
        source: Any,
        policy: OutcomePolicy | None = None,
        *,
        answer: AnswerParser | None = None,
        on_receipt: OnReceipt | None = None,
        most_runs: int = MOST_RUNS,
        keep_seconds: float = KEEP_SECONDS,
    ) -> None:
        """Record feedback in the memory of ``source``.

        Args:
            source: A ``CrabPathRetriever``, or its memory.
            policy: Which events count as feedback; None for ``OutcomePolicy()``.
            answer: Finds the answer in the output of a chain; None handles common formats.
            on_receipt: Called with every feedback and its receipt, in the recording thread.
            most_runs: Largest number of chains to remember, at least 1.
            keep_seconds: How long to remember a chain, in seconds, above 0.

        Raises:
            InvalidInputError: An argument is not valid.
        """
        super().__init__()
        recorder = FeedbackRecorder(require_memory(source), on_receipt)
        runs = ChainTracker(most_runs, keep_seconds)
        self.policy = policy or OutcomePolicy()
        self._listener = ChainListener(recorder, self.policy, runs, answer)

    def correct(
        self,
        text: str,
        *,
        run_id: str | UUID | None = None,
        thread_id: str | None = None,
        **fields: Any,
    ) -> list[Receipt]:
        """Correct an answer: the correction becomes a note, and the used documents are blamed.

        Args:
            text: The right answer.
            run_id: Run id of the chain or of the retriever, or a turn id.
            thread_id: Instead of ``run_id``: the last run of this thread.
            fields: ``used``, ``unused``, ``answer``, ``source``, ``namespace`` and ``user`` of
                :class:`~crabpath_retrievers.outcome.Feedback`. Give ``namespace`` where ids come
                from users: feedback for turns of other namespaces is then refused.

        Returns:
            One receipt for every turn of the run.

        Raises:
            InvalidInputError: An argument is not valid.
            NotFoundError: The run is not known.
            StoreError: The feedback could not be stored.
        """
        return self._record_statement(
            {"correction": text, "run_id": run_id, "thread_id": thread_id, **fields}
        )

    def score(
        self,
        score: float,
        *,
        key: str = "score",
        run_id: str | UUID | None = None,
        thread_id: str | None = None,
        **fields: Any,
    ) -> list[Receipt]:
        """Score a run in [0, 1]; otherwise as :meth:`correct`.

        Args:
            score: 0 for a failure, 1 for a success; True and False are accepted.
            key: Name of the score; repeating a key changes nothing.
            run_id: Run id of the chain or of the retriever, or a turn id.
            thread_id: Instead of ``run_id``: the last run of this thread.
            fields: As for :meth:`correct`; ``source="human"`` for a user's thumb.
        """
        about = {"run_id": run_id, "thread_id": thread_id, **fields}
        return self._record_statement({"score": score, "key": key, **about})

    async def acorrect(self, text: str, **fields: Any) -> list[Receipt]:
        """As :meth:`correct`, off the event loop."""
        return await asyncio.to_thread(self.correct, text, **fields)

    async def ascore(self, score: float, **fields: Any) -> list[Receipt]:
        """As :meth:`score`, off the event loop."""
        return await asyncio.to_thread(self.score, score, **fields)

    def on_interrupt(self, event: Any) -> None:
        """Handle a graph that waits at a breakpoint.

        LangGraph calls it if its ``GraphCallbackHandler`` is a base class of the handler, too.
        """
        self._listener.runs.pause(str(event.run_id))

    def _record_statement(self, data: dict[str, Any]) -> list[Receipt]:
        return self._record(self._listener.feedback_about(data))

    def _record(self, due: Sequence[Feedback]) -> list[Receipt]:
        return self._listener.recorder.record(due)


def _make_handler(event: Callable[..., list[Feedback]]) -> Any:
    """Make a callback that passes an event to the listener and records its feedback."""

    def handle(self: _Handler, *given: Any, **about: Any) -> None:
        self._record(event(self._listener, *given, **about))

    return handle


def _make_async_handler(event: Callable[..., list[Feedback]]) -> Any:
    """As :func:`_make_handler`, off the event loop wherever the store is used."""

    async def handle(self: _Handler, *given: Any, **about: Any) -> None:
        due = event(self._listener, *given, **about)
        if due:
            await asyncio.to_thread(self._record, due)

    return handle


class CrabPathCallbackHandler(_Handler, BaseCallbackHandler):
    """Records feedback from the events of chains that use a ``CrabPathRetriever``.

    ::

        handler = CrabPathCallbackHandler(retriever)
        chain.invoke(question, {"callbacks": [handler], "run_id": run_id})
        handler.correct("It was Paris.", run_id=run_id)

    Works in sync and async chains, where LangChain calls it in threads, and in LangGraph. Safe to
    share between threads. It never breaks a chain: LangChain logs its errors. The
    :class:`OutcomePolicy` defines which events count.
    """

    on_chain_start = on_tool_start = _make_handler(ChainListener.on_start)
    on_retriever_start = on_llm_start = on_chat_model_start = _make_handler(ChainListener.on_start)
    on_chain_end = on_tool_end = _make_handler(ChainListener.on_end)
    on_retriever_end = _make_handler(ChainListener.on_retriever_end)
    on_llm_end = _make_handler(ChainListener.on_llm_end)
    on_chain_error = on_retriever_error = on_llm_error = _make_handler(ChainListener.on_error)
    on_tool_error = _make_handler(ChainListener.on_tool_error)
    on_custom_event = _make_handler(ChainListener.on_custom_event)


class AsyncCrabPathCallbackHandler(_Handler, AsyncCallbackHandler):
    """As :class:`CrabPathCallbackHandler`, for async chains only, without a thread per event."""

    on_chain_start = on_tool_start = _make_async_handler(ChainListener.on_start)
    on_retriever_start = on_llm_start = on_chat_model_start = _make_async_handler(
        ChainListener.on_start
    )
    on_chain_end = on_tool_end = _make_async_handler(ChainListener.on_end)
    on_retriever_end = _make_async_handler(ChainListener.on_retriever_end)
    on_llm_end = _make_async_handler(ChainListener.on_llm_end)
    on_chain_error = on_retriever_error = on_llm_error = _make_async_handler(ChainListener.on_error)
    on_tool_error = _make_async_handler(ChainListener.on_tool_error)

    async def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **_: Any) -> None:
        """Handle feedback that a chain sends for itself or, after a look-up, for another run."""
        due = await asyncio.to_thread(self._listener.on_custom_event, name, data, run_id=run_id)
        await asyncio.to_thread(self._record, due)
