"""What a memory has learned, taken back: one feedback, or all since a snapshot."""

from typing import Any, overload

from crabpath_retrievers.changes import Freeze
from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, RewardSource
from crabpath_retrievers.query import namespace_of, require_count
from crabpath_retrievers.storage.history_queries import FeedbackRecord, Giver, Snapshot
from crabpath_retrievers.time_limit import limited, within_limit


class History(Parts):
    """How a memory goes back, and how its learning is stopped."""

    @overload
    def undo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt: ...
    @overload
    def undo(
        self,
        *,
        user: str,
        source: RewardSource | None = None,
        namespace: str | None = None,
    ) -> list[Receipt]: ...
    @overload
    def undo(
        self,
        *,
        user: None = None,
        source: RewardSource,
        namespace: str | None = None,
    ) -> list[Receipt]: ...
    def undo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        user: str | None = None,
        source: RewardSource | None = None,
        namespace: str | None = None,
    ) -> Receipt | list[Receipt]:
        """Take back all that one feedback, or all feedback of one giver, taught.

        The turns are released for other feedback.

        Right after it was learned the namespace knows again exactly what it knew before. What was
        learned in between stays: of weights what decay has left of the moves is subtracted, of
        the ranker the evidence. Works on frozen namespaces too. A note that the feedback made goes
        with it, unless it was also told by :meth:`correct` or other feedback that stands; a note
        on probation that it used counts one use less, its term stays.

        Args:
            feedback_id: The feedback.
            turn_id: Instead: a turn, or the host's run, that it was about. Feedback about several
                turns is taken back as a whole.
            user: Instead: who gave it. All of theirs is taken back, the latest first, each in a
                transaction of its own; so are the notes that their corrections made.
            source: Instead, or with ``user``: ``human``, ``self``, ``harvested`` or ``teacher``.
            namespace: Only feedback of this namespace is found; None looks in all.

        Returns:
            A receipt, for ``user`` and ``source`` a list of them. ``undone``; feedback that waits
            is never learned from. Otherwise nothing was changed, and ``note`` says why: it was
            undone before, it was refused, or what it taught is not known any more (``applied``).

        Raises:
            NotFoundError: There is no such feedback or turn, or nothing was learned from it.
            InvalidInputError: Not exactly one of ``feedback_id``, ``turn_id`` and a giver was
                given, or one of them cannot be used.
        """
        self._require_open()
        if user is None and source is None:
            with limited(self.settings.time_limit):
                return self._undoing.undo(feedback_id, turn_id, namespace)
        if feedback_id is not None or turn_id is not None:
            msg = "give feedback_id, turn_id, or user and source: one of the three"
            raise InvalidInputError(msg)
        return self._undoing.undo_all(user, source, namespace)

    @overload
    async def aundo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt: ...
    @overload
    async def aundo(
        self,
        *,
        user: str,
        source: RewardSource | None = None,
        namespace: str | None = None,
    ) -> list[Receipt]: ...
    @overload
    async def aundo(
        self,
        *,
        user: None = None,
        source: RewardSource,
        namespace: str | None = None,
    ) -> list[Receipt]: ...
    async def aundo(self, feedback_id: str | None = None, **whose: Any) -> Receipt | list[Receipt]:
        """As :meth:`undo`, off the event loop."""
        undo: Any = self.undo
        found: Receipt | list[Receipt] = await arun(perform(undo, feedback_id, **whose))
        return found

    @within_limit
    def feedback(
        self,
        *,
        user: str | None = None,
        source: RewardSource | None = None,
        namespace: str | None = None,
        limit: int = 100,
    ) -> list[FeedbackRecord]:
        """The feedback that was given, newest first, with where it stands.

        Args:
            user: Who gave it; None for anybody.
            source: ``human``, ``self``, ``harvested`` or ``teacher``; None for all of them.
            namespace: Only that of this namespace; None for all.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.
        """
        self._require_open()
        require_count("limit", limit)
        giver = Giver.of(user=user, source=source, namespace=namespace)
        return self.store.history.given(giver, limit)

    def snapshot(self, namespace: str = DEFAULT_NAMESPACE, name: str | None = None) -> str:
        """Keep all that a namespace has learned as it is now; returns the id of the snapshot.

        Args:
            namespace: Whose.
            name: By which it is found again; unique within the namespace.

        Raises:
            NotFoundError: There is no such namespace.
            InvalidInputError: The name is taken or cannot be used.
        """
        self._require_open()
        return self._undoing.snapshot(namespace, name)

    def snapshots(self, namespace: str | None = DEFAULT_NAMESPACE) -> list[Snapshot]:
        """The snapshots of a namespace, or with None of all, newest first."""
        self._require_open()
        scope = None if namespace is None else namespace_of(namespace)
        return self.store.history.snapshots(scope)

    def restore(self, snapshot: str, *, namespace: str | None = None) -> Snapshot:
        """Let a namespace know what it knew when a snapshot was taken, and nothing else.

        Documents stay as they are; those that are gone since are passed over. Feedback that came
        later stays applied and its turns consumed, so that it is not learned from again. Feedback
        that was undone since counts again, and cannot be undone a second time. Turns and the
        switch of :meth:`freeze` stay as they are. Notes that came later go, and those that went
        with undone feedback since come back; what :meth:`forget` deleted stays deleted.

        Args:
            snapshot: Its id, or its name within ``namespace``.
            namespace: Only snapshots of this namespace are found; with None ids are found in all
                namespaces, names in the default one.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        self._require_open()
        return self._undoing.restore(snapshot, namespace)

    def delete_snapshot(self, snapshot: str, *, namespace: str | None = None) -> None:
        """Delete a snapshot, found as by :meth:`restore`.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        self._require_open()
        self._undoing.delete(snapshot, namespace)

    def freeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a namespace learn nothing more: its feedback is refused from now on.

        Answers go on using what it has learned; :meth:`undo` and :meth:`restore` still work.
        """
        self._freeze(namespace, frozen=True)

    def unfreeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a frozen namespace learn again, from feedback that comes from now on."""
        self._freeze(namespace, frozen=False)

    def _freeze(self, namespace: str, *, frozen: bool) -> None:
        self._require_open()
        self.store.apply([Freeze(namespace_of(namespace), frozen=frozen)])
