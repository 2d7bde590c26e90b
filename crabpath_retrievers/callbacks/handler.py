"""``CrabPathCallbackHandler``: turns the events of LangChain runs into feedback.

More specific feedback replaces less specific feedback.
"""

import logging
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from typing_extensions import Unpack

from crabpath_retrievers.callbacks.runs import (
    FEEDBACK_EVENT,
    TARGET_FIELDS,
    ChainRun,
    ChainTracker,
    make_feedback,
    make_observed_signals,
    parse_signals,
    select_most_specific,
)
from crabpath_retrievers.config.outcome_policy import (
    PAUSE_EXCEPTIONS,
    EventKind,
    OutcomePolicy,
    collect_exception_names,
)
from crabpath_retrievers.core.calls import arun, perform
from crabpath_retrievers.core.feedback import Feedback, Receipt, RewardSource, SignalFields
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.learning.outcomes import (
    ParsedOutput,
    RetrievedTurn,
    find_turns_in_state,
    parse_output,
)

if TYPE_CHECKING:
    from crabpath_retrievers.storage import GraphStore

_log = logging.getLogger(__name__)
OnReceipt = Callable[[Feedback, Receipt], object]


_MAX_ANSWER = 20_000  # characters of an answer; attribution reads fewer
AnswerParser = Callable[[Any], str | None]


