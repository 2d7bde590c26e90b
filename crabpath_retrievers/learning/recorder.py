"""Recording feedback: stored first, then applied, at once or by a background thread."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from hashlib import sha256

import numpy as np

from crabpath_retrievers.config.outcome_policy import OBSERVED_KINDS
from crabpath_retrievers.core.changes import KeepFeedback, ReviseFeedback
from crabpath_retrievers.core.driver import look_again
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.interrupts import raise_interruption
from crabpath_retrievers.core.processes import register_owner
from crabpath_retrievers.core.telemetry import (
    count_receipt,
    describe_memory,
    describe_receipt,
    trace_operation,
)
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.core.turn import ReturnedDocument, Turn, is_recent_id, may_name_turn
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.learning.credit import make_frozen, make_unknown
from crabpath_retrievers.learning.events import parse_event_kind
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.learning.passive import learn_from_turn
from crabpath_retrievers.learning.queue import (
    WAIT_FOR_RUN,
    AfterLesson,
    FeedbackQueue,
    LearningTally,
    complete_kept,
)
from crabpath_retrievers.learning.rules.verdicts import says_the_same
from crabpath_retrievers.learning.undo import UNDONE, retry_on_conflict
from crabpath_retrievers.storage import Store
from crabpath_retrievers.storage.read.learned import StoredFeedback
from crabpath_retrievers.storage.read.turns import WAIT_FOR_TURN

_log = logging.getLogger(__name__)
_MAX_AT_OPEN = 100  # feedbacks applied at open; more would keep the caller waiting
_INDEX_BATCH = 32  # fewest episodes or notes for one write to the index
_CHECK_INTERVAL = 1.0  # seconds between two checks for items to index
Embed = Callable[[str], Vector]
RankStated = Callable[[Store, Feedback], tuple[Feedback, tuple[ReturnedDocument, ...]]]
_OTHER_TURN = "its id was given to feedback about another turn: give another id, or none"
_LONGEST_SHARED = 180  # characters of a feedback id that several givers share


class BackgroundWorker:
    """Runs at most one thread at a time, started with the first request and after every pause."""

    def __init__(self, work: Callable[[], object], name: str) -> None:
        """Run ``work`` in a thread called ``name``; its errors are logged."""
        self._work, self._name = work, name
        self.leave_to_parent()
        register_owner(self)

    def leave_to_parent(self) -> None:
        """Begin without a thread and without requests, as in a forked process."""
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
        store: Store,
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
        self._store, self._settings = store, learner.settings.learning
        self._apply = self._settings.apply
        self._data_source = store.name
        self._episodes, self._notes = learner.episodes, learner.notes
        self._embed = embed
        self._time_limit = learner.settings.time_limit
        self.queue = FeedbackQueue(store, learner, after_lesson)
        self._worker = BackgroundWorker(self._run_background, "crabpath-learning")
        self._checked_at = time.monotonic()
        self._has_backlog = False

    def within(self, transaction: Store) -> "Recorder":
        """This recorder in an open transaction of its store."""
        if transaction is self._store:
            return self
        own = copy(self)
        vars(own).update(_store=transaction, queue=self.queue.within(transaction))
        return own

    def record(self, feedback: Feedback) -> Receipt:
        """Store feedback durably, then apply it; the last word of its giver about a turn counts.

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

    @property
    def learns_passively(self) -> bool:
        """Whether turns teach something without an outcome."""
        return bool(self._settings.passive_rate or self._settings.skip_penalty)

    def learn_passively(self, turn: Turn) -> None:
        """Learn what a turn teaches without an outcome; an answer never fails for it."""
        try:
            with limit_waiting(self._time_limit):
                learn_from_turn(self._store, self._settings, turn)
        except StoreError as error:
            _log.warning("nothing is learned passively from turn %r: %s", turn.id, error)

    def _record(self, feedback: Feedback) -> Receipt:
        self._store.require_in_place()  # else what is acknowledged would be lost
        if self._is_forgotten(feedback):
            why = make_unknown(feedback)
            receipt = Receipt(feedback.feedback_id, "refused", why.note, why.reason)
            _warn(receipt, feedback)
            return receipt
        added: tuple[ReturnedDocument, ...] = ()
        if feedback.stated_documents and self._rank_stated is not None:
            feedback, added = self._rank_stated(self._store, feedback)
        vector = self._embed_correction(feedback)
        stored, receipt = self._keep(KeepFeedback(feedback, vector, time.time(), added))
        if receipt.status == "waiting" and self._apply == "inline":
            receipt = self._learn(stored)
        elif receipt.status == "waiting" and self._apply == "background":
            self._worker.wake()
        if receipt.note is not None:
            _warn(receipt, feedback)
        if time.monotonic() - self._checked_at > _CHECK_INTERVAL:
            self._checked_at = time.monotonic()
            self._worker.wake()  # indexes waiting episodes and notes, if they are enough
        return receipt

    def _is_forgotten(self, feedback: Feedback) -> bool:
        """Whether turn and namespace of feedback are gone: then no log may hold it either."""
        turn, space = feedback.turn_id or "", feedback.namespace
        if not may_name_turn(turn) or is_recent_id(turn, WAIT_FOR_TURN):
            return False
        if space is not None and self._store.walk.get_clock(space).key:
            return False  # it can be forgotten with its namespace
        until = time.monotonic() + WAIT_FOR_RUN
        is_known = partial(self._store.turns.is_known, turn)
        return not look_again(is_known, lambda: time.monotonic() < until)

    def _keep(self, given: KeepFeedback) -> tuple[StoredFeedback, Receipt]:
        """Feedback as it is stored now, and its receipt so far."""
        new, vector, created, added = given.feedback, given.vector, given.created, given.added
        (kept,) = self._store.apply([given])
        if kept.is_new:
            stored = StoredFeedback(
                kept.sequence, new, "waiting", None, created or 0.0, vector, added, kept.namespace
            )
            return stored, Receipt(new.feedback_id, "waiting")
        known = self._store.learned.read_feedback(kept.sequence).feedback
        if (new.source, new.user) == (known.source, known.user):
            return self._recall(kept.sequence, given)
        # An id of the host's for a turn: each giver gets one of their own.
        giver = sha256(f"{new.source}\0{new.user}".encode()).hexdigest()[:16]
        name = f"{new.feedback_id[:_LONGEST_SHARED]}:{giver}"
        return self._keep(replace(given, feedback=replace(new, feedback_id=name)))

    @retry_on_conflict
    def _recall(self, sequence: int, given: KeepFeedback) -> tuple[StoredFeedback, Receipt]:
        """Stored feedback whose id is given again, and its receipt; other content replaces it.

        So does the same content where its giver has said something else in the meantime.
        """
        stored, new = self._store.learned.read_feedback(sequence), given.feedback
        known, name = stored.feedback, new.feedback_id
        if new.turn_id != known.turn_id and not self._is_one_turn(new, known):
            return stored, Receipt(name, "refused", _OTHER_TURN, "id_taken")
        if stored.status in {"applied", "waiting"}:
            given = complete_kept(given, stored)
        stands = stored.status in {"applied", "waiting"} or stored.note in UNDONE
        if stands and says_the_same(given.feedback, known):
            return stored, Receipt(name, stored.status, stored.note, repeated=True)
        if self._store.learned.get_state(str(stored.namespace)).frozen:
            why = make_frozen(str(stored.namespace))
            return stored, Receipt(name, "refused", why.note, why.reason)
        self._store.apply([ReviseFeedback(sequence, known, given)])
        return self._store.learned.read_feedback(sequence), Receipt(name, "waiting")

    def _is_one_turn(self, *given: Feedback) -> bool:
        """Whether feedbacks name one turn, by its id or by the run id of the host."""
        found = [
            self._store.turns.find(one.turn_id, namespace=one.namespace, wait=False)
            for one in given
            if one.turn_id is not None
        ]
        ids = {None if logged is None else logged.turn.id for logged in found}
        return len(found) == len(given) and len(ids) == 1 and None not in ids

    def _embed_correction(self, feedback: Feedback) -> Vector | None:
        """Embed a correction; feedback is stored even if this fails."""
        text = (feedback.correction or "").strip()
        if not text or self._embed is None:
            return None
        try:
            return np.asarray(self._embed(text), dtype=np.float16)  # as stored
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

    def catch_up(self) -> None:
        """Wait for the background thread, and index what was learned if it is enough."""
        self._worker.drain()
        self._index_batch()
        self._checked_at = time.monotonic()

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
    observed = parse_event_kind(feedback.feedback_id) in OBSERVED_KINDS
    level = logging.DEBUG if observed or receipt.repeated else logging.WARNING
    message = "feedback %r about turn %r is %s: %s"
    _log.log(level, message, receipt.feedback_id, feedback.turn_id, receipt.status, receipt.note)
