"""Recording feedback: stored first, then applied, at once, by a thread or by another process."""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from hashlib import sha256
from typing import Literal, NamedTuple

import numpy as np

from crabpath_retrievers.config.outcome_policy import OBSERVED_KINDS
from crabpath_retrievers.core.calls import (
    act_for,
    count_lesson,
    count_receipt,
    describe_memory,
    describe_receipt,
    elapsed_ms,
    limit_waiting,
    look_again,
    trace_operation,
)
from crabpath_retrievers.core.changes import (
    Change,
    ConsumeFeedback,
    KeepFeedback,
)
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback, Receipt
from crabpath_retrievers.core.processes import BackgroundWorker, raise_interruption
from crabpath_retrievers.core.records import (
    ReturnedDocument,
    Turn,
    Vector,
    is_recent_id,
    may_name_turn,
)
from crabpath_retrievers.errors import ConflictError, NotFoundError, StoreError
from crabpath_retrievers.learning.credit import (
    CreditAssignment,
    assign_feedback,
    refuse_frozen,
    refuse_unknown,
)
from crabpath_retrievers.learning.lesson import FeedbackLearner, learn_from_turn
from crabpath_retrievers.learning.rules import complete, parse_event_kind, says_the_same
from crabpath_retrievers.learning.undo import UNDONE, LearningHistory, Reverted, retry_on_conflict
from crabpath_retrievers.rerank import get_gain
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel, NamespaceModels
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.learned import StoredFeedback, UnreadableFeedback
from crabpath_retrievers.storage.read.turns import WAIT_FOR_TURN
from crabpath_retrievers.storage.write.learned import revise_feedback, settle_feedback

_log = logging.getLogger(__name__)
_BATCH = 64  # feedbacks read at once
_MAX_AT_OPEN = 100  # feedbacks applied at open; more would keep the caller waiting
_INDEX_BATCH = 32  # fewest episodes or notes for one write to the index
_CHECK_INTERVAL = 1.0  # seconds between two checks for items to index
_WAIT_FOR_RUN = 0.2  # seconds for which a turn is looked for whose id does not say when it was made
_OTHER_TURN = "its id was given to feedback about another turn: give another id, or none"
_TAKEN_BACK = (
    "the correction that its giver gave before is taken back: give both together to keep it"
)
_REPLACED = "its giver said something else: feedback {!r} replaces it"
_LONGEST_SHARED = 180  # characters of a feedback id that several givers share
Embed = Callable[[str], Vector]
RankStated = Callable[[Store, Feedback], tuple[Feedback, tuple[ReturnedDocument, ...]]]
AfterLesson = Callable[[Store, str, int], object]
"""Receives the store, a namespace that has learned, and of how many feedbacks in all."""


class LearningTally(NamedTuple):
    """Numbers of waiting feedbacks that one run applied, refused, or failed to apply.

    Feedback that repeats earlier feedback of its giver counts as refused.
    """

    applied: int = 0
    refused: int = 0
    failed: int = 0


