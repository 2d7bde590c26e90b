"""Pulls feedback of people and evaluators from LangSmith."""

import json
import logging
from collections.abc import Iterator
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple

from crabpath_retrievers.callbacks.langsmith_errors import translate_errors
from crabpath_retrievers.callbacks.langsmith_said import (
    find_outcome,
    is_own_feedback,
    make_turn_feedback,
)
from crabpath_retrievers.callbacks.recording import FeedbackRecorder
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.precedence import FeedbackSink
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.outcome_policy import OutcomePolicy
from crabpath_retrievers.query import text_of
from crabpath_retrievers.text import format_value, to_printable
from crabpath_retrievers.trajectory import Turn

if TYPE_CHECKING:
    from langsmith import Client

_log = logging.getLogger(__name__)


class PullReport(NamedTuple):
    """Result of a pull: numbers of feedback records.

    Attributes:
        learned: Applied, or waiting to be applied.
        refused: Refused, for example because the turn was learned from before.
        known: Pulled before.
        unmatched: Given to runs in which this memory retrieved nothing.
        unusable: Without a score in [0, 1] and without a correction.
    """

    learned: int = 0
    refused: int = 0
    known: int = 0
    unmatched: int = 0
    unusable: int = 0


def pull(
    client: "Client",
    memory: FeedbackSink,
    project: str,
    *,
    since: datetime | None = None,
    policy: OutcomePolicy | None = None,
    namespace: str | None = None,
) -> PullReport:
    """Record the feedback of a LangSmith project; feedback pulled before changes nothing.

    Feedback counts for the turn of its run, else for all turns of its trace. Feedback that
    CrabPath itself pushed is skipped.

    Args:
        client: LangSmith's client.
        memory: The memory that learns, a :class:`CrabPath`.
        project: Name of the project.
        since: Earliest creation time of the feedback; UTC if it has no time zone. None for all.
        policy: Which keys count, and how much.
        namespace: Only feedback for turns of this namespace is recorded; None for all.

    Raises:
        ConfigurationError: LangSmith refuses the key.
        NotFoundError: The project does not exist.
        ServiceError: LangSmith failed or cannot be reached; feedback recorded until then stays,
            and pulling again continues from there.
        StoreError: The memory failed.
    """
    pulling = _Pull(client, memory, policy or OutcomePolicy(), namespace)
    return pulling.run(project, since)


def make_client() -> "Client":
    """Make a LangSmith client for reading, from LANGSMITH_ENDPOINT and LANGSMITH_API_KEY."""
    import warnings

    from langsmith import Client

    with warnings.catch_warnings():  # without a key, LangSmith itself reports the error
        warnings.simplefilter("ignore")
        return Client(auto_batch_tracing=False)


class _Pull:
    """One pull."""

    def __init__(
        self, client: "Client", memory: FeedbackSink, policy: OutcomePolicy, namespace: str | None
    ) -> None:
        self._client, self._policy, self._namespace = client, policy, namespace
        self._store, self._recorder = memory.store, FeedbackRecorder(memory)
        self._traces: dict[str, list[Turn]] = {}

    def run(self, project: str, since: datetime | None) -> PullReport:
        """Pull the feedback of a project."""
        if not self._policy.langsmith.on:
            return PullReport()
        with translate_errors(project):
            self._project = str(self._client.read_project(project_name=project).id)
        found: list[str] = []
        for given in self._list_feedback(_to_utc(since)):
            found += self._learn(given)
        return PullReport(*(found.count(name) for name in PullReport._fields))

    def _list_feedback(self, since: datetime | None) -> Iterator[Any]:
        """Yield the feedback of the project that counts, oldest first."""
        about: dict[str, Any] = {"session": [self._project]}
        if since is not None:
            about["min_created_at"] = since.isoformat()
        with translate_errors():
            # List everything first: learning may take longer than a page token is valid.
            keys = [*self._policy.feedback_keys]
            listed = list(self._client.list_feedback(feedback_key=keys, **about))
        for given in sorted(listed, key=lambda item: str(_to_utc(item.created_at))):
            late = since is None or given.created_at is None or _to_utc(given.created_at) >= since
            if late and _is_counted(given.key, self._policy) and not is_own_feedback(given):
                yield given

    def _learn(self, given: Any) -> list[str]:
        """Record one feedback, and return a field name of :class:`PullReport` for each of its turns."""
        try:
            outcome = find_outcome(given, self._policy)
            about = [] if outcome is None else self._make_feedback(given, outcome)
        except InvalidInputError as error:
            name, why = format_value(given.id), to_printable(str(error))
            _log.warning("LangSmith feedback %s with key %r: %s", name, given.key, why)
            outcome = None
        if outcome is None:
            return ["unusable"]
        return [self._record(*one) for one in about] or ["unmatched"]

    def _make_feedback(self, given: Any, outcome: float) -> list[tuple[Turn, Feedback]]:
        run = given.run_id
        direct = None if run is None else self._store.turns.find(text_of("run_id", run))
        turns = [direct.turn] if direct else self._find_trace_turns(given)
        return [
            (
                turn,
                make_turn_feedback(
                    given,
                    turn.id,
                    [item.node for item in turn.returned],
                    outcome,
                    self._policy,
                    feedback_id=f"langsmith:{given.id}" + ("" if direct else f":{turn.id}"),
                    namespace=turn.namespace,
                ),
            )
            for turn in turns
        ]

    def _find_trace_turns(self, given: Any) -> list[Turn]:
        """Find the turns of all retriever runs in the trace of a feedback."""
        trace = given.trace_id or given.run_id
        if trace is None:
            return []
        name = text_of("trace_id", trace)
        if name not in self._traces:
            with translate_errors():
                runs = list(self._list_retriever_runs(name))
            logged = (self._store.turns.find(run) for run in runs)
            self._traces[name] = [found.turn for found in logged if found is not None]
        return self._traces[name]

    def _list_retriever_runs(self, trace: str) -> Iterator[str]:
        """Yield the ids of the retriever runs of a trace.

        Uses the HTTP API: ``list_runs`` is deprecated, and its successor is async.
        """
        body = {"session": [self._project], "trace": trace, "run_type": "retriever"}
        query: dict[str, Any] = {**body, "select": ["id"]}
        while True:
            kwargs = {"data": json.dumps(query)}
            path = "/runs/query"
            page = self._client.request_with_retries("POST", path, request_kwargs=kwargs).json()
            yield from (text_of("run_id", run["id"]) for run in page.get("runs") or ())
            cursor = (page.get("cursors") or {}).get("next")
            if not cursor:
                return
            query["cursor"] = cursor

    def _record(self, turn: Turn, feedback: Feedback) -> str:
        if self._namespace not in (None, turn.namespace):
            # Not stored: its id stays free for a pull for the namespace of the turn.
            _log.warning(
                "%s is not feedback for namespace %r", feedback.feedback_id, self._namespace
            )
            return "refused"
        if self._store.history.get_feedback_state(feedback.feedback_id) is not None:
            return "known"
        (receipt,) = self._recorder.record([feedback])
        return "refused" if receipt.status == "refused" else "learned"


def _is_counted(key: object, policy: OutcomePolicy) -> bool:
    return isinstance(key, str) and key in policy.feedback_keys


def _to_utc(when: datetime | None) -> Any:
    if when is None or when.tzinfo is not None:
        return when
    return when.replace(tzinfo=timezone.utc)
