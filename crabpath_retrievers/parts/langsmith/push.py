"""Pushes applied feedback to LangSmith, as feedback on the retriever run."""

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.errors import CrabPathError, NotFoundError
from crabpath_retrievers.learning.rules import parse_event_kind
from crabpath_retrievers.parts.langsmith.pull import (
    OUTCOME_KEY,
    OWN_MARK,
    FeedbackSink,
    translate_errors,
)

if TYPE_CHECKING:
    from langsmith import Client

_log = logging.getLogger(__name__)


class LangSmithPush:
    """Pushes applied feedback to LangSmith: pass it as ``on_receipt`` of a callback handler.

    The score is ``(outcome + 1) / 2``, under the key ``crabpath_outcome``, on the retriever's run.
    A separate thread sends it, so that no chain waits; errors are logged.
    """

    def __init__(self, client: "Client", memory: FeedbackSink, project: str | None = None) -> None:
        """Keep the client and the memory whose feedback is sent.

        Args:
            client: LangSmith's client.
            memory: The memory with the turns, a :class:`CrabPath`.
            project: Name of the project of the runs, which newer LangSmith servers require; None
                for none.
        """
        self._client, self._memory, self._project = client, memory, project
        self._project_id: Any = None
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="crabpath-langsmith")

    def __call__(self, feedback: Feedback, receipt: Receipt) -> None:
        """Send feedback in the background, if its receipt says ``applied``."""
        if receipt.status == "applied":
            self._sending.submit(self._push_logging_errors, feedback)

    def push(self, feedback: Feedback) -> uuid.UUID | None:
        """Send feedback now; sending it again changes nothing.

        Returns:
            Its id in LangSmith; None if it came from LangSmith.

        Raises:
            NotFoundError: Its turn or the project does not exist, or the turn has no LangChain
                run.
            ConfigurationError: LangSmith refuses the key.
            ServiceError: LangSmith failed or cannot be reached.
        """
        if parse_event_kind(feedback.feedback_id) == "langsmith":
            return None
        turn = self._memory.store.turns.get(str(feedback.turn_id), namespace=feedback.namespace)
        if turn.run_id is None:
            msg = f"turn {turn.id!r} has no LangChain run: there is no run to attach feedback to"
            raise NotFoundError(msg)
        pushed = uuid.uuid5(uuid.NAMESPACE_URL, f"crabpath:{feedback.feedback_id}")
        about: dict[str, Any] = {OWN_MARK: feedback.feedback_id, "source": feedback.source}
        if feedback.used is not None:
            about["used"] = list(feedback.used)
        with translate_errors(self._project):
            self._client.create_feedback(
                turn.run_id,
                OUTCOME_KEY,
                score=(feedback.outcome + 1.0) / 2.0,
                feedback_id=pushed,
                source_info=about,
                **self._find_project(),
            )
        return pushed

    def close(self) -> None:
        """Wait until all feedback is sent."""
        self._sending.shutdown(wait=True)

    def _find_project(self) -> dict[str, Any]:
        if self._project is None:
            return {}
        if self._project_id is None:
            self._project_id = self._client.read_project(project_name=self._project).id
        return {"session_id": self._project_id}

    def _push_logging_errors(self, feedback: Feedback) -> None:
        try:
            self.push(feedback)
        except CrabPathError as error:
            _log.warning("feedback %r is not in LangSmith: %s", feedback.feedback_id, error)
        except Exception:
            _log.exception("feedback %r is not in LangSmith", feedback.feedback_id)