class Recorder:
    """Stores feedback durably, then has it applied as ``settings.learning.apply`` says.

    A feedback is stored in one transaction and applied in another one, which is read without a lock
    and written if its namespace has learned nothing in the meantime, else computed anew: several
    processes may work on one store.

    Attributes:
        history: Undo and snapshots of what was learned.
        learns_passively: Whether turns teach something without an outcome.
    """

    def __init__(
        self,
        store: Store,
        learner: FeedbackLearner,
        embed: Embed | None = None,
        after_lesson: AfterLesson | None = None,
        rank_stated: RankStated | None = None,
        models: NamespaceModels | None = None,
    ) -> None:
        """Keep the store and ``learner``, and prepare the thread that applies feedback.

        Args:
            embed: Unit vector of a text, shape ``[d]``, for corrections: the process that applies
                them may have no embedder. None if this process has none.
            after_lesson: Called after each applied feedback; None for nothing.
            rank_stated: Finds the chunks of documents that a feedback calls relevant or irrelevant,
                and ranks those that its turn did not return as the turn would have; None if this
                process cannot search.
            models: Their caches follow each lesson; None if this process answers nothing.
        """
        self._models = models
        self._store, self._learner, self._settings = store, learner, learner.settings.learning
        self._embed, self._after_lesson, self._rank_stated = embed, after_lesson, rank_stated
        self._time_limit = learner.settings.time_limit
        self.history = LearningHistory(store, learner.episodes, learner.notes, learner.prior)
        # Threads of one process wait here instead of conflicting in the store.
        self._lock = threading.Lock()
        self._failed: set[int] = set()
        self._worker = BackgroundWorker(self._run_background, "crabpath-learning")
        self._checked_at = time.monotonic()
        self._has_backlog = False
        self.learns_passively = bool(self._settings.passive_rate or self._settings.skip_penalty)

    def record(self, feedback: Feedback, store: Store | None = None) -> Receipt:
        """Store feedback durably and apply it as set; a giver's last feedback about a turn counts.

        Args:
            store: An open transaction of the store, for all reads and writes; None for a
                transaction each.

        Returns:
            The receipt, with what has become of the feedback so far.

        Raises:
            StoreError: The feedback could not be stored.
        """
        store = store or self._store
        with trace_operation("update_memory", store.name) as span:
            store.require_in_place()  # else what is acknowledged would be lost
            receipt = (
                refuse_unknown(feedback)
                if _is_forgotten(store, feedback)
                else self._keep_and_learn(store, feedback)
            )
            if receipt.note is not None:
                _warn(receipt, feedback)
            if time.monotonic() - self._checked_at > _CHECK_INTERVAL:
                self._checked_at = time.monotonic()
                self._worker.wake()  # indexes waiting episodes and notes, if they are enough
            if span.is_recording():
                turn = {} if feedback.turn_id is None else {"crabpath.turn": feedback.turn_id}
                about = {**describe_receipt(receipt), **turn}
                describe_memory(span, store.name, feedback.namespace, about)
        count_receipt(receipt.status)
        return receipt

    def _keep_and_learn(self, store: Store, feedback: Feedback) -> Receipt:
        added: tuple[ReturnedDocument, ...] = ()
        if feedback.stated_documents and self._rank_stated is not None:
            feedback, added = self._rank_stated(store, feedback)
        vector = self._embed_correction(feedback.correction) if feedback.correction else None
        stored, receipt = self._keep(store, KeepFeedback(feedback, vector, time.time(), added))
        if receipt.status != "waiting" or self._settings.apply == "external":
            return receipt
        if self._settings.apply == "background":
            self._worker.wake()
            return receipt
        try:
            if self._has_backlog:
                self._apply_waiting(store, _MAX_AT_OPEN)
                self._has_backlog = False
            learned = self._learn(store, stored)
            return learned._replace(repeated=learned.repeated or receipt.repeated)
        except StoreError as error:
            # The feedback is stored, so the host need not repeat it.
            self._has_backlog = True
            note = f"it is stored, but cannot be learned from yet: {error}"
            return Receipt(stored.feedback.feedback_id, "waiting", note)

    def _embed_correction(self, correction: str) -> Vector | None:
        """Embed a correction; None if it is empty, and without an embedder or if that fails."""
        if self._embed is None or not correction.strip():
            return None
        try:
            return np.asarray(self._embed(correction.strip()), dtype=np.float16)  # as stored
        except Exception as error:
            raise_interruption(error)
            _log.warning(
                "a correction cannot be embedded and gets the vector of its question: %s", error
            )
            return None

    @retry_on_conflict
    def _keep(self, store: Store, given: KeepFeedback) -> tuple[StoredFeedback, Receipt]:
        """Store feedback; return it as it is stored now, and its receipt so far.

        Feedback with an id that its giver has used before replaces the earlier content: if the
        content is another one, or if the giver has given other feedback since. Another giver's
        feedback gets an id of its own.
        """
        new, name = given.feedback, given.feedback.feedback_id
        ((sequence, namespace, is_new),) = store.apply([given])
        if is_new:
            content = given.created or 0.0, given.vector, given.added, namespace
            stored = StoredFeedback(sequence, new, "waiting", None, *content)
            return stored, Receipt(name, "waiting")
        stored = store.learned.read_feedback(sequence)
        known = stored.feedback
        if (new.source, new.user) != (known.source, known.user):
            # An id of the host's for a turn: each giver gets one of their own.
            giver = sha256(f"{new.source}\0{new.user}".encode()).hexdigest()[:16]
            own = replace(new, feedback_id=f"{name[:_LONGEST_SHARED]}:{giver}")
            return self._keep(store, replace(given, feedback=own))
        if new.turn_id != known.turn_id and not _are_of_one_turn(store, new, known):
            return stored, Receipt(name, "refused", _OTHER_TURN, "id_taken")
        if stored.status in {"applied", "waiting"}:
            given = complete_kept(given, stored)
        stands = stored.status in {"applied", "waiting"} or stored.note in UNDONE
        if stands and says_the_same(given.feedback, known):
            return stored, Receipt(name, stored.status, stored.note, repeated=True)
        if store.learned.get_state(str(stored.namespace)).frozen:
            return stored, refuse_frozen(name, str(stored.namespace))
        return _revise(store, stored, given), Receipt(name, "waiting")

    def learn_waiting(self, should_stop: Callable[[], bool] = lambda: False) -> LearningTally:
        """Apply all waiting feedback and index all episodes and notes that follow from it.

        Args:
            should_stop: Called before each feedback; True leaves the rest waiting.

        Raises:
            StoreError: A store failed; the remaining feedback stays in the queue.
        """
        tally = self._apply_waiting(self._store, None, should_stop)
        self._index_waiting(1)
        return tally

    @act_for(None)  # others gave it
    def _apply_waiting(
        self, store: Store, limit: int | None, should_stop: Callable[[], bool] = lambda: False
    ) -> LearningTally:
        """Apply waiting feedback, oldest first, at most ``limit`` of it; None applies all.

        ``should_stop`` is called before each feedback; True leaves the rest waiting.
        """
        statuses: list[str] = []
        last = 0
        while True:
            size = _BATCH if limit is None else min(_BATCH, limit - len(statuses))
            batch = store.learned.get_waiting_feedback(size, after=last) if size else []
            late = list[StoredFeedback]()
            for stored in batch:
                if should_stop():
                    batch = []
                    break
                last = stored.sequence
                if isinstance(stored, UnreadableFeedback):
                    # So that no process reads it again.
                    _log.warning("feedback %r is refused: it %s", stored.id, stored.why)
                    store.write(settle_feedback, last, f"it {stored.why}", "refused")
                    statuses.append("refused")
                elif last not in self._failed:
                    receipt = self._try(store, stored)
                    late += [] if receipt else [stored]
                    statuses += [receipt.status] if receipt else []
            statuses += [self._learn(store, stored).status for stored in late]
            if not batch:
                statuses = ["refused" if one == "repeated" else one for one in statuses]
                known = ("applied", "refused", "waiting")
                return LearningTally(*(statuses.count(status) for status in known))

    def _learn(self, store: Store, stored: StoredFeedback) -> Receipt:
        """Apply one stored feedback, unless it was applied before.

        If its turn is not found yet, since another process writes it, the turn is looked for until
        a second after it was made; meanwhile other feedback is applied. An unexpected error leaves
        the feedback in the queue, for another process or release; this process does not try again.

        Raises:
            StoreError: The store failed; the feedback stays in the queue.
        """
        about, find = stored.feedback, store.turns.find
        look = partial(find, str(about.turn_id), namespace=about.namespace, wait=False)
        while (receipt := self._try(store, stored)) is None:
            look_again(look, lambda: _may_come(stored))
        return receipt

    def _try(self, store: Store, stored: StoredFeedback) -> Receipt | None:
        """Apply one stored feedback; None if its turn is not there, and may still come."""
        current, feedback_id = stored, stored.feedback.feedback_id

        @retry_on_conflict
        def apply() -> Receipt | None:
            nonlocal current
            try:
                return self._apply(store, current)
            except ConflictError:
                current = store.learned.read_feedback(stored.sequence)
                if current.status == "waiting":
                    raise
                return Receipt(current.feedback.feedback_id, current.status, current.note)

        try:
            with self._lock, limit_waiting(self._time_limit):
                return apply()
        except StoreError:
            raise
        except NotFoundError:
            return Receipt(feedback_id, "refused", "it was forgotten in the meantime", "forgotten")
        except Exception as error:
            raise_interruption(error)
            self._failed.add(stored.sequence)
            _log.exception("feedback %r cannot be learned from", feedback_id)
            return Receipt(feedback_id, "waiting", f"it cannot be learned from: {error!r}")

    def _apply(self, store: Store, stored: StoredFeedback) -> Receipt | None:
        begun = time.perf_counter()
        with store.open_reader() as read:
            found = assign_feedback(read, self._settings, stored)
            changes, model, note = list[Change](), None, None
            if isinstance(found, CreditAssignment) and not found.replaced:
                changes, model, note = self._learner.learn(read, stored, found)
        if isinstance(found, Receipt):
            awaited = found.reason == "unknown_turn" and _may_come(stored)
            return None if awaited else _settle(store, stored, found)
        if isinstance(found, StoredFeedback):
            given = KeepFeedback(stored.feedback, stored.vector, None, stored.added)
            return self._apply(store, _revise(store, stored, complete_kept(given, found)))
        if found.replaced:
            replaced = found
            reverted, changes, note = store.apply_together(
                lambda together: self._replace(together, stored, replaced)
            )
            for one in reverted:
                self.history.delete_vectors(store, *one)
        else:
            store.apply(changes)
            if self._models is not None and model is not None:
                self._models.follow_lesson(store, found.state.clock, model, changes)
        consumed = changes[0]
        assert isinstance(consumed, ConsumeFeedback)  # noqa: S101
        count_lesson(get_gain(consumed.effects.reliability))
        if self._after_lesson is not None:
            self._after_lesson(store, consumed.namespace, consumed.version + 1)
        message = "learned from feedback %r: %d changes in %.1f ms"
        _log.info(message, stored.feedback.feedback_id, len(changes), elapsed_ms(begun))
        turn = found.turns[0].turn.id
        return Receipt(stored.feedback.feedback_id, "applied", note, turn_id=turn)

    def _replace(
        self, store: Store, stored: StoredFeedback, found: CreditAssignment
    ) -> tuple[list[Reverted], list[Change], str | None]:
        """Undo what a feedback replaces (``found.replaced``) and learn from it, in one transaction.

        Returns:
            Undone feedback whose vectors must be deleted; the changes; and a note for the receipt
            on what is ignored or taken back, None if nothing is.

        Raises:
            ConflictError: The turns have other feedback in the meantime.
        """
        reverted, own = list[Reverted](), stored.feedback.feedback_id
        for name in found.replaced:
            note = None if name == own else _REPLACED.format(own)
            undo, gone = self.history.plan_undo(store, name, found.turns[0].turn.namespace, note)
            store.apply([undo])
            reverted += [] if gone is None else [gone]
        again = assign_feedback(store, self._settings, stored)
        if not isinstance(again, CreditAssignment) or again.replaced:
            msg = f"feedback {own!r} met other feedback: repeat it"
            raise ConflictError(msg)
        changes, _, note = self._learner.learn(store, stored, again)
        store.apply(changes)
        if not stored.feedback.correction and any(notes for _, _, notes in reverted):
            note = "; ".join(filter(None, (note, _TAKEN_BACK)))
        return reverted, changes, note

    @retry_on_conflict
    def learn_without_turn(
        self,
        feedback: Feedback,
        compute: Callable[[Reader], Sequence[Change]],
        first: Sequence[Change] = (),
    ) -> Receipt:
        """Store feedback about no turn and the changes that follow from it, in one transaction.

        Args:
            compute: Computes the changes; called again if the namespace learned in the meantime.
            first: Changes that must be applied before the others can be computed.

        Returns:
            A receipt: ``applied``; ``refused`` if the namespace is frozen; for an id that was
                recorded before, its stored status.
        """
        name, namespace = feedback.feedback_id, feedback.namespace or DEFAULT_NAMESPACE
        stored = self._store.history.get_feedback_state(name, namespace)
        if stored is not None:
            return Receipt(name, stored.status, repeated=True)
        known = self._store.learned.get_state(namespace)
        if known.frozen:
            return refuse_frozen(name, namespace)

        def learn(store: Store) -> None:
            store.apply(first)
            changes = compute(store)
            model = NamespaceModel.from_json(known.model, self._learner.prior).to_json()
            done = (*first, *changes)
            consume = ConsumeFeedback(namespace, name, (), known.version, model, changes=done)
            store.apply([KeepFeedback(feedback), consume, *changes])

        self._store.apply_together(learn)
        return Receipt(name, "applied")

    def learn_passively(self, turn: Turn) -> None:
        """Learn what a turn teaches without an outcome; an error of the store is only logged."""
        try:
            with limit_waiting(self._time_limit):
                learn_from_turn(self._store, self._settings, turn)
        except StoreError as error:
            _log.warning("nothing is learned passively from turn %r: %s", turn.id, error)

    def resume(self) -> None:
        """Apply feedback of an earlier process: the 100 oldest now, or all in the background."""
        try:
            self._index_waiting(1)
            mode = self._settings.apply
            if mode == "inline":
                self._apply_waiting(self._store, _MAX_AT_OPEN)
            elif mode == "background" and self._store.learned.get_waiting_feedback(1):
                self._worker.wake()
        except StoreError as error:
            _log.warning("waiting feedback cannot be applied yet: %s", error)

    def catch_up(self) -> None:
        """Wait for the background thread, and index what was learned if there is a batch of it."""
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
        while self._settings.apply == "background":
            tally = self._apply_waiting(self._store, _INDEX_BATCH)
            if not any(tally):
                break
            self._index_batch()
        self._index_batch()

    def _index_batch(self) -> None:
        # Closing the memory waits for this thread.
        with limit_waiting(self._time_limit):
            self._index_waiting(_INDEX_BATCH)

    def _index_waiting(self, minimum: int) -> None:
        self._learner.episodes.catch_up(minimum)
        self._learner.notes.catch_up(minimum)


