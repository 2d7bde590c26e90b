"""The queue of stored feedback: applied one at a time, each in one transaction, each once.

Retry of a transaction that another process has overtaken.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from crabpath_retrievers.core.changes import (
    Change,
    ConsumeFeedback,
    SettleFeedback,
)
from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.core.progress import elapsed_ms
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.errors import ConflictError, NotFoundError, StoreError
from crabpath_retrievers.learning.credit import CreditAssigner
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
        self._after_lesson = after_lesson
        self._store, self._learner = store, learner
        self._assigner = CreditAssigner(store, learner.settings.learning)
        self._note_learner = NoteLearner(store, learner.notes, learner.settings)
        # Threads of one process wait here instead of conflicting in the store.
        self._lock = threading.Lock()
        self._failed: set[int] = set()

    def learn(self, stored: StoredFeedback) -> Receipt:
        """Apply one stored feedback, unless it was applied before.

        Raises:
            StoreError: The store failed; the feedback stays in the queue.
        """
        with self._lock:
            return self._learn(stored)

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
        while not should_stop():
            size = _BATCH if limit is None else min(_BATCH, limit - len(statuses))
            batch = self._store.learned.get_waiting_feedback(size, after=last) if size else []
            if not batch:
                break
            statuses += self._learn_batch(batch, should_stop)
            last = batch[-1].sequence
        return LearningTally(
            *(statuses.count(status) for status in ("applied", "refused", "waiting"))
        )

    def _learn_batch(
        self, batch: list[StoredFeedback | UnreadableFeedback], should_stop: Callable[[], bool]
    ) -> list[str]:
        statuses: list[str] = []
        for stored in batch:
            if should_stop():
                break
            if isinstance(stored, UnreadableFeedback):
                statuses.append(self._refuse(stored))
            elif stored.sequence not in self._failed:
                with self._lock:
                    statuses.append(self._learn(stored).status)
        return statuses

    def _refuse(self, stored: UnreadableFeedback) -> str:
        """Refuse feedback that cannot be read, so that no process reads it again."""
        _log.warning("feedback %r is refused: it %s", stored.id, stored.why)
        self._store.apply([SettleFeedback(stored.id, f"it {stored.why}", "refused")])
        return "refused"

    def _learn(self, stored: StoredFeedback) -> Receipt:
        """Apply one feedback; an unexpected error must not stop the others."""
        feedback_id = stored.feedback.feedback_id
        try:
            with limit_waiting(self._learner.settings.time_limit):
                return self._apply(stored)
        except StoreError:
            raise
        except NotFoundError:
            return Receipt(feedback_id, "refused", "it was forgotten in the meantime")
        except Exception as error:
            # It stays in the queue for another process or release; this one does not try it again.
            self._failed.add(stored.sequence)
            _log.exception("feedback %r cannot be learned from", feedback_id)
            return Receipt(feedback_id, "waiting", f"it cannot be learned from: {error!r}")

    @retry_on_conflict
    def _apply(self, stored: StoredFeedback) -> Receipt:
        feedback_id, started = stored.feedback.feedback_id, time.perf_counter()
        with self._store.open_reader():
            receipt = self._read_receipt(feedback_id)
            if receipt.status != "waiting":
                return receipt
            changes, receipt = self._compute_changes(stored)
        self._store.apply(changes)
        if receipt.status == "refused":
            # Another process may have applied this feedback in the meantime.
            return self._read_receipt(feedback_id)
        consumed = changes[0]
        if self._after_lesson is not None and isinstance(consumed, ConsumeFeedback):
            self._after_lesson(consumed.namespace, consumed.version + 1)
        if receipt.status == "applied":
            message = "learned from feedback %r: %d changes in %.1f ms"
            _log.info(message, feedback_id, len(changes), elapsed_ms(started))
        return receipt

    def _read_receipt(self, feedback_id: str) -> Receipt:
        receipt = self._store.learned.get_feedback(feedback_id)
        return Receipt(feedback_id, receipt.status, receipt.note)

    def _compute_changes(self, stored: StoredFeedback) -> tuple[list[Change], Receipt]:
        feedback_id = stored.feedback.feedback_id
        assignment = self._assigner.assign(stored)
        note = assignment.note
        if not assignment.turns:
            refusal = SettleFeedback(feedback_id, str(note), "refused")
            return [refusal], Receipt(feedback_id, "refused", note)
        namespace = assignment.turns[0].turn.namespace
        note_changes = self._note_learner.compute_changes(stored, assignment.turns)
        user = stored.feedback.user
        changes = self._learner.compute_changes(
            namespace, feedback_id, assignment.turns, note_changes, user
        )
        last = changes[-1]
        if isinstance(last, SettleFeedback):
            note = "; ".join(filter(None, (note, last.note)))
        if note is not None:
            changes.append(SettleFeedback(feedback_id, note))
        return changes, Receipt(feedback_id, "applied", note)
