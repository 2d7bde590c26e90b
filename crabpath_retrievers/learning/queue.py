"""The queue of stored feedback: applied one at a time, each in one transaction, each once."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from crabpath_retrievers.core.changes import Change, ConsumeFeedback, SettleFeedback
from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.core.progress import elapsed_ms
from crabpath_retrievers.core.telemetry import count_lesson
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.errors import ConflictError, NotFoundError, StoreError
from crabpath_retrievers.learning.credit import assign_feedback
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.learning.note_changes import NoteLearner
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import StoredFeedback, UnreadableFeedback

retry_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_attempt(12),
    reraise=True,
)
"""Repeats a transaction that another process has overtaken."""

_log = logging.getLogger(__name__)
_BATCH = 64


class LearningTally(NamedTuple):
    """How many waiting feedbacks one pass applied, refused, or failed to apply."""

    applied: int = 0
    refused: int = 0
    failed: int = 0


AfterLesson = Callable[[str, int], object]
"""Receives a namespace that has learned, and how many feedbacks it has learned from in all."""


class FeedbackQueue:
    """Feedback waiting in a store, and its application.

    Several processes may work on one store. If two write to one namespace at the same time, the
    store accepts one of them, and the other tries again.
    """

    def __init__(
        self, store: GraphStore, learner: FeedbackLearner, after_lesson: AfterLesson | None = None
    ) -> None:
        """Apply the feedback waiting in ``store`` with ``learner``.

        Args:
            store: The store with turns and feedback.
            learner: Computes the changes.
            after_lesson: Called after each applied feedback.
        """
        self._store, self._learner, self._after_lesson = store, learner, after_lesson
        self._note_learner = NoteLearner(store, learner.notes, learner.settings)
        # Threads of one process wait here instead of conflicting in the store.
        self._lock = threading.Lock()
        self._failed: set[int] = set()

    def learn(self, stored: StoredFeedback) -> Receipt:
        """Apply one stored feedback, unless it was applied before.

        An unexpected error leaves it in the queue, for another process or release; this one does
        not try it again.

        Raises:
            StoreError: The store failed; the feedback stays in the queue.
        """
        feedback_id = stored.feedback.feedback_id
        try:
            with self._lock, limit_waiting(self._learner.settings.time_limit):
                return self._apply(stored)
        except StoreError:
            raise
        except NotFoundError:
            return Receipt(feedback_id, "refused", "it was forgotten in the meantime")
        except Exception as error:
            self._failed.add(stored.sequence)
            _log.exception("feedback %r cannot be learned from", feedback_id)
            return Receipt(feedback_id, "waiting", f"it cannot be learned from: {error!r}")

    def learn_waiting(
        self, limit: int | None = None, should_stop: Callable[[], bool] = lambda: False
    ) -> LearningTally:
        """Apply waiting feedback, oldest first.

        Args:
            limit: Most feedbacks to apply; None for all.
            should_stop: Called before each feedback; True leaves the rest waiting.

        Raises:
            StoreError: The store failed; the remaining feedback stays in the queue.
        """
        statuses: list[str] = []
        last = 0
        while True:
            size = _BATCH if limit is None else min(_BATCH, limit - len(statuses))
            batch = self._store.learned.get_waiting_feedback(size, after=last) if size else []
            for stored in batch:
                if should_stop():
                    batch = []
                    break
                last = stored.sequence
                if isinstance(stored, UnreadableFeedback):
                    statuses.append(self._refuse_unreadable(stored))
                elif last not in self._failed:
                    statuses.append(self.learn(stored).status)
            if not batch:
                known = ("applied", "refused", "waiting")
                return LearningTally(*(statuses.count(status) for status in known))

    def _refuse_unreadable(self, stored: UnreadableFeedback) -> str:
        """Refuse feedback that cannot be read, so that no process reads it again."""
        _log.warning("feedback %r is refused: it %s", stored.id, stored.why)
        self._store.apply([SettleFeedback(stored.id, f"it {stored.why}", "refused")])
        return "refused"

    @retry_on_conflict
    def _apply(self, stored: StoredFeedback) -> Receipt:
        feedback_id, begun = stored.feedback.feedback_id, time.perf_counter()
        try:
            with self._store.open_reader():
                changes, receipt = self._compute_changes(stored)
            self._store.apply(changes)
        except ConflictError:
            known = self._read_receipt(feedback_id)
            if known.status == "waiting":
                raise
            return known
        if receipt.status == "refused":
            with suppress(NotFoundError):  # it is kept where somebody can forget it
                # Another process may have applied it in the meantime.
                return self._read_receipt(feedback_id)
            return receipt
        count_lesson()
        consumed = changes[0]
        if self._after_lesson is not None and isinstance(consumed, ConsumeFeedback):
            self._after_lesson(consumed.namespace, consumed.version + 1)
        message = "learned from feedback %r: %d changes in %.1f ms"
        _log.info(message, feedback_id, len(changes), elapsed_ms(begun))
        return receipt

    def _read_receipt(self, feedback_id: str) -> Receipt:
        known = self._store.learned.get_feedback(feedback_id)
        return Receipt(feedback_id, known.status, known.note)

    def _compute_changes(self, stored: StoredFeedback) -> tuple[list[Change], Receipt]:
        feedback = stored.feedback
        feedback_id, learning = feedback.feedback_id, self._learner.settings.learning
        assignment = assign_feedback(self._store, learning, stored)
        if isinstance(assignment, str):
            refusal = SettleFeedback(feedback_id, assignment, "refused")
            return [refusal], Receipt(feedback_id, "refused", assignment)
        note_changes, lost = list[Change](), None
        if assignment.state.clock.notes or feedback.correction or feedback.answer:
            note_changes, lost = self._note_learner.learn(stored, assignment)
        changes, limited = self._learner.learn(feedback_id, assignment, note_changes, feedback.user)
        note = "; ".join(filter(None, (assignment.note, limited, lost))) or None
        if note is not None:
            changes.append(SettleFeedback(feedback_id, note))
        return changes, Receipt(feedback_id, "applied", note)
