"""Going back: feedback that is undone, snapshots that are taken and restored."""

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from crabpath_retrievers.changes import Change
from crabpath_retrievers.changes.history import (
    CancelFeedback,
    DeleteSnapshot,
    RestoreSnapshot,
    TakeSnapshot,
    UndoFeedback,
)
from crabpath_retrievers.changes.notes import UndoNotes
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.feedback.meeting import repeated
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.mind import Mind
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of, text_of
from crabpath_retrievers.rerank.posterior import Posterior
from crabpath_retrievers.seeds.episodes import Episodes
from crabpath_retrievers.seeds.notes import Notes
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.history_queries import Giver, Lesson, Snapshot
from crabpath_retrievers.storage.learned_queries import Learned

_UNDONE = "it was undone: give feedback under another id to learn from its turns again"
_CANCELLED = "it was undone before it was learned from"
_AGAIN = "it was undone before"
_NEVER = "it was refused, so nothing was learned from it"
_GONE = "what it taught is not known any more: it is older, or a snapshot was restored since"
_LONGEST_NAME = 200


@dataclass(frozen=True, slots=True)
class Undoing:
    """Takes back what was learned, from the graph store alone.

    Attributes:
        store: Where it was learned.
        episodes, notes: Whose vectors go with them; None beside the process that has the index.
        prior: What the ranker knows before any feedback.
    """

    store: GraphStore
    episodes: Episodes | None
    notes: Notes | None
    prior: Posterior

    def undo_all(
        self, user: str | None, source: str | None, namespace: str | None
    ) -> list[Receipt]:
        """Take back all that one giver taught, the latest first; see :meth:`CrabPath.undo`."""
        given = Giver.of(user=user, source=source, namespace=namespace)
        if given.user is None and given.source is None:
            msg = "say whose feedback to undo: give user, source or both"
            raise InvalidInputError(msg)
        return [self._undone(name, given.namespace) for name in self.store.history.standing(given)]

    def undo(self, feedback_id: str | None, turn_id: str | None, namespace: str | None) -> Receipt:
        """Take back all that one feedback taught; see :meth:`CrabPath.undo`."""
        if (feedback_id is None) == (turn_id is None):
            msg = "give exactly one of feedback_id and turn_id to undo"
            raise InvalidInputError(msg)
        scope = None if namespace is None else namespace_of(namespace)
        if feedback_id is None:
            feedback_id = self._about(text_of("turn_id", turn_id), scope)
        return self._undone(text_of("feedback_id", feedback_id), scope)

    def _about(self, turn_id: str, namespace: str | None) -> str:
        """The feedback that consumed a turn."""
        turn = self.store.turns.get(turn_id, namespace=namespace)
        feedback_id = self.store.history.consumer(turn.id)
        if feedback_id is None:
            msg = f"nothing was learned from turn {turn_id!r}: there is nothing to undo"
            raise NotFoundError(msg)
        return feedback_id

    @repeated
    def _undone(self, feedback_id: str, namespace: str | None) -> Receipt:
        with self.store.reading():
            stands = self.store.history.feedback(feedback_id)
            if stands is None or namespace not in {None, stands.namespace}:
                where = "here" if namespace is None else f"in namespace {namespace!r}"
                msg = f"no feedback {feedback_id!r} is kept {where}: check the id and the namespace"
                raise NotFoundError(msg)
            if stands.status in {"undone", "refused"}:
                note = _AGAIN if stands.status == "undone" else _NEVER
                return Receipt(feedback_id, stands.status, note)
            if stands.status == "waiting":
                self.store.apply([CancelFeedback(feedback_id, _CANCELLED)])
                return Receipt(feedback_id, "undone", _CANCELLED)
            namespace = str(stands.namespace)
            known = self.store.learned.learned(namespace)
            lesson = self.store.history.lesson(feedback_id)
            touched = self._touched(namespace, lesson)
        if lesson is None:
            return Receipt(feedback_id, "applied", _GONE)
        self.store.apply(self._back(feedback_id, namespace, known, lesson))
        self._clear(namespace, touched, [note for note, _ in lesson.taught.told])
        return Receipt(feedback_id, "undone")

    def _back(
        self, feedback_id: str, namespace: str, known: Learned, lesson: Lesson
    ) -> list[Change]:
        """What takes feedback back."""
        taught = lesson.taught
        mind = Mind.from_json(known.mind, self.prior).without(taught, lesson.since)
        undo = UndoFeedback(namespace, feedback_id, known.version, mind.to_json(), _UNDONE)
        if not (taught.told or taught.used):
            return [undo]
        return [undo, UndoNotes(namespace, taught.told, taught.used)]

    def _touched(self, namespace: str, lesson: Lesson | None) -> Sequence[str]:
        """The episodes that may go with a lesson; a note takes along whatever recalls it."""
        if lesson is None or not lesson.taught.told:
            return () if lesson is None else lesson.episodes
        return self.store.learned.episode_ids(self.store.walk.clock(namespace).key)

    def _clear(self, namespace: str, episodes: Sequence[str], notes: Sequence[str]) -> None:
        """Delete the vectors of those episodes and notes that are gone."""
        key = self.store.walk.clock(namespace).key
        if self.episodes is not None:
            left = set(self.store.learned.episode_ids(key))
            self.episodes.delete(key, [episode for episode in episodes if episode not in left])
        told = {fact.id for fact in self.store.notes.facts(notes)}
        gone = [note for note in notes if note not in told]
        if self.notes is not None and gone:
            self.notes.remove(key, gone)

    @repeated
    def snapshot(self, namespace: str, name: str | None) -> str:
        """Keep what a namespace knows; see :meth:`CrabPath.snapshot`."""
        space, given = namespace_of(namespace), None if name is None else _name_of(name)
        self.store.settle()  # who has just asked for the first time is known as well
        if not self.store.walk.clock(space).key:
            msg = f"namespace {space!r} has neither asked nor learned anything: check its name"
            raise NotFoundError(msg)
        if given is not None and any(s.name == given for s in self.store.history.snapshots(space)):
            msg = f"namespace {space!r} has a snapshot {given!r}: choose another name or delete it"
            raise InvalidInputError(msg)
        identity = uuid.uuid4().hex
        self.store.apply([TakeSnapshot(space, identity, given)])
        return identity

    def restore(self, snapshot: str, namespace: str | None) -> Snapshot:
        """Let a namespace know what it knew; see :meth:`CrabPath.restore`."""
        kept = self.found(snapshot, namespace)
        key = self.store.walk.clock(kept.namespace).key
        before, told = self.store.learned.episode_ids(key), self.store.notes.ids(key)
        self.store.apply([RestoreSnapshot(kept.id)])
        left = set(self.store.learned.episode_ids(key))
        if self.episodes is not None:
            self.episodes.delete(key, [episode for episode in before if episode not in left])
            self.episodes.catch_up()
        if self.notes is not None:
            self.notes.remove(key, sorted(told - self.store.notes.ids(key)))
        return kept

    def delete(self, snapshot: str, namespace: str | None) -> str:
        """Delete a snapshot; returns its id."""
        kept = self.found(snapshot, namespace)
        self.store.apply([DeleteSnapshot(kept.id)])
        return kept.id

    def found(self, snapshot: str, namespace: str | None) -> Snapshot:
        """A snapshot by its id, or by its name within its namespace.

        Raises:
            NotFoundError: There is none.
        """
        scope = None if namespace is None else namespace_of(namespace)
        snapshot = text_of("snapshot", snapshot)
        known = self.store.history.snapshots(scope)
        named = scope or DEFAULT_NAMESPACE
        for kept in known:
            if kept.id == snapshot or (kept.name == snapshot and kept.namespace == named):
                return kept
        where = "here" if scope is None else f"of namespace {scope!r}"
        msg = f"no snapshot {snapshot!r} {where}: crabpath history list shows them"
        raise NotFoundError(msg)


def _name_of(name: object) -> str:
    text = text_of("the name", name).strip()
    if not 1 <= len(text) <= _LONGEST_NAME:
        msg = f"a snapshot's name must have 1 to {_LONGEST_NAME} characters, not {len(text)}"
        raise InvalidInputError(msg)
    return text