class ChainListener:
    """Follows chains, and returns the feedback to record.

    Methods ``on_*`` take the arguments of LangChain's events. Only ``on_custom_event`` and
    ``feedback_about`` may read the store, and so block.
    """

    def __init__(
        self,
        memory: CrabPath,
        policy: OutcomePolicy,
        runs: ChainTracker,
        answer: AnswerParser | None,
    ) -> None:
        """Keep the policy by which events count; ``answer`` finds the answer in an unusual output.

        ``answer`` is None for common formats.
        """
        self.memory, self.policy, self.runs = memory, policy, runs
        self._answer = answer

    def on_start(
        self,
        _serialized: Any,
        given: Any,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> list[Feedback]:
        """Handle the start of a run of any kind, with the input ``given``; no feedback follows."""
        parent = None if parent_run_id is None else str(parent_run_id)
        self.runs.start(str(run_id), parent, metadata, given)
        return []

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the end of a retriever that returned ``documents``.

        Returns:
            The feedback that follows, if a chain ended with the retriever.
        """
        self.runs.add_documents(str(run_id), documents)
        return self.on_end(None, run_id=run_id)

    def on_end(
        self, output: Any, *, run_id: UUID, streamed: bool = False, **_: Any
    ) -> list[Feedback]:
        """Handle the end of a run; ``streamed``: of a model whose streamed answer is complete."""
        root = self.runs.end(str(run_id), streamed=streamed)
        if root is None:
            return []
        root.answered = self._parse_output(output)
        if not root.turns and (root.resumed or any(s.explicit for s in root.signals)):
            # Another process may have retrieved: the state of the graph has the documents.
            root.turns = {turn.turn_id: turn for turn in find_turns_in_state(output)}
        if root.answered.text:
            root.signals += make_observed_signals("silent_success", self.policy)
        return self._collect_feedback(root, counts=root.complete)

    def on_error(
        self, error: BaseException, *, run_id: UUID, kind: EventKind = "chain_error", **_: Any
    ) -> list[Feedback]:
        """Handle the error of a run; that of a tool counts even if the chain goes on."""
        chain = self.runs.find_open(str(run_id))
        if chain is None:
            return []
        names = collect_exception_names(type(error))
        if names & PAUSE_EXCEPTIONS:
            chain.paused = True
        counts = self.policy.is_about_documents(names)
        root = self.runs.end(str(run_id))
        if counts and (root is not None or kind == "tool_error"):
            chain.signals += make_observed_signals(kind, self.policy)
        return [] if root is None else self._collect_feedback(root, counts=counts)

    def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle feedback that a chain sends as a custom event, for itself or a named run.

        Raises:
            InvalidInputError: The data is not valid feedback.
            NotFoundError: The run is not known.
        """
        if name != FEEDBACK_EVENT:
            return []
        if isinstance(data, Mapping) and any(data.get(name) for name in TARGET_FIELDS):
            return self.feedback_about(data)
        for signal in parse_signals(data, self.policy):
            root = self.runs.find_open(str(run_id))
            if root is None:
                raise self._make_not_found(str(run_id))
            root.signals.append(signal)
        return []

    def feedback_about(self, data: Mapping[str, Any]) -> list[Feedback]:
        """Make the feedback about a named run, thread or turn; may read the store.

        Raises:
            InvalidInputError: The data is not valid feedback, or names no single run.
            NotFoundError: The named run, thread or turn is not known.
        """
        signal = select_most_specific(parse_signals(data, self.policy))
        named = {name: str(data[name]) for name in TARGET_FIELDS if data.get(name) is not None}
        if len(named) != 1:
            msg = "say which run is meant: give exactly one of run_id, thread_id and turn_id"
            raise InvalidInputError(msg)
        ((by, name),) = named.items()
        root = self.runs.find_last(name) if by == "thread_id" else self._find_chain(name)
        if root is None or not root.turns:
            raise self._make_not_found(name)
        one = name if by == "turn_id" else None
        return make_feedback(root, signal, one)

    def _find_chain(self, name: str) -> ChainRun | None:
        return (
            self.runs.find_ended(name) or self.runs.find_open(name) or self._find_stored_turn(name)
        )

    def _find_stored_turn(self, name: str) -> ChainRun | None:
        """Find a turn in the local store by its id or its retriever run; None on a server."""
        store: GraphStore | None = self.memory.store
        logged = None if store is None else store.turns.find(to_storable(name))
        if logged is None:
            return None
        turn = logged.turn
        names = tuple((item.node,) for item in turn.returned)
        known = RetrievedTurn(turn.id, turn.namespace, turn.run_id or "", "", names)
        return ChainRun(turn.id, None, 0.0, turns={turn.id: known})

    def _collect_feedback(self, root: ChainRun, *, counts: bool) -> list[Feedback]:
        """Make the feedback for a chain that ended.

        Explicit signals always count, observed ones only with ``counts``.
        """
        explicit = [signal for signal in root.signals if signal.explicit]
        chosen = select_most_specific(root.signals if counts and not root.paused else explicit)
        goes_on = root.paused and chosen is None
        root.signals = [s for s in root.signals if goes_on and s.kind == "tool_error"]
        about = root
        if not root.turns and explicit:
            about = self.runs.find_last(root.thread or "") or root
            if not about.turns:
                _log.warning("run %s retrieved nothing: its feedback is dropped", root.id)
        self.runs.keep(root)
        return make_feedback(about, chosen)

    def _parse_output(self, output: Any) -> ParsedOutput:
        found = parse_output(output)
        text = found.text if self._answer is None else self._answer(output)
        return found._replace(text=text and str(text)[:_MAX_ANSWER])

    def _make_not_found(self, name: str) -> NotFoundError:
        msg = (
            f"no run, thread or turn {name!r} with retrieved documents is known here: give the run "
            "id of the chain or of the retriever, or a document's "
            'metadata["crabpath"]["turn_id"]; turns are found as long as they are kept, chains '
            f"and threads only for {self.runs.retention}; LangChain's own retrievers ignore a "
            "run_id in the config, so give it as an argument: invoke(question, run_id=...)"
        )
        return NotFoundError(msg)


MOST_RUNS = 2_000
KEEP_SECONDS = 86_400.0


class CorrectionFields(SignalFields, total=False):
    """Fields of :class:`~crabpath_retrievers.Feedback` that a correction may have."""

    source: RewardSource


class RunCorrectionFields(CorrectionFields, total=False):
    """Fields of :class:`CorrectionFields`, and the run that is corrected."""

    run_id: str | UUID | None
    thread_id: str | None


class RunScoreFields(RunCorrectionFields, total=False):
    """Fields of a correction of a run, and the name of the score."""

    key: str


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
        """Keep the memory in which feedback is recorded, and how events become feedback.

        Args:
            source: A ``CrabPathRetriever``, or its memory.
            policy: Which events count as feedback; None for ``OutcomePolicy()``.
            answer: Finds the answer in the output of a chain; None handles common formats.
            on_receipt: Called with every feedback and its receipt, in the recording thread; None
                for nothing.
            most_runs: Largest number of chains to remember, at least 1.
            keep_seconds: How long to remember a chain, in seconds, above 0.

        Raises:
            InvalidInputError: An argument is not valid.
        """
        super().__init__()
        memory = getattr(source, "memory", source)
        if not isinstance(memory, CrabPath):
            msg = f"pass a CrabPathRetriever or its memory, not {type(source).__name__}"
            raise InvalidInputError(msg)
        self.policy = policy or OutcomePolicy()
        self._on_receipt = on_receipt
        runs = ChainTracker(most_runs, keep_seconds)
        self._listener = ChainListener(memory, self.policy, runs, answer)

    def correct(
        self,
        text: str,
        *,
        run_id: str | UUID | None = None,
        thread_id: str | None = None,
        **fields: Unpack[CorrectionFields],
    ) -> list[Receipt]:
        """Correct an answer: the correction becomes a note, and the used documents are blamed.

        Args:
            text: The right answer.
            run_id: Run id of the chain or of the retriever, or a turn id; None for that of
                ``thread_id``.
            thread_id: Instead of ``run_id``: the last run of this thread.
            fields: ``source``, and ``used``, ``answer``, ``user`` and the other keys of
                :class:`~crabpath_retrievers.core.feedback.SignalFields`. Give ``namespace`` where
                ids come from users: feedback for turns of other namespaces is then refused.

        Returns:
            One receipt for every turn of the run.

        Raises:
            InvalidInputError: An argument is not valid.
            NotFoundError: The run is not known.
            StoreError: The feedback could not be stored.
        """
        about = {"correction": text, "run_id": run_id, "thread_id": thread_id, **fields}
        return self._record(self._listener.feedback_about(about))

    def score(
        self,
        score: float,
        *,
        key: str = "score",
        run_id: str | UUID | None = None,
        thread_id: str | None = None,
        source: RewardSource = "human",
        **fields: Unpack[SignalFields],
    ) -> list[Receipt]:
        """Score a run in [0, 1]; otherwise as :meth:`correct`.

        Args:
            score: 0 for a failure, 1 for a success; True and False are accepted.
            key: Name of the score; repeating a key changes nothing.
            run_id: Run id of the chain or of the retriever, or a turn id; None for that of
                ``thread_id``.
            thread_id: Instead of ``run_id``: the last run of this thread.
            source: Who gave it: a person, such as a user with a thumb; ``"teacher"`` for an
                evaluator, whose scores weigh less.
            fields: As for :meth:`correct`.

        Example::

            handler.score(0, run_id=run_id)  # thumb down
        """
        about = {"run_id": run_id, "thread_id": thread_id, "source": source, **fields}
        return self._record(self._listener.feedback_about({"score": score, "key": key, **about}))

    async def acorrect(self, text: str, **fields: Unpack[RunCorrectionFields]) -> list[Receipt]:
        """As :meth:`correct`, off the event loop."""
        return await arun(perform(self.correct, text, **fields))

    async def ascore(self, score: float, **fields: Unpack[RunScoreFields]) -> list[Receipt]:
        """As :meth:`score`, off the event loop."""
        return await arun(perform(self.score, score, **fields))

    def on_interrupt(self, event: Any) -> None:
        """Handle a graph that waits at a breakpoint.

        LangGraph calls it if its ``GraphCallbackHandler`` is a base class of the handler, too.
        """
        chain = self._listener.runs.find_open(str(event.run_id))
        if chain is not None:
            chain.paused = True

    def _record(self, due: Iterable[Feedback]) -> list[Receipt]:
        return [self._record_one(feedback) for feedback in due]

    def _record_one(self, feedback: Feedback) -> Receipt:
        receipt = self._listener.memory.record(feedback)
        if self._on_receipt is not None:
            try:
                self._on_receipt(feedback, receipt)
            except Exception:  # it must not lose the feedback that follows
                _log.exception("on_receipt failed for feedback %r", receipt.feedback_id)
        return receipt


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
            await arun(perform(self._record, due))

    return handle


_end_model = partial(ChainListener.on_end, streamed=True)
_fail_tool = partial(ChainListener.on_error, kind="tool_error")


class CrabPathCallbackHandler(_Handler, BaseCallbackHandler):
    """Records feedback from the events of chains that use a ``CrabPathRetriever``.

    ::

        handler = CrabPathCallbackHandler(retriever)
        chain.invoke(question, {"callbacks": [handler], "run_id": run_id})
        handler.correct("The capital is Paris.", run_id=run_id)

    Works in sync and async chains, where LangChain calls it in threads, and in LangGraph. Safe to
    share between threads. It never breaks a chain: LangChain logs its errors. The
    :class:`OutcomePolicy` defines which events count.
    """

    on_chain_start = on_tool_start = _make_handler(ChainListener.on_start)
    on_retriever_start = on_llm_start = on_chat_model_start = _make_handler(ChainListener.on_start)
    on_chain_end = on_tool_end = _make_handler(ChainListener.on_end)
    on_retriever_end = _make_handler(ChainListener.on_retriever_end)
    on_llm_end = _make_handler(_end_model)
    on_chain_error = on_retriever_error = on_llm_error = _make_handler(ChainListener.on_error)
    on_tool_error = _make_handler(_fail_tool)
    on_custom_event = _make_handler(ChainListener.on_custom_event)


class AsyncCrabPathCallbackHandler(_Handler, AsyncCallbackHandler):
    """As :class:`CrabPathCallbackHandler`, for async chains only, without a thread per event."""

    on_chain_start = on_tool_start = _make_async_handler(ChainListener.on_start)
    on_retriever_start = on_llm_start = on_chat_model_start = _make_async_handler(
        ChainListener.on_start
    )
    on_chain_end = on_tool_end = _make_async_handler(ChainListener.on_end)
    on_retriever_end = _make_async_handler(ChainListener.on_retriever_end)
    on_llm_end = _make_async_handler(_end_model)
    on_chain_error = on_retriever_error = on_llm_error = _make_async_handler(ChainListener.on_error)
    on_tool_error = _make_async_handler(_fail_tool)

    async def on_custom_event(self, name: str, data: Any, *, run_id: UUID, **_: Any) -> None:
        """Handle feedback that a chain sends for itself or, after a look-up, for another run.

        ``name`` is that of the event; others than those of CrabPath are ignored. ``data`` are the
        fields.
        """
        due = await arun(perform(self._listener.on_custom_event, name, data, run_id=run_id))
        await arun(perform(self._record, due))
