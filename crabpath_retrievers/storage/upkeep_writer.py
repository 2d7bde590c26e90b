"""Writer of maintenance: its changes, and their undo from the journal."""

import json
from collections.abc import Callable, Sequence
from functools import singledispatchmethod
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.changes import PutEdges
from crabpath_retrievers.changes import maintenance as m
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.alive import find_existing_keys
from crabpath_retrievers.storage.awaited import build_run_condition, find_awaited_turns
from crabpath_retrievers.storage.batching import split_batches
from crabpath_retrievers.storage.journal import write_journal
from crabpath_retrievers.storage.knob_writer import restore_knobs
from crabpath_retrievers.storage.replaced import resolve_alias_keys
from crabpath_retrievers.storage.replacing import AliasWriter

_EDGE = ("source", "target", "kind")
_UNDOABLE = ("drop_weights", "connect_nodes", "set_knobs", "merge_nodes", "split_node")
_AT_ONCE = 500  # rows of three values in one statement


class MaintenanceWriter:
    """Applies maintenance changes on one open transaction."""

    def __init__(
        self,
        connection: sa.Connection,
        insert: Callable[..., Any],
        then: Callable[[PutEdges], None],
        replacing: AliasWriter,
    ) -> None:
        """Write on ``connection``; ``then`` applies the changes that follow from one."""
        self._connection, self._insert, self._then = connection, insert, then
        self._replacing = replacing

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: m.DropWeights) -> None:
        space = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == change.namespace)
        key = self._connection.scalar(space.with_for_update())
        if key is None:  # the namespace was deleted in the meantime
            return
        rows = [
            row
            for part in split_batches(change.edges, _AT_ONCE)
            for row in self._select_unchanged(key, part)
        ]
        edges = [tuple(row[name] for name in _EDGE) for row in rows]
        moves = [
            row
            for part in split_batches(edges, _AT_ONCE)
            for row in self._select_rows(s.weight_changes, key, part)
        ]
        for table in (s.overlay, s.weight_changes):
            for part in split_batches(edges, _AT_ONCE):
                self._connection.execute(table.delete().where(_match_edges(table, key, part)))
        self._increment_version(key)
        dropped = {"overlay": rows, "weight_changes": moves}
        payload = {"run": change.run, "weights": len(rows)}
        write_journal(self._connection, "drop_weights", payload, change.namespace, dropped)

    def _select_unchanged(
        self, namespace: int, edges: Sequence[m.DroppedWeight]
    ) -> list[dict[str, Any]]:
        """Rows of those weights that did not change since they were read."""
        expected = {edge[:3]: edge.decay_at for edge in edges}
        rows = self._select_rows(s.overlay, namespace, list(expected))
        return [
            row
            for row in rows
            if row["decay_at"] == expected[row["source"], row["target"], row["kind"]]
        ]

    def _select_rows(
        self, table: sa.Table, namespace: int, edges: Sequence[Any]
    ) -> list[dict[str, Any]]:
        query = sa.select(table).where(_match_edges(table, namespace, edges))
        return [dict(row) for row in self._connection.execute(query).mappings()]

    def _increment_version(self, namespace: int) -> None:
        """Invalidate caches of the namespace, and make concurrent learning start again."""
        own = s.namespaces.c.key == namespace
        update = s.namespaces.update().where(own)
        self._connection.execute(update.values(version=s.namespaces.c.version + 1))

    @apply.register
    def _(self, change: m.ConnectNodes) -> None:
        self._then(PutEdges(change.edges))
        added = [[e.source, e.target, e.kind.value] for e in change.edges]
        payload = {"run": change.run, "edges": len(added)}
        write_journal(self._connection, "connect_nodes", payload, inverse={"edges": added})

    @apply.register
    def _(self, change: m.MergeNodes) -> None:
        self._replacing.merge(change)

    @apply.register
    def _(self, change: m.CompactTurns) -> None:
        space = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == change.namespace)
        key = self._connection.scalar(space)
        if key is None:
            return
        old = sa.and_(s.turns.c.namespace == key, s.turns.c.clock <= change.until)
        deletable = sa.and_(old, s.turns.c.id.not_in(find_awaited_turns(self._connection)))
        ids = sa.select(s.turns.c.id).where(deletable)
        self._connection.execute(s.consumed_turns.delete().where(s.consumed_turns.c.turn.in_(ids)))
        done = self._connection.execute(s.turns.delete().where(deletable))
        payload = {"run": change.run, "turns": done.rowcount}
        write_journal(self._connection, "compact_turns", payload, change.namespace)

    @apply.register
    def _(self, change: m.CompactJournal) -> None:
        newest = sa.select(s.journal.c.sequence).order_by(s.journal.c.sequence.desc())
        last = self._connection.scalar(newest.offset(change.keep).limit(1))
        if last is not None:
            self._connection.execute(s.journal.delete().where(s.journal.c.sequence <= last))

    @apply.register
    def _(self, change: m.UndoMaintenance) -> None:
        for row in self._select_run(change.run):
            inverse = _parse_inverse(row.inverse, change.run)
            if row.change == "drop_weights":
                self._restore_weights(inverse)
            elif row.change == "set_knobs":
                restore_knobs(self._connection, row.namespace, inverse["before"], inverse["after"])
            elif row.change == "merge_nodes":
                self._replacing.undo_merge(change.run, inverse)
            elif row.change == "split_node":
                self._replacing.undo_split(inverse)
            else:
                self._delete_edges(inverse["edges"])
            own = s.journal.c.sequence == row.sequence
            update = s.journal.update().where(own)
            self._connection.execute(update.values(change=f"{row.change}_undone", inverse=None))

    def _select_run(self, run: str) -> Sequence[sa.Row[Any]]:
        """The undoable journal rows of a maintenance run, newest first."""
        query = (
            sa.select(s.journal)
            .where(
                s.journal.c.change.in_(_UNDOABLE),
                build_run_condition(run),
            )
            .order_by(s.journal.c.sequence.desc())
        )
        return self._connection.execute(query).all()

    def _restore_weights(self, dropped: dict[str, list[dict[str, Any]]]) -> None:
        """Restore dropped weights, unless they were learned anew or their nodes were deleted."""
        rows, found = (
            self._resolve_aliases(dropped[name]) for name in ("overlay", "weight_changes")
        )
        alive = find_existing_keys(
            self._connection, {row[end] for row in rows for end in _EDGE[:2]}
        ) | {0}
        known = set(
            self._connection.scalars(
                sa.select(s.namespaces.c.key).where(
                    s.namespaces.c.key.in_({row["namespace"] for row in rows})
                )
            )
        )
        restored: set[tuple[int, ...]] = set()
        for row in rows:
            if row["namespace"] in known and {row["source"], row["target"]} <= alive:
                insert = self._insert(s.overlay).values(row).on_conflict_do_nothing()
                if self._connection.execute(insert).rowcount:
                    restored.add(tuple(row[name] for name in _EDGE))
        moves = [row for row in found if tuple(row[n] for n in _EDGE) in restored]
        if moves:
            self._connection.execute(self._insert(s.weight_changes).on_conflict_do_nothing(), moves)
        for key in known:
            self._increment_version(key)

    def _resolve_aliases(self, rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Rows with the nodes that replace theirs by now."""
        to = resolve_alias_keys(self._connection, {row[end] for row in rows for end in _EDGE[:2]})
        new = [{**row, **{end: to.get(row[end], row[end]) for end in _EDGE[:2]}} for row in rows]
        return [row for row in new if row["source"] != row["target"]]

    def _delete_edges(self, edges: Sequence[tuple[int, int, int]]) -> None:
        for part in split_batches([tuple(edge) for edge in edges], _AT_ONCE):
            own = sa.tuple_(*(s.edges.c[name] for name in _EDGE)).in_(part)
            near = s.edges.c.source.in_({edge[0] for edge in part})
            self._connection.execute(s.edges.delete().where(near, own))


def _match_edges(table: sa.Table, namespace: int, edges: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Condition: the row belongs to one of these edges of a namespace."""
    keys = [tuple(edge[:3]) for edge in edges]
    edge = sa.tuple_(*(table.c[name] for name in _EDGE)).in_(keys)
    near = table.c.source.in_({source for source, *_ in keys})
    return sa.and_(table.c.namespace == namespace, near, edge)


def _parse_inverse(inverse: str | None, run: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(inverse or "")
    except ValueError:
        msg = f"the journal of maintenance {run!r} is damaged: restore a snapshot or an archive"
        raise StoreError(msg) from None
    return found
