"""What a memory has learned, taken back: one feedback, or all since a snapshot."""

from crabpath_retrievers.changes import Freeze
from crabpath_retrievers.driver import arun, perform
from crabpath_retrievers.feedback.receipt import Receipt
from crabpath_retrievers.memory.parts import Parts
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.storage.history_queries import Snapshot
from crabpath_retrievers.time_limit import within_limit


class History(Parts):
    """How a memory goes back, and how its learning is stopped."""

    @within_limit
    def undo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt:
        """Take back all that one feedback taught, and release its turns for other feedback.

        Right after it was learned the namespace knows again exactly what it knew before. What was
        learned in between stays: of weights what decay has left of the moves is subtracted, of
        the ranker the evidence. Works on frozen namespaces too. A note that the feedback made goes
        with it, unless it was also told by :meth:`correct` or other feedback that stands; a note
        on probation that it used counts one use less, its term stays.

        Args:
            feedback_id: The feedback.
            turn_id: Instead: a turn, or the host's run, that it was about. Feedback about several
                turns is taken back as a whole.
            namespace: Only feedback of this namespace is found; None looks in all.

        Returns:
            ``undone``; feedback that waits is never learned from. Otherwise nothing was changed,
            and ``note`` says why: it was undone before, it was refused, or what it taught is not
            known any more (``applied``).

        Raises:
            NotFoundError: There is no such feedback or turn, or nothing was learned from it.
            InvalidInputError: Both or none of ``feedback_id`` and ``turn_id`` were given.
        """
        self._require_open()
        return self._undoing.undo(feedback_id, turn_id, namespace)

    async def aundo(
        self,
        feedback_id: str | None = None,
        *,
        turn_id: str | None = None,
        namespace: str | None = None,
    ) -> Receipt:
        """As :meth:`undo`, off the event loop."""
        undo = perform(self.undo, feedback_id, turn_id=turn_id, namespace=namespace)
        return await arun(undo)

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
        that was undone since counts again, and cannot be undone a second time. Turns, notes and
        the switch of :meth:`freeze` stay as they are; of later notes, and of those that were
        forgotten since, neither the edges nor the questions that recalled them are known again.

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
