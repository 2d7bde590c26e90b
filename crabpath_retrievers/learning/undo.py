"""Undo of feedback."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from tenacity import retry, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from crabpath_retrievers.core.feedback import Receipt
from crabpath_retrievers.core.query import parse_namespace, parse_text
from crabpath_retrievers.errors import ConflictError, InvalidInputError, NotFoundError
from crabpath_retrievers.rerank import Posterior
from crabpath_retrievers.retrieval.episodes import EpisodeMemory, NoteMemory
from crabpath_retrievers.retrieval.namespace_model import NamespaceModel
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.read.history import FeedbackFilter
from crabpath_retrievers.storage.read.notes import SaidNote
from crabpath_retrievers.storage.write.history import undo_feedback
from crabpath_retrievers.storage.write.learned import settle_feedback
from crabpath_retrievers.storage.write.notes import undo_said
from crabpath_retrievers.storage.write.transaction import Write

retry_on_conflict = retry(
    retry=retry_if_exception_type(ConflictError),
    wait=wait_random_exponential(multiplier=0.01, max=0.5),
    stop=stop_after_attempt(12),
    reraise=True,
)
"""Repeats a transaction that another process has overtaken."""

_UNDONE = "it was undone: give feedback under another id to learn from its turns again"
_CANCELLED = "it was undone before it was applied"
UNDONE = frozenset({_UNDONE, _CANCELLED})
"""Notes of feedback that was undone, and not replaced by other feedback of its giver."""

UNDONE_NOTE = "it was given without an outcome, as a note"
"""Note of the receipt of a note that was undone."""

_UNDONE_BEFORE = "it was undone before"
_REFUSED = "it was refused, so nothing was learned from it"
_REPEATED = "it only repeated other feedback, so nothing was learned from it"
_NOTHING_TO_UNDO = {"undone": _UNDONE_BEFORE, "refused": _REFUSED, "repeated": _REPEATED}
_UNKNOWN = "its effects are no longer stored: it is too old, or a snapshot was restored since"


Reverted = tuple[int, Sequence[str], Sequence[str]]
"""Owners of the vectors of an undone feedback: key of the namespace, ids of episodes and notes."""


@dataclass(frozen=True, slots=True)
class LearningHistory:
    """Undoes feedback.

    Attributes:
        episodes, notes: Vectors of episodes and notes, deleted with them.
        prior: Posterior of the ranker before any feedback.
    """

    store: Store
    episodes: EpisodeMemory
    notes: NoteMemory
    prior: Posterior

    def undo_all(
        self, user: str | None, source: str | None, token: str | None, namespace: str | None
    ) -> list[Receipt]:
        """Undo all feedback of one user, source or token, the latest first; of several, of all.

        The notes of a token alone, which have neither user nor source, are taken back, too. See
        :meth:`CrabPath.undo`. ``namespace`` None undoes it in all.

        Raises:
            InvalidInputError: None of the three is given.
        """
        criteria = FeedbackFilter.of(user=user, source=source, namespace=namespace, token=token)
        if not any((criteria.user, criteria.source, criteria.token)):
            msg = "undo needs feedback_id, turn_id, user, source or token: give one of them"
            raise InvalidInputError(msg)
        undoable = self.store.history.find_undoable(criteria)
        receipts = [self._undo(name, space) for name, space in undoable]
        if criteria.user is None and criteria.source is None:
            notes = self.store.notes.find_said(criteria.namespace, token=criteria.token)
            receipts += self._undo_notes(notes)
        return receipts

    def undo(self, feedback_id: str | None, turn_id: str | None, namespace: str | None) -> Receipt:
        """Undo one feedback or note by its id, or all about one turn; see :meth:`CrabPath.undo`.

        Raises:
            InvalidInputError: Both or neither are given, or a note is that of feedback.
            NotFoundError: There is no such feedback, note or turn, or nothing was learned from it.
        """
        if (feedback_id is None) == (turn_id is None):
            msg = "give exactly one of feedback_id and turn_id to undo"
            raise InvalidInputError(msg)
        scope = None if namespace is None else parse_namespace(namespace)
        if feedback_id is not None:
            name = parse_text("feedback_id", feedback_id)
            if self.store.history.get_feedback_state(name, scope) is None:
                return self._undo_note(name, scope)
            return self._undo(name, scope)
        turn = self.store.turns.get(parse_text("turn_id", turn_id), namespace=scope)
        given = self.store.turns.get_verdicts([turn.id])
        notes = self.store.notes.find_said(turn.namespace, turn=turn.id)
        if not (given or notes):
            msg = f"nothing was learned from turn {turn_id!r}, or it is undone already"
            raise NotFoundError(msg)
        receipts = [self._undo(known.feedback_id, turn.namespace) for _, known in reversed(given)]
        latest, *others = receipts + self._undo_notes(notes)
        if not others:
            return latest
        if kept := [receipt for receipt in (latest, *others) if receipt.status != "undone"]:
            return kept[0]
        names = ", ".join(repr(receipt.feedback_id) for receipt in others)
        return latest._replace(note=f"what else was said about the same turn is undone: {names}")

    def _undo_note(self, name: str, namespace: str | None) -> Receipt:
        """Undo a note by its id, where no feedback has this id."""
        notes = self.store.notes.find_said(namespace, name=name)
        if not notes:
            where = "here" if namespace is None else f"in namespace {namespace!r}"
            msg = (
                f"no feedback {name!r} is kept {where}, and no note: check the id and the namespace"
            )
            raise NotFoundError(msg)
        if len(notes) > 1:
            msg = f"several namespaces have a note {name!r:.250}: give the namespace"
            raise InvalidInputError(msg)
        (note,) = notes
        if not note.is_direct:
            msg = f"note {name!r} comes from feedback {note.feedback!r}: undo that"
            raise InvalidInputError(msg)
        (receipt,) = self._undo_notes(notes)
        return receipt

    def _undo_notes(self, notes: Sequence[SaidNote]) -> list[Receipt]:
        """Undo notes that were given by themselves."""
        for space, owner in dict.fromkeys((note.namespace, note.owner) for note in notes):
            ids = [note.id for note in notes if note.owner == owner]
            episodes = self.store.learned.episode_ids(owner)
            self.store.write(undo_said, space, ids)
            self.delete_vectors(self.store, owner, episodes, ids)
        return [Receipt(note.id, "undone", UNDONE_NOTE) for note in notes]

    @retry_on_conflict
    def _undo(self, feedback_id: str, namespace: str | None) -> Receipt:
        with self.store.open_reader() as read:
            state = read.history.get_feedback_state(feedback_id, namespace)
            if state is None:  # it was forgotten meanwhile
                msg = f"feedback {feedback_id!r} is not kept any more: leave it out"
                raise NotFoundError(msg)
            if note := _NOTHING_TO_UNDO.get(state.status):
                return Receipt(feedback_id, state.status, note)
            name, waits = str(state.namespace), state.status == "waiting"
            undo, reverted = self.plan_undo(read, feedback_id, name, None if waits else _UNDONE)
        settle = Write(settle_feedback, state.sequence, _CANCELLED, "undone")
        if reverted is None:
            if not waits:
                return Receipt(feedback_id, "applied", _UNKNOWN)
            self.store.apply([settle])
            return Receipt(feedback_id, "undone", _CANCELLED)
        self.store.apply([undo, settle] if waits else [undo])
        self.delete_vectors(self.store, *reverted)
        return Receipt(feedback_id, "undone")

    def plan_undo(
        self, read: Reader, feedback_id: str, namespace: str, note: str | None
    ) -> tuple[Write, Reverted | None]:
        """Plan the undo of a feedback: the change, and the vectors to delete after it.

        ``note`` is the reason that is stored; None leaves the status of the feedback.

        Returns:
            The change; and the vectors, or None if no effects are stored: the change then only
            makes the turns free for other feedback.
        """
        known = read.learned.get_state(namespace)
        key, model = known.clock.key, NamespaceModel.from_json(known.model, self.prior)
        effects, reverted = read.history.get_effects(feedback_id, key), None
        if effects is not None:
            model, notes = model.without(effects.model, effects.later), effects.notes
            # With a note go the episodes that recall it.
            episodes = read.learned.episode_ids(key) if notes else effects.episodes
            reverted = (key, episodes, notes)
        new = known.version, model.to_json(), note
        undo = Write(undo_feedback, namespace, feedback_id, *new)
        return undo, reverted

    def delete_vectors(
        self, store: Store, namespace: int, episodes: Sequence[str], notes: Collection[str]
    ) -> None:
        """Delete the vectors of those ``episodes`` and ``notes`` that a store no longer has."""
        remaining = set(store.learned.episode_ids(namespace))
        gone = [one for one in episodes if one not in remaining]
        self.episodes.delete(store, namespace, gone)
        if notes:
            lost = sorted(set(notes) - store.notes.ids(namespace))
            self.notes.delete(store, namespace, lost)
