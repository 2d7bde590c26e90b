"""What was learned, shown in LangSmith as feedback on the run that retrieved."""

import logging
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from crabpath_retrievers.callbacks.langsmith_errors import translated
from crabpath_retrievers.callbacks.langsmith_said import KEY, MARK
from crabpath_retrievers.errors import CrabPathError, NotFoundError
from crabpath_retrievers.feedback.precedence import Learns, kind_of
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.outcome import Feedback

if TYPE_CHECKING:
    from langsmith import Client

_log = logging.getLogger(__name__)


class LangSmithPush:
    """Gives LangSmith what a memory learns: pass it as ``on_receipt`` of a callback handler.

    The score is ``(outcome + 1) / 2``, under the key ``crabpath_outcome``, on the retriever's run.
    It is sent by a thread of its own, so that no chain waits; what cannot be sent is logged.
    """

    def __init__(self, client: "Client", memory: Learns, project: str | None = None) -> None:
        """Send what ``memory`` learned with ``client``.

        Args:
            client: LangSmith's client.
            memory: What has the turns: a :class:`CrabPath`.
            project: Project in which the runs are; LangSmith wants to know it from now on.
        """
        self._client, self._memory, self._project = client, memory, project
        self._project_id: Any = None
        self._sending = ThreadPoolExecutor(1, thread_name_prefix="crabpath-langsmith")

    def __call__(self, feedback: Feedback, receipt: Receipt) -> None:
        """Send feedback that was applied, soon."""
        if receipt.status == "applied":
            self._sending.submit(self._push_logging_errors, feedback)

    def push(self, feedback: Feedback) -> uuid.UUID | None:
        """Send feedback now; the same again changes nothing.

        Returns:
            Its id in LangSmith; None when it came from there.

        Raises:
            NotFoundError: Its turn is not known, or no run of LangChain asked; or there is no such
                project.
            ConfigurationError: LangSmith refuses the key.
            ServiceError: LangSmith failed or cannot be reached.
        """
        if kind_of(feedback.feedback_id) == "langsmith":
            return None
        turn = self._memory.store.turns.get(str(feedback.turn_id), namespace=feedback.namespace)
        if turn.run_id is None:
            msg = f"turn {turn.id!r} was asked by no run of LangChain: there is nothing to tell"
            raise NotFoundError(msg)
        pushed = uuid.uuid5(uuid.NAMESPACE_URL, f"crabpath:{feedback.feedback_id}")
        about: dict[str, Any] = {MARK: feedback.feedback_id, "source": feedback.source}
        if feedback.used is not None:
            about["used"] = list(feedback.used)
        with translated(self._project):
            self._client.create_feedback(
                turn.run_id,
                KEY,
                score=(feedback.outcome + 1.0) / 2.0,
                feedback_id=pushed,
                source_info=about,
                **self._find_project(),
            )
        return pushed

    def close(self) -> None:
        """Wait until everything is sent."""
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