def complete_kept(given: KeepFeedback, former: StoredFeedback) -> KeepFeedback:
    """Add the fields of a giver's ``former`` feedback that the ``given`` one lacks.

    See :func:`complete`. A vector and ranked documents go with the fields.
    """
    whole = complete(given.feedback, former.feedback)
    if whole == given.feedback:
        return given
    vector = former.vector if given.feedback.correction is None else given.vector
    ranked = {item.node: item for item in (*former.added, *given.added)}
    return replace(given, feedback=whole, vector=vector, added=tuple(ranked.values()))


def _is_forgotten(store: Store, feedback: Feedback) -> bool:
    """Whether the turn of feedback, and its namespace if named, are gone: no log may hold it."""
    turn, space = feedback.turn_id or "", feedback.namespace
    if not may_name_turn(turn) or is_recent_id(turn, WAIT_FOR_TURN):
        return False
    if space is not None and store.walk.get_clock(space).key:
        return False  # it can be forgotten with its namespace
    until = time.monotonic() + _WAIT_FOR_RUN
    return not look_again(lambda: store.turns.is_known(turn), lambda: time.monotonic() < until)


def _are_of_one_turn(store: Store, *given: Feedback) -> bool:
    """Whether feedbacks name one turn, by its id or by the run id of the host."""
    found = [
        store.turns.find(one.turn_id, namespace=one.namespace, wait=False)
        for one in given
        if one.turn_id is not None
    ]
    ids = {None if logged is None else logged.turn.id for logged in found}
    return len(found) == len(given) and len(ids) == 1 and None not in ids


