"""The queue of stored feedback: applied one at a time, each in one transaction, each once."""

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from copy import copy
from dataclasses import replace
from functools import partial
from typing import Literal, NamedTuple

from crabpath_retrievers.core.changes import (
    Change,
    ConsumeFeedback,
    KeepFeedback,
    ReviseFeedback,
    SettleFeedback,
)
from crabpath_retrievers.core.driver import look_again
from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.core.interrupts import raise_interruption
from crabpath_retrievers.core.progress import elapsed_ms
from crabpath_retrievers.core.reliability import get_gain
from crabpath_retrievers.core.telemetry import count_lesson
from crabpath_retrievers.core.time_limit import limit_waiting
from crabpath_retrievers.core.turn import is_recent_id
from crabpath_retrievers.errors import ConflictError, NotFoundError, StoreError
from crabpath_retrievers.learning.credit import (
    Completion,
    CreditAssignment,
    Refusal,
    assign_feedback,
)
from crabpath_retrievers.learning.learner import FeedbackLearner
from crabpath_retrievers.learning.note_changes import NoteLearner
from crabpath_retrievers.learning.rules.verdicts import complete
from crabpath_retrievers.learning.undo import LearningHistory, Reverted, retry_on_conflict
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.learned import StoredFeedback, UnreadableFeedback
from crabpath_retrievers.storage.read.turns import WAIT_FOR_TURN

_log = logging.getLogger(__name__)
_BATCH = 64
_REPLACED = "its giver said something else: feedback {!r} replaces it"
WAIT_FOR_RUN = 0.2
"""Seconds: how long a turn is looked for whose id does not say when it was made."""


class LearningTally(NamedTuple):
    """How many waiting feedbacks one pass applied, refused, or failed to apply.

    Those whose giver had said so before count as refused.
    """

    applied: int = 0
    refused: int = 0
    failed: int = 0


AfterLesson = Callable[[Store, str, int], object]
"""Receives the store, a namespace that has learned, and of how many feedbacks in all."""


