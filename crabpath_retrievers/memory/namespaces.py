"""``memory.namespaces``: lists namespaces, snapshots what they learned, freezes their learning."""

from collections.abc import Sequence

from crabpath_retrievers.core.calls import AsyncView, limit_waiting, off_loop
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE
from crabpath_retrievers.core.query import namespace_of, require_count, texts_of
from crabpath_retrievers.memory.services import Component
from crabpath_retrievers.storage.read.history import Snapshot
from crabpath_retrievers.storage.read.learned import NamespaceRecord
from crabpath_retrievers.storage.write.namespaces import set_frozen


class MemoryNamespaces(Component):
    """List namespaces; take, restore and delete their snapshots; freeze and unfreeze them."""

    def records(
        self, names: Sequence[str] | str | None = None, *, after: str = "", limit: int = 100
    ) -> list[NamespaceRecord]:
        """List the namespaces that have asked or learned something, in the order of their names.

        Args:
            names: Only these; None for all.
            after: Only names after this one, such as the last name of the page before.
            limit: How many at most, at least 1.

        Raises:
            InvalidInputError: An argument cannot be used.

        Example::

            for record in memory.namespaces.records():
                print(record.name, record.turns, record.frozen)
        """
        limit = require_count("limit", limit)
        wanted = None if names is None else [namespace_of(name) for name in texts_of(names)]
        last = "" if isinstance(after, str) and not after else namespace_of(after)
        services = self._services
        with limit_waiting(services.settings.time_limit):
            services.store.flush()  # the first turn of a namespace creates it
            return services.store.learned.list_namespaces(wanted, last, limit)

    def snapshot(self, namespace: str = DEFAULT_NAMESPACE, name: str | None = None) -> str:
        """Save all that a namespace has learned up to now.

        Args:
            namespace: The namespace.
            name: A name to find the snapshot by; unique within the namespace.

        Returns:
            The id of the snapshot.

        Raises:
            NotFoundError: There is no such namespace.
            InvalidInputError: The name exists already or cannot be used.
        """
        return self._services.history.snapshot(namespace, name)

    def snapshots(self, namespace: str | None = DEFAULT_NAMESPACE) -> list[Snapshot]:
        """List the snapshots of a namespace, or with None of all, newest first."""
        scope = None if namespace is None else namespace_of(namespace)
        return self._services.store.history.snapshots(scope)

    def restore(self, snapshot: str, *, namespace: str | None = None) -> Snapshot:
        """Reset what a namespace has learned to what it was at a snapshot.

        Documents do not change; documents deleted since are ignored. Feedback recorded after the
        snapshot stays applied and its turns consumed, so that it is not learned from again.
        Feedback undone after the snapshot counts again and cannot be undone a second time. Turns
        and the frozen state do not change. Notes created later are deleted; notes that were
        deleted with undone feedback come back; what ``forget`` deleted stays deleted.

        Args:
            snapshot: Its id, or its name within ``namespace``.
            namespace: Look only among snapshots of this namespace; with None ids are looked up in
                all namespaces, names in the default one.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        return self._services.history.restore(snapshot, namespace)

    def delete_snapshot(self, snapshot: str, *, namespace: str | None = None) -> None:
        """Delete a snapshot, looked up as by :meth:`restore`.

        Raises:
            NotFoundError: There is no such snapshot.
        """
        self._services.history.delete(snapshot, namespace)

    def freeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Stop a namespace from learning: its feedback is refused from now on.

        Queries go on using what it has learned; ``undo`` and :meth:`restore` still work.
        """
        self._set_frozen(namespace, frozen=True)

    def unfreeze(self, namespace: str = DEFAULT_NAMESPACE) -> None:
        """Let a frozen namespace learn again, from feedback recorded from now on."""
        self._set_frozen(namespace, frozen=False)

    def _set_frozen(self, namespace: str, *, frozen: bool) -> None:
        self._services.store.write(set_frozen, namespace_of(namespace), frozen=frozen)


class AsyncMemoryNamespaces(AsyncView[MemoryNamespaces]):
    """``memory.aio.namespaces``: :class:`MemoryNamespaces`, awaited."""

    records = off_loop(MemoryNamespaces.records)
    snapshot = off_loop(MemoryNamespaces.snapshot, slow=True)
    snapshots = off_loop(MemoryNamespaces.snapshots)
    restore = off_loop(MemoryNamespaces.restore, slow=True)
    delete_snapshot = off_loop(MemoryNamespaces.delete_snapshot)
    freeze = off_loop(MemoryNamespaces.freeze)
    unfreeze = off_loop(MemoryNamespaces.unfreeze)
