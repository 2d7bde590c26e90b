"""Writer of maintenance: its changes, and their undo from the journal.

Write the knobs of a namespace, and undo that from the journal.

Write health reports, and delete outdated ones.
"""

import json
from collections.abc import Callable, Sequence
from functools import singledispatchmethod
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.changes import PutEdges
from crabpath_retrievers.core.changes import maintenance as m
from crabpath_retrievers.core.changes.maintenance import RecordHealth, SetKnobs
from crabpath_retrievers.errors import ConflictError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import resolve_alias_keys
from crabpath_retrievers.storage.read.maintenance import build_run_condition, find_awaited_turns
from crabpath_retrievers.storage.schema import health_reports, namespaces
from crabpath_retrievers.storage.sql_tools import find_existing_keys, split_batches
from crabpath_retrievers.storage.write.aliases import AliasWriter
from crabpath_retrievers.storage.write.journal import write_journal


def set_knobs(connection: sa.Connection, change: SetKnobs) -> None:
    """Set the knobs and the tuning state of a namespace.

    Args:
        connection: An open transaction.
        change: New values, and the values that are expected in the store.

    Raises:
        ConflictError: The stored values are not the expected ones.
    """
    is_namespace = namespaces.c.name == change.namespace
    query = sa.select(namespaces.c.knobs, namespaces.c.tuning).where(is_namespace).with_for_update()
    if tuple(connection.execute(query).one()) != change.before:
        msg = f"the knobs of {change.namespace!r} met another change: read again and repeat it"
        raise ConflictError(msg)
    values = {"knobs": change.knobs, "tuning": change.tuning}
    connection.execute(namespaces.update().where(is_namespace).values(values))
    if change.knobs != change.before[0]:
        payload = {"run": change.run, "knobs": change.knobs, "why": list(change.why)}
        inverse = {"before": change.before[0], "after": change.knobs}
        write_journal(connection, "set_knobs", payload, change.namespace, inverse)


def restore_knobs(
    connection: sa.Connection, namespace: str, before: str | None, now: str | None
) -> None:
    """Restore the knobs of a namespace, unless they were changed again since.

    Args:
        connection: An open transaction.
        namespace: Name of the namespace.
        before: Knobs to restore, as JSON.
        now: Knobs that the change to undo had set.
    """
    is_namespace = sa.and_(
        namespaces.c.name == namespace, namespaces.c.knobs.is_not_distinct_from(now)
    )
    connection.execute(namespaces.update().where(is_namespace).values(knobs=before))


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


def record_health(connection: sa.Connection, change: RecordHealth) -> None:
    """Store a report, and delete all but the latest; does nothing for an unknown namespace.

    Args:
        connection: An open transaction.
        change: The report, and how many to keep.
    """
    query = sa.select(namespaces.c.key).where(namespaces.c.name == change.namespace)
    key = connection.scalar(query)
    if key is None:
        return
    row = {
        "namespace": key,
        "clock": change.clock,
        "created": change.created,
        "report": json.dumps(dict(change.report), allow_nan=False),
    }
    connection.execute(health_reports.insert().values(row))
    own = health_reports.c.namespace == key
    latest = (
        sa.select(health_reports.c.sequence).where(own).order_by(health_reports.c.sequence.desc())
    )
    # The newest report to delete; the condition is never true while there are too few.
    last = latest.offset(change.keep).limit(1).scalar_subquery()
    connection.execute(health_reports.delete().where(own, health_reports.c.sequence <= last))