def _revise(store: Store, stored: StoredFeedback, given: KeepFeedback) -> StoredFeedback:
    """Replace the content of stored feedback by ``given``, and return it; it waits again."""
    store.write(revise_feedback, stored.sequence, stored.feedback, given)
    return store.learned.read_feedback(stored.sequence)


def _settle(store: Store, stored: StoredFeedback, why: Receipt) -> Receipt:
    """Settle feedback as refused or repeated, as the receipt ``why`` says.

    Returns:
        That receipt, with the note that is stored; or the receipt of another process that settled
        the feedback before.

    Raises:
        ConflictError: The feedback was revised in the meantime.
    """
    status: Literal["repeated", "refused"] = "repeated" if why.repeated else "refused"
    store.write(settle_feedback, stored.sequence, str(why.note), status, stored.created)
    with suppress(NotFoundError):  # it is kept where somebody can forget it
        # Another process may have applied or revised it in the meantime.
        known = store.learned.read_feedback(stored.sequence)
        if known.status == "waiting":
            msg = f"feedback {why.feedback_id!r} was revised: read it again"
            raise ConflictError(msg)
        if known.status != status:
            why = Receipt(why.feedback_id, known.status, turn_id=why.turn_id)
        return why._replace(note=known.note)
    return why


def _may_come(stored: StoredFeedback) -> bool:
    """Whether another process may still write the turn that a feedback is about."""
    made_now = is_recent_id(str(stored.feedback.turn_id), WAIT_FOR_TURN)
    return made_now or time.time() - stored.created < _WAIT_FOR_RUN


def _warn(receipt: Receipt, feedback: Feedback) -> None:
    """Warn of feedback that was refused, or of which a part was ignored."""
    # Feedback from observed events is often refused because better feedback came first.
    observed = parse_event_kind(feedback.feedback_id) in OBSERVED_KINDS
    level = logging.DEBUG if observed or receipt.repeated else logging.WARNING
    message = "feedback %r about turn %r is %s: %s"
    _log.log(level, message, receipt.feedback_id, feedback.turn_id, receipt.status, receipt.note)
