"""Converts the events of chains to feedback, for the sync and the async handler."""

import logging
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from crabpath_retrievers.callbacks.answers import ParsedOutput, parse_output
from crabpath_retrievers.callbacks.found import find_turns_in_state
from crabpath_retrievers.callbacks.lessons import make_feedback, select_most_specific
from crabpath_retrievers.callbacks.recording import FeedbackRecorder
from crabpath_retrievers.callbacks.runs import ChainRun, ChainTracker
from crabpath_retrievers.callbacks.signals import (
    FEEDBACK_EVENT,
    TARGET_FIELDS,
    make_observed_signals,
    parse_signals,
)
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import (
    PAUSE_EXCEPTIONS,
    EventKind,
    OutcomePolicy,
    collect_exception_names,
)

_log = logging.getLogger(__name__)
_MAX_ANSWER = 20_000  # characters of an answer; attribution reads fewer
AnswerParser = Callable[[Any], str | None]


class ChainListener:
    """Follows chains, and returns the feedback to record.

    Methods ``on_*`` take the arguments of LangChain's events. Only ``on_custom_event`` and
    ``make_response_feedback`` may read the store, and so block.
    """

    def __init__(
        self,
        recorder: FeedbackRecorder,
        policy: OutcomePolicy,
        runs: ChainTracker,
        answer: AnswerParser | None,
    ) -> None:
        """Count events by ``policy``; ``answer`` finds the answer in an unusual output."""
        self.recorder, self.policy, self.runs = recorder, policy, runs
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
        """Handle the start of a run of any kind."""
        parent = None if parent_run_id is None else str(parent_run_id)
        self.runs.start(str(run_id), parent, metadata, given)
        return []

    def on_retriever_end(self, documents: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the end of a retriever."""
        self.runs.add_documents(str(run_id), documents)
        return self._finish(str(run_id), None)

    def on_end(self, output: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the end of a chain or a tool."""
        return self._finish(str(run_id), output)

    def on_llm_end(self, output: Any, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the end of a model; a streamed answer is complete."""
        return self._finish(str(run_id), output, streamed=True)

    def on_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the error of a run, except a tool."""
        return self._fail(str(run_id), error, "chain_error")

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **_: Any) -> list[Feedback]:
        """Handle the error of a tool, whether or not the chain fails, too."""
        return self._fail(str(run_id), error, "tool_error")

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
            if not self.runs.add_signals(str(run_id), signal):
                raise self._make_not_found(str(run_id))
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
            self.runs.find_ended(name)
            or self.runs.find_open(name)
            or self.recorder.find_stored_turn(name)
        )

    def _finish(self, run_id: str, output: Any, *, streamed: bool = False) -> list[Feedback]:
        root = self.runs.end(run_id, streamed=streamed)
        if root is None:
            return []
        root.answered = self._parse_output(output)
        if not root.turns and (root.resumed or any(s.explicit for s in root.signals)):
            # Another process may have retrieved: the state of the graph has the documents.
            root.turns = {turn.turn_id: turn for turn in find_turns_in_state(output)}
        if root.answered.text:
            root.signals += make_observed_signals("silent_success", self.policy)
        return self._collect_feedback(root, counts=root.complete)

    def _fail(self, run_id: str, error: BaseException, kind: EventKind) -> list[Feedback]:
        names = collect_exception_names(type(error))
        if names & PAUSE_EXCEPTIONS:
            self.runs.pause(run_id)
        counts = self.policy.is_about_documents(names)
        if counts and kind == "tool_error":
            self.runs.add_signals(run_id, *make_observed_signals(kind, self.policy))
        root = self.runs.end(run_id)
        if root is None:
            return []
        if counts and kind == "chain_error":
            root.signals += make_observed_signals(kind, self.policy)
        return self._collect_feedback(root, counts=counts)

    def _collect_feedback(self, root: ChainRun, *, counts: bool) -> list[Feedback]:
        """Make the feedback for a chain that ended.

        Explicit signals always count, observed ones only if the chain is complete.
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
            f"and threads only for {self.runs.retention}"
        )
        return NotFoundError(msg)