class FeedbackQueue:
    """Feedback waiting in a store, and its application.

    Several processes may work on one store. If two write to one namespace at the same time, the
    store accepts one of them, and the other tries again.
    """

    def __init__(
        self, store: Store, learner: FeedbackLearner, after_lesson: AfterLesson | None = None
    ) -> None:
        """Apply the feedback waiting in ``store`` with ``learner``.

        Args:
            store: The store with turns and feedback.
            learner: Computes the changes.
            after_lesson: Called after each applied feedback.
        """
        self._store, self._learner, self._after_lesson = store, learner, after_lesson
        self._note_learner = NoteLearner(learner.notes, learner.settings)
        self._history = LearningHistory(store, learner.episodes, learner.notes, learner.prior)
        # Threads of one process wait here instead of conflicting in the store.
        self._lock = threading.Lock()
        self._failed: set[int] = set()

    def within(self, transaction: Store) -> "FeedbackQueue":
        """This queue in an open transaction of its store."""
        own = copy(self)
        history = replace(self._history, store=transaction)
        vars(own).update(_store=transaction, _history=history)
        return own

    def learn(self, stored: StoredFeedback) -> Receipt:
        """Apply one stored feedback, unless it was applied before.

        A turn that is not found yet, since another process writes it, is looked for until a second
        after it was made; meanwhile others learn. An unexpected error leaves the feedback in the
        queue, for another process or release; this one does not try it again.

        Raises:
            StoreError: The store failed; the feedback stays in the queue.
        """
        about, find = stored.feedback, self._store.turns.find
        look = partial(find, str(about.turn_id), namespace=about.namespace, wait=False)
        while (receipt := self._try(stored)) is None:
            look_again(look, lambda: _may_come(stored))
        return receipt

    def _try(self, stored: StoredFeedback) -> Receipt | None:
        """Apply one stored feedback; None while its turn may still come."""
        feedback_id = stored.feedback.feedback_id
        try:
            with self._lock, limit_waiting(self._learner.settings.time_limit):
                return self._apply(stored)
        except StoreError:
            raise
        except NotFoundError:
            return Receipt(feedback_id, "refused", "it was forgotten in the meantime", "forgotten")
        except Exception as error:
            raise_interruption(error)
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
            late = list[StoredFeedback]()
            for stored in batch:
                if should_stop():
                    batch = []
                    break
                last = stored.sequence
                if isinstance(stored, UnreadableFeedback):
                    statuses.append(self._refuse_unreadable(stored))
                elif last not in self._failed:
                    receipt = self._try(stored)
                    late += [] if receipt else [stored]
                    statuses += [receipt.status] if receipt else []
            statuses += [self.learn(stored).status for stored in late]
            if not batch:
                statuses = ["refused" if one == "repeated" else one for one in statuses]
                known = ("applied", "refused", "waiting")
                return LearningTally(*(statuses.count(status) for status in known))

    def _refuse_unreadable(self, stored: UnreadableFeedback) -> str:
        """Refuse feedback that cannot be read, so that no process reads it again."""
        _log.warning("feedback %r is refused: it %s", stored.id, stored.why)
        self._store.apply([SettleFeedback(stored.sequence, f"it {stored.why}", "refused")])
        return "refused"

    def _apply(self, stored: StoredFeedback) -> Receipt | None:
        current = stored

        @retry_on_conflict
        def try_again() -> Receipt | None:
            nonlocal current
            try:
                return self._apply_once(current)
            except ConflictError:
                current = self._store.learned.read_feedback(stored.sequence)
                if current.status == "waiting":
                    raise
                return Receipt(current.feedback.feedback_id, current.status, current.note)

        return try_again()

    def _apply_once(self, stored: StoredFeedback) -> Receipt | None:
        begun, learning = time.perf_counter(), self._learner.settings.learning
        with self._store.open_reader() as read:
            found = assign_feedback(read, learning, stored)
            changes, note = list[Change](), None
            if isinstance(found, CreditAssignment) and not found.replaced:
                changes, note = self._compute_changes(read, stored, found)
        if isinstance(found, Refusal):
            awaited = found.reason == "unknown_turn" and _may_come(stored)
            return None if awaited else self._refuse(stored, found)
        if isinstance(found, Completion):
            return self._apply_once(self._complete(stored, found))
        if found.replaced:
            replaced = found
            reverted, changes, note = self._store.apply_together(
                lambda store: self._replace(store, stored, replaced)
            )
            for one in reverted:
                self._history.delete_vectors(*one)
        else:
            self._store.apply(changes)
        consumed = changes[0]
        assert isinstance(consumed, ConsumeFeedback)  # noqa: S101
        count_lesson(get_gain(consumed.effects.reliability))
        if self._after_lesson is not None:
            self._after_lesson(self._store, consumed.namespace, consumed.version + 1)
        message = "learned from feedback %r: %d changes in %.1f ms"
        _log.info(message, stored.feedback.feedback_id, len(changes), elapsed_ms(begun))
        turn = found.turns[0].turn.id
        return Receipt(stored.feedback.feedback_id, "applied", note, turn_id=turn)

    def _complete(self, stored: StoredFeedback, by: Completion) -> StoredFeedback:
        """Store a feedback with what its giver had said besides."""
        given = KeepFeedback(stored.feedback, stored.vector, None, stored.added)
        whole = complete_kept(given, self._store.learned.get_feedback(*by))
        self._store.apply([ReviseFeedback(stored.sequence, stored.feedback, whole)])
        return self._store.learned.read_feedback(stored.sequence)

    def _refuse(self, stored: StoredFeedback, why: Refusal) -> Receipt:
        status: Literal["repeated", "refused"] = "refused" if why.reason else "repeated"
        self._store.apply([SettleFeedback(stored.sequence, why.note, status, stored.created)])
        name = stored.feedback.feedback_id
        with suppress(NotFoundError):  # it is kept where somebody can forget it
            # Another process may have applied or revised it in the meantime.
            known = self._store.learned.read_feedback(stored.sequence)
            if known.status == "waiting":
                msg = f"feedback {name!r} was revised: read it again"
                raise ConflictError(msg)
            same = known.status == status
            reason, repeated = why.reason if same else None, same and status == "repeated"
            return Receipt(name, known.status, known.note, reason, repeated, why.turn_id)
        return Receipt(name, status, why.note, why.reason, status == "repeated", why.turn_id)

    def _replace(
        self, store: Store, stored: StoredFeedback, found: CreditAssignment
    ) -> tuple[list[Reverted], list[Change], str | None]:
        """Undo what a feedback replaces, and learn from it, within one transaction.

        Returns:
            Whose vectors are to be deleted afterwards; the changes; and which part of the feedback
            is ignored, if any is.

        Raises:
            ConflictError: The turns have other feedback in the meantime.
        """
        reverted, own = list[Reverted](), stored.feedback.feedback_id
        for name in found.replaced:
            note = None if name == own else _REPLACED.format(own)
            namespace = found.turns[0].turn.namespace
            undo, gone = self._history.plan_undo(store, name, namespace, note)
            store.apply([undo])
            reverted += [] if gone is None else [gone]
        again = assign_feedback(store, self._learner.settings.learning, stored)
        if not isinstance(again, CreditAssignment) or again.replaced:
            msg = f"feedback {own!r} met other feedback: repeat it"
            raise ConflictError(msg)
        changes, note = self._compute_changes(store, stored, again)
        store.apply(changes)
        return reverted, changes, note

    def _compute_changes(
        self, read: Reader, stored: StoredFeedback, assignment: CreditAssignment
    ) -> tuple[list[Change], str | None]:
        """The changes that follow, and which part of the feedback is ignored, if any is."""
        feedback = stored.feedback
        note_changes, lost = list[Change](), None
        if assignment.state.clock.notes or feedback.correction or feedback.answer:
            note_changes, lost = self._note_learner.learn(read, stored, assignment)
        changes, limited = self._learner.learn(
            read, feedback.feedback_id, assignment, note_changes, feedback.user
        )
        consumed, *others = changes
        assert isinstance(consumed, ConsumeFeedback)  # noqa: S101
        changes = [replace(consumed, created=stored.created), *others]
        note = "; ".join(filter(None, (assignment.note, limited, lost))) or None
        if note is not None:
            changes.append(SettleFeedback(stored.sequence, note))
        return changes, note


def complete_kept(given: KeepFeedback, former: StoredFeedback) -> KeepFeedback:
    """Feedback with what stored feedback of its giver says besides, see :func:`complete`."""
    whole = complete(given.feedback, former.feedback)
    if whole == given.feedback:
        return given
    vector = former.vector if given.feedback.correction is None else given.vector
    ranked = {item.node: item for item in (*former.added, *given.added)}
    return replace(given, feedback=whole, vector=vector, added=tuple(ranked.values()))


def _may_come(stored: StoredFeedback) -> bool:
    """Whether another process may still write the turn that a feedback is about."""
    made_now = is_recent_id(str(stored.feedback.turn_id), WAIT_FOR_TURN)
    return made_now or time.time() - stored.created < WAIT_FOR_RUN
