"""Recording feedback: stored first, then applied, at once or by a background thread."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from crabpath_retrievers.config.outcome_policy import OBSERVED_KINDS
from crabpath_retrievers.core.changes import KeepFeedback
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.interrupts import raise_interruption
from crabpath_retrievers.core.telemetry import (
    count_receipt,
    describe_memory,
    describe_receipt,
    trace_operation,
)
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.core.turn import ReturnedDocument
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.learning.queue import AfterLesson, FeedbackQueue, LearningTally
from crabpath_retrievers.learning.rules.notes import MAX_NOTE_CHARS
from crabpath_retrievers.learning.supersede import parse_event_kind
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.read.learned import StoredFeedback

_log = logging.getLogger(__name__)
_MAX_AT_OPEN = 100  # feedbacks applied at open; more would keep the caller waiting
_INDEX_BATCH = 32  # fewest episodes or notes for one write to the index
_CHECK_INTERVAL = 1.0  # seconds between two checks for items to index
Embed = Callable[[str], Vector]
RankStated = Callable[[Feedback], tuple[Feedback, tuple[ReturnedDocument, ...]]]
_FOREIGN_ID = "another namespace has used this feedback_id: give another one"
_DIFFERENT_CONTENT = "this id was recorded before with other content, which is kept"


class BackgroundWorker:
    """Runs at most one thread at a time, started with the first request and after every pause."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        """Run ``work`` in a thread called ``name``; its errors are logged."""
        self._work, self._name = work, name
        self._condition = threading.Condition()
        self._requested = False
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Request one more run of the work, after the current one."""
        with self._condition:
            self._requested = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name)
                self._thread.start()

    def drain(self) -> None:
        """Wait until no work is left."""
        # The last reference to a memory may be dropped on this thread, which then closes it.
        if threading.current_thread() is self._thread:
            return
        with self._condition:
            while self._thread is not None:
                self._condition.wait()

    def _run(self) -> None:
        while self._take_request():
            try:
                self._work()
            except StoreError as error:  # the next request tries again
                _log.warning("%s could not finish: %s", self._name, error)
            except Exception:
                _log.warning("%s could not finish", self._name, exc_info=True)

    def _take_request(self) -> bool:
        with self._condition:
            requested, self._requested = self._requested, False
            if not requested:
                self._thread = None
                self._condition.notify_all()
            return requested


