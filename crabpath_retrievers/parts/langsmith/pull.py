"""Pulls feedback of people and evaluators from LangSmith: scores and corrections."""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from crabpath_retrievers.config.outcome_policy import OutcomePolicy
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.core.query import parse_text
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.core.text import format_value, to_printable
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
)
from crabpath_retrievers.parts.operation.transfer.replay_file import parse_correction
from crabpath_retrievers.storage import GraphStore

if TYPE_CHECKING:
    from langsmith import Client

_MAX_CHARS = 300
_FORBIDDEN = re.compile(r"\b403\b")  # not the port of an address


class FeedbackSink(Protocol):
    """An object that takes feedback: a memory, or a learner in another process."""

    @property
    def store(self) -> GraphStore:
        """The store with turns and feedback."""

    def record(self, feedback: Feedback) -> Receipt:
        """Record feedback."""


@contextmanager
def translate_errors(project: str | None = None) -> Iterator[None]:
    """Translate errors of LangSmith's client in a block to errors of this library.

    Args:
        project: Name of the requested project, for the message; None if none was requested.

    Raises:
        ConfigurationError: LangSmith refuses the API key.
        NotFoundError: The project does not exist.
        ServiceError: LangSmith failed or cannot be reached.
    """
    try:
        yield
    except CrabPathError:
        raise
    except Exception as error:
        raise _to_error(error, project) from error


def _to_error(error: Exception, project: str | None) -> CrabPathError:
    from langsmith.utils import LangSmithAuthError, LangSmithNotFoundError

    text = " ".join(str(error).split())[:_MAX_CHARS]
    if isinstance(error, LangSmithAuthError) or _FORBIDDEN.search(text):
        return ConfigurationError(
            "LangSmith refuses the API key: set LANGSMITH_API_KEY, and LANGSMITH_WORKSPACE_ID for "
            "a key of an organisation"
        )
    if isinstance(error, LangSmithNotFoundError) and project is not None:
        return NotFoundError(
            f"LangSmith has no project {project!r}: check its name and LANGSMITH_ENDPOINT"
        )
    return ServiceError(
        f"LangSmith cannot be used, check LANGSMITH_ENDPOINT and try again later: {text}"
    )


OUTCOME_KEY = "crabpath_outcome"
"""Key of the feedback that CrabPath pushes to LangSmith."""

OWN_MARK = "crabpath"
"""Key in the source metadata of such feedback."""

_MODELS = {"model", "auto_eval"}


def _is_own(given: Any) -> bool:
    """Whether CrabPath pushed the feedback."""
    metadata = getattr(given.feedback_source, "metadata", None)
    return given.key == OUTCOME_KEY or (isinstance(metadata, Mapping) and OWN_MARK in metadata)


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
        policy: Which keys count, and how much; None for ``OutcomePolicy()``.
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
    """One pull of feedback from a project."""

    def __init__(
        self, client: "Client", memory: FeedbackSink, policy: OutcomePolicy, namespace: str | None
    ) -> None:
        self._client, self._policy, self._namespace = client, policy, namespace
        self._memory, self._store = memory, memory.store
        self._traces: dict[str, list[Turn]] = {}

    def run(self, project: str, since: datetime | None) -> PullReport:
        """Pull the feedback of a project that was created after ``since``; None for all of it."""
        if not self._policy.langsmith.on:
            return PullReport()
        with translate_errors(project):
            self._project = str(self._client.read_project(project_name=project).id)
        found: list[str] = []
        for given in self._list_feedback(_to_utc(since)):
            found += self._learn(given)
        return PullReport(*(found.count(name) for name in PullReport._fields))

    def _list_feedback(self, since: datetime | None) -> Iterator[Any]:
        """Yield the feedback of the project that counts, created after ``since``, oldest first.

        ``since`` None yields all.
        """
        about: dict[str, Any] = {"session": [self._project]}
        if since is not None:
            about["min_created_at"] = since.isoformat()
        keys = [*self._policy.feedback_keys]
        with translate_errors():
            # List everything first: learning may take longer than a page token is valid.
            listed = list(self._client.list_feedback(feedback_key=keys, **about))
        for given in sorted(listed, key=lambda item: str(_to_utc(item.created_at))):
            late = since is None or given.created_at is None or _to_utc(given.created_at) >= since
            if late and given.key in keys and not _is_own(given):
                yield given

    def _learn(self, given: Any) -> list[str]:
        """Record one feedback; return a field name of :class:`PullReport` for each of its turns."""
        outcome = None
        try:
            if given.score is not None:
                outcome = self._policy.langsmith.convert_score(given.score)
            elif any(parse_correction(given.correction)):
                outcome = self._policy.correction.outcome
            about = [] if outcome is None else self._make_feedback(given, outcome)
        except InvalidInputError as error:
            name, why = format_value(given.id), to_printable(str(error))
            _log.warning("LangSmith feedback %s with key %r: %s", name, given.key, why)
            outcome = None
        if outcome is None:
            return ["unusable"]
        return [self._record(*one) for one in about] or ["unmatched"]

    def _make_feedback(self, given: Any, outcome: float) -> list[tuple[Turn, Feedback]]:
        """Make the feedback for the turn of the rated run; without one, for all turns of the trace.

        Documents that a correction names are relevant, returned or not. A turn that returned any of
        them is a success, in which these were used; a turn that returned none failed. Without named
        documents, ``outcome`` counts.
        """
        run, policy = given.run_id, self._policy
        direct = None if run is None else self._store.turns.find(parse_text("run_id", run))
        text, right = parse_correction(given.correction)
        kind = getattr(given.feedback_source, "type", None)
        by_model = isinstance(kind, str) and kind in _MODELS
        made = []
        for turn in [direct.turn] if direct else self._find_trace_turns(given):
            used = [item.node for item in turn.returned if item.node in right]
            if right:
                outcome = abs(policy.langsmith.outcome) if used else policy.correction.outcome
            feedback = Feedback(
                turn.id,
                outcome,
                used=used or None,
                relevant=right or None,
                correction=None if used else text,
                source="teacher" if by_model else policy.langsmith.source,
                feedback_id=f"langsmith:{given.id}" + ("" if direct else f":{turn.id}"),
                namespace=turn.namespace,
            )
            made.append((turn, feedback))
        return made

    def _find_trace_turns(self, given: Any) -> list[Turn]:
        """Find the turns of all retriever runs in the trace of a feedback."""
        trace = given.trace_id or given.run_id
        if trace is None:
            return []
        name = parse_text("trace_id", trace)
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
            yield from (parse_text("run_id", run["id"]) for run in page.get("runs") or ())
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
        receipt = self._memory.record(feedback)
        if receipt.repeated:
            return "known"
        return "refused" if receipt.status == "refused" else "learned"


def _to_utc(when: datetime | None) -> Any:
    if when is None or when.tzinfo is not None:
        return when
    return when.replace(tzinfo=timezone.utc)