class Recorder:
    """Stores feedback durably, then has it applied as ``settings.learning.apply`` says.

    Attributes:
        queue: The feedback that waits, and its application.
    """

    def __init__(
        self,
        store: GraphStore,
        learner: FeedbackLearner,
        embed: Embed | None = None,
        after_lesson: AfterLesson | None = None,
        rank_stated: RankStated | None = None,
    ) -> None:
        """Store feedback in ``store`` and apply it with ``learner``.

        Args:
            store: The store with turns and feedback.
            learner: Computes the changes.
            embed: Unit vector of a text, shape ``[d]``, for corrections: the process that applies
                them may have no embedder. None if this process has none.
            after_lesson: Called after each applied feedback.
            rank_stated: Finds the chunks of documents that a feedback calls relevant or irrelevant,
                and ranks those that its turn did not return as the turn would have; None if this
                process cannot search.
        """
        self._rank_stated = rank_stated
        self._store, self._apply = store, learner.settings.learning.apply
        self._data_source = store.name
        self._episodes, self._notes = learner.episodes, learner.notes
        self._embed = embed
        self._time_limit = learner.settings.time_limit
        self.queue = FeedbackQueue(store, learner, after_lesson)
        self._worker = BackgroundWorker(self._run_background, "crabpath-learning")
        self._checked_at = time.monotonic()
        self._has_backlog = False

    def record(self, feedback: Feedback) -> Receipt:
        """Store feedback durably, then apply it; recording the same id again changes nothing.

        Raises:
            StoreError: The feedback could not be stored.
        """
        with trace_operation("update_memory", self._data_source) as span:
            receipt = self._record(feedback)
            if span.is_recording():
                turn = {} if feedback.turn_id is None else {"crabpath.turn": feedback.turn_id}
                about = {**describe_receipt(receipt), **turn}
                describe_memory(span, self._data_source, feedback.namespace, about)
        count_receipt(receipt.status)
        return receipt

    def _record(self, feedback: Feedback) -> Receipt:
        added: tuple[ReturnedDocument, ...] = ()
        if feedback.stated_documents and self._rank_stated is not None:
            feedback, added = self._rank_stated(feedback)
        vector, now = self._embed_correction(feedback), time.time()
        (sequence,) = self._store.apply([KeepFeedback(feedback, vector, now, added)])
        if sequence is None:  # recorded before
            if self._belongs_to_another(feedback):
                return Receipt(feedback.feedback_id, "refused", _FOREIGN_ID)
            stored = self._store.learned.get_feedback(feedback.feedback_id)
        else:
            stored = StoredFeedback(sequence, feedback, "waiting", None, now, vector, added)
        receipt = Receipt(feedback.feedback_id, stored.status, stored.note)
        if receipt.status == "waiting" and self._apply == "inline":
            receipt = self._learn(stored)
        elif receipt.status == "waiting" and self._apply == "background":
            self._worker.wake()
        if stored.feedback != feedback:
            note = "; ".join(filter(None, (_DIFFERENT_CONTENT, receipt.note)))
            receipt = receipt._replace(note=note)
        if receipt.note is not None:
            _warn(receipt, feedback)
        if time.monotonic() - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = time.monotonic()
            self._worker.wake()  # indexes waiting episodes and notes, if they are enough
        return receipt

    def _belongs_to_another(self, feedback: Feedback) -> bool:
        """Whether another namespace has recorded feedback with this id."""
        state = self._store.history.get_feedback_state(feedback.feedback_id)
        owner = None if state is None else state.namespace
        return None not in (owner, feedback.namespace) and owner != feedback.namespace

    def _embed_correction(self, feedback: Feedback) -> Vector | None:
        """Embed a correction; feedback is stored even if this fails."""
        text = (feedback.correction or "").strip()
        if not text or self._embed is None:
            return None
        try:
            return np.asarray(self._embed(text[:MAX_NOTE_CHARS]), dtype=np.float16)  # as stored
        except Exception as error:
            raise_interruption(error)
            _log.warning(
                "a correction cannot be embedded and gets the vector of its question: %s", error
            )
            return None

    def _learn(self, stored: StoredFeedback) -> Receipt:
        try:
            if self._has_backlog:
                self.queue.learn_waiting(_MAX_AT_OPEN)
                self._has_backlog = False
            return self.queue.learn(stored)
        except StoreError as error:
            # The feedback is stored, so the host need not repeat it.
            self._has_backlog = True
            note = f"it is stored, but cannot be learned from yet: {error}"
            return Receipt(stored.feedback.feedback_id, "waiting", note)

    def resume(self) -> None:
        """Apply feedback of an earlier process: the 100 oldest now, or all in the background."""
        try:
            self._index_waiting(1)
            if self._apply == "inline":
                self.queue.learn_waiting(_MAX_AT_OPEN)
            elif self._apply == "background" and self._store.learned.get_waiting_feedback(1):
                self._worker.wake()
        except StoreError as error:
            _log.warning("waiting feedback cannot be applied yet: %s", error)

    def learn_waiting(self) -> LearningTally:
        """Apply all waiting feedback and index all episodes and notes that follow from it.

        Raises:
            StoreError: A store failed; the remaining feedback stays in the queue.
        """
        tally = self.queue.learn_waiting()
        self._index_waiting(1)
        return tally

    def close(self) -> None:
        """Wait for the background thread; with ``background`` no feedback is left waiting."""
        # Turns first: if the database does not answer, the thread times out meanwhile.
        with limit_waiting(self._time_limit), suppress(StoreError):
            self._store.flush()
        self._worker.drain()

    def _run_background(self) -> None:
        # In batches: if feedback arrives faster than it is applied, the queue never empties.
        while self._apply == "background" and any(self.queue.learn_waiting(_INDEX_BATCH)):
            self._index_batch()
        self._index_batch()

    def _index_batch(self) -> None:
        # Closing the memory waits for this thread.
        with limit_waiting(self._time_limit):
            self._index_waiting(_INDEX_BATCH)

    def _index_waiting(self, minimum: int) -> None:
        self._episodes.catch_up(minimum)
        self._notes.catch_up(minimum)


def _warn(receipt: Receipt, feedback: Feedback) -> None:
    """Warn of feedback that was refused, or of which a part was ignored."""
    # Feedback from observed events is often refused because better feedback came first.
    level = (
        logging.DEBUG
        if parse_event_kind(feedback.feedback_id) in OBSERVED_KINDS
        else logging.WARNING
    )
    message = "feedback %r about turn %r is %s: %s"
    _log.log(level, message, receipt.feedback_id, feedback.turn_id, receipt.status, receipt.note)
