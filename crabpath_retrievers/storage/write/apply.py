"""The writer: applies change records with the writers of this package.

Writer of the state of A/B trials, with optimistic locking.
"""

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import singledispatchmethod
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes.archive import ArchiveChange, FillNamespace
from crabpath_retrievers.core.changes.history import RestoreSnapshot
from crabpath_retrievers.core.changes.maintenance import (
    KeepTrial,
    MaintenanceChange,
    RecordHealth,
    SetKnobs,
)
from crabpath_retrievers.core.changes.notes import NoteChange
from crabpath_retrievers.core.graph import EdgeKind, Node
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import resolve_alias_keys
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.read.turns import build_trial_key
from crabpath_retrievers.storage.schema import meta
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    encode_vector,
    find_existing_keys,
    split_batches,
)
from crabpath_retrievers.storage.write.aliases import AliasWriter
from crabpath_retrievers.storage.write.archive import ArchiveWriter
from crabpath_retrievers.storage.write.history import HistoryWriter
from crabpath_retrievers.storage.write.journal import redact_journal, write_journal
from crabpath_retrievers.storage.write.maintenance import (
    MaintenanceWriter,
    record_health,
    set_knobs,
)
from crabpath_retrievers.storage.write.nodes import NodeWriter, queue_index_deletion, queue_linking
from crabpath_retrievers.storage.write.notes import NoteWriter
from crabpath_retrievers.storage.write.weights import WeightWriter


def keep_trial(connection: sa.Connection, change: KeepTrial, insert: Callable[..., Any]) -> None:
    """Replace the state of a trial, or insert that of a new one.

    Raises:
        ConflictError: The stored state is not the expected one.
    """
    name = build_trial_key(change.name)
    if change.before is None:
        new = insert(meta).values(name=name, value=change.after)
        statement = new.on_conflict_do_nothing().returning(meta.c.name)
    else:
        read = (meta.c.name == name) & (meta.c.value == change.before)
        statement = meta.update().where(read).values(value=change.after).returning(meta.c.name)
    if connection.execute(statement).one_or_none() is None:
        msg = f"trial {change.name!r} was changed by somebody else meanwhile: try again"
        raise ConflictError(msg)


_ADVANCE_CLOCK = (
    s.namespaces.update()
    .where(s.namespaces.c.name == sa.bindparam("ticking"))
    .values(turn=s.namespaces.c.turn + 1)
    .returning(s.namespaces.c.key, s.namespaces.c.turn)
)
_INSERT_TURN = s.turns.insert()
_SELECT_NAMESPACE = sa.select(s.namespaces.c.key, s.namespaces.c.exponent).where(
    s.namespaces.c.name == sa.bindparam("name")
)
_NAMESPACE, _NAMESPACE_LOCKED = (
    CompiledSelect(_SELECT_NAMESPACE),
    CompiledSelect(_SELECT_NAMESPACE.with_for_update()),
)


class Writer:
    """Applies change records on one open transaction."""

    def __init__(self, connection: sa.Connection, fulltext: FullText) -> None:
        """Write on ``connection``; the caller commits."""
        self._connection = connection
        self._insert = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert
        self._nodes = NodeWriter(connection, fulltext, self._insert)
        self._learned = HistoryWriter(connection, lambda n: self._namespace(n)[0])
        self._notes = NoteWriter(connection, self._insert, self._nodes, self.apply)
        self._aliases = AliasWriter(connection, self._insert, self._nodes)
        self._maintenance = MaintenanceWriter(connection, self._insert, self.apply, self._aliases)
        self._archives = ArchiveWriter(connection, fulltext, self.apply)

    def apply(self, change: c.Change) -> None:
        """Apply one change."""
        self._apply(change)

    @singledispatchmethod
    def _apply(self, change: object) -> None:
        if isinstance(change, MaintenanceChange):
            self._maintenance.apply(change)
        elif isinstance(change, ArchiveChange):
            self._archives.apply(change)
        elif isinstance(change, RestoreSnapshot):
            self._notes.restore(change.id)  # before the learned state, which refers to notes
            self._learned.apply(change)
        else:
            (self._notes if isinstance(change, NoteChange) else self._learned).apply(change)
        if isinstance(change, (RestoreSnapshot, FillNamespace)):
            self._aliases.move_learned()

    @_apply.register
    def _(self, change: c.StageNodes) -> None:
        rows = {node: _build_queue_row(node, "move", str(to)) for node, to in change.positions}
        rows |= {node: _build_queue_row(node, "remove") for node in change.removed}
        rows |= {node: _build_queue_row(node, "retire") for node in change.retired}
        rows |= {node.id: _build_staged_row(node) for node in change.nodes}
        rows |= {
            whole: _build_queue_row(whole, "split", parts) for whole, parts in _build_splits(change)
        }
        self._delete_where(s.staging.c.id, rows)
        if rows:
            self._connection.execute(s.staging.insert(), list(rows.values()))

    @_apply.register
    def _(self, _change: c.PublishStaged) -> None:
        operations = ("put", "remove", "retire", "move", "split")
        queued = self._connection.execute(
            sa.select(s.staging).where(s.staging.c.operation.in_(operations))
        ).all()
        if not queued:
            return
        added, removed, retired, moved, split = (
            [row for row in queued if row.operation == operation] for operation in operations
        )
        self._delete_where(s.staging.c.id, [row.id for row in (*removed, *retired, *moved, *split)])
        hidden = [row.id for row in (*removed, *retired)]
        self._aliases.release([row.id for row in added], hidden)
        self._remove([row.id for row in removed])
        self._retire([row.id for row in retired])
        siblings = self._nodes.write_nodes(
            [(row.id, json.loads(row.payload), row.embedding) for row in added]
        )
        self._connection.execute(
            s.staging.update()
            .where(s.staging.c.operation == "put")
            .values(operation="link", payload=None, embedding=None)
        )
        for row in split:
            self._aliases.split(row.id, **json.loads(row.payload))
        self._queue_linking(siblings)
        self._apply(c.MoveNodes(tuple((row.id, int(row.payload)) for row in moved)))
        names = {"put": added, "removed": removed, "retired": retired}
        self._write_journal("publish", {n: [row.id for row in rows] for n, rows in names.items()})

    @_apply.register
    def _(self, change: c.MoveNodes) -> None:
        if change.positions:
            key = sa.select(s.nodes.c.key).where(s.nodes.c.id == sa.bindparam("moved"))
            self._connection.execute(
                s.contents.update()
                .where(s.contents.c.node == key.scalar_subquery())
                .values(position=sa.bindparam("to")),
                [{"moved": node, "to": position} for node, position in change.positions],
            )
            moved = [node for node, _ in change.positions]
            self._aliases.move_parts(moved)
            self._queue_linking([*moved, *self._nodes.siblings(moved)])

    @_apply.register
    def _(self, change: c.RemoveNodes) -> None:
        self._aliases.release((), change.ids)
        self._remove(change.ids)
        # The journal must not hold texts, which could not be forgotten then.
        self._write_journal("remove", {"ids": list(change.ids)})

    def _remove(self, ids: Sequence[str]) -> None:
        for part in split_batches(ids):
            self._queue_linking(self._nodes.remove(part))
            self._queue_index_deletion(part)

    def _retire(self, ids: Sequence[str]) -> None:
        for part in split_batches(ids):
            self._queue_linking(self._nodes.retire(part))
            self._queue_index_deletion(part)

    def _queue_index_deletion(self, ids: Sequence[str]) -> None:
        queue_index_deletion(self._connection, self._insert, ids)

    def _queue_linking(self, ids: Sequence[str]) -> None:
        queue_linking(self._connection, self._insert, ids)

    @_apply.register
    def _(self, change: c.PutEdges) -> None:
        ends = {key for e in change.edges for key in (e.source, e.target)}
        existing = find_existing_keys(self._connection, ends)
        # An edge to a replaced node leads to its target; edges from it are dropped.
        targets = resolve_alias_keys(self._connection, ends)
        edges = [replace(e, target=targets.get(e.target, e.target)) for e in change.edges]
        decay_at = self._connection.scalar(sa.select(sa.func.max(s.namespaces.c.exponent))) or 0.0
        rows = [
            {
                "source": e.source,
                "target": e.target,
                "kind": e.kind.value,
                "prior": e.prior,
                "floor": e.floor,
                "decay_at": decay_at,
            }
            for e in edges
            if e.source in existing - targets.keys()
            and e.target in {*existing, *targets.values()}
            and e.source != e.target
        ]
        if rows:
            insert = self._insert(s.edges)
            update = {"prior": insert.excluded.prior, "floor": insert.excluded.floor}
            key = [s.edges.c.source, s.edges.c.target, s.edges.c.kind]
            self._connection.execute(
                insert.on_conflict_do_update(index_elements=key, set_=update), rows
            )
            self._nodes.recount({e.target for e in edges if e.kind is EdgeKind.MENTION})
        for part in split_batches(change.linked):
            linked = sa.select(s.nodes.c.id).where(s.nodes.c.key.in_(part))
            self._connection.execute(
                s.staging.delete().where(
                    s.staging.c.operation == "link", s.staging.c.id.in_(linked)
                )
            )

    @_apply.register
    def _(self, change: c.RemoveEdges) -> None:
        self._nodes.remove_edges(change.keys, [kind.value for kind in change.kinds])

    @_apply.register
    def _(self, change: c.ConfirmIndexDeletions) -> None:
        self._delete_where(s.index_deletions.c.id, change.ids)

    @_apply.register
    def _(self, change: c.AdjustWeights) -> None:
        # Locks the namespace: an edge without learned weight has no row to lock.
        namespace, exponent = self._namespace(change.namespace, lock=True)
        WeightWriter(self._connection, namespace, exponent).adjust(change.deltas, change.cause)

    @_apply.register
    def _(self, change: c.AdvanceClock) -> None:
        namespace, _ = self._namespace(change.namespace)
        self._connection.execute(
            s.namespaces.update()
            .where(s.namespaces.c.key == namespace)
            .values(
                turn=s.namespaces.c.turn + change.turns,
                exponent=s.namespaces.c.exponent + change.exponent,
            )
        )

    @_apply.register
    def _(self, change: c.RecordTurn) -> None:
        turn = change.turn
        name = {"ticking": turn.namespace}
        advanced = self._connection.execute(_ADVANCE_CLOCK, name).one_or_none()
        if advanced is None:
            self._namespace(turn.namespace)
            advanced = self._connection.execute(_ADVANCE_CLOCK, name).one()
        namespace, clock = advanced
        record = to_json(replace(turn.build_steps(), clock=clock, query=to_storable(turn.query)))
        self._connection.execute(
            _INSERT_TURN,
            {
                "id": turn.id,
                "namespace": namespace,
                "clock": clock,
                "created": turn.created,
                "run_id": turn.run_id,
                "record": record.decode(),
                "embedding": None if change.vector is None else encode_vector(change.vector),
            },
        )

    @_apply.register
    def _(self, change: c.ForgetNamespace) -> None:
        self._connection.execute(
            s.feedback.delete().where(s.feedback.c.namespace == change.namespace)
        )
        key = self._connection.scalar(
            sa.select(s.namespaces.c.key).where(s.namespaces.c.name == change.namespace)
        )
        if key is None:
            return
        self._notes.forget(key)
        turns = sa.select(s.turns.c.id).where(s.turns.c.namespace == key)
        self._connection.execute(
            s.consumed_turns.delete().where(s.consumed_turns.c.turn.in_(turns))
        )
        learned = (
            *(s.overlay, s.weight_changes, s.feedback_effects, s.pair_counts),
            *(s.usage, s.transitions, s.episodes, s.snapshots, s.health_reports),
        )
        for table in (*learned, s.turns):
            self._connection.execute(table.delete().where(table.c.namespace == key))
        self._connection.execute(s.namespaces.delete().where(s.namespaces.c.key == key))
        self._connection.execute(
            s.journal.delete().where(s.journal.c.namespace == change.namespace)
        )
        redact_journal(self._connection, key)
        self._write_journal("forget_namespace", {"namespace": change.namespace})

    @_apply.register
    def _(self, change: c.PutMeta) -> None:
        for name, value in change.values:
            insert = self._insert(s.meta).values(name=name, value=value)
            self._connection.execute(
                insert.on_conflict_do_update(index_elements=[s.meta.c.name], set_={"value": value})
            )

    @_apply.register
    def _(self, change: RecordHealth) -> None:
        record_health(self._connection, change)

    @_apply.register
    def _(self, change: KeepTrial) -> None:
        keep_trial(self._connection, change, self._insert)
        payload = {"trial": change.name, "state": json.loads(change.after)}
        self._write_journal("trial", payload)

    @_apply.register
    def _(self, change: SetKnobs) -> None:
        self._namespace(change.namespace)
        set_knobs(self._connection, change)

    def _namespace(self, name: str, *, lock: bool = False) -> tuple[int, float]:
        select = _NAMESPACE_LOCKED if lock else _NAMESPACE
        rows = select.rows(self._connection, {"name": name})
        if not rows:
            insert = self._insert(s.namespaces).values(name=name, turn=0, exponent=0.0)
            self._connection.execute(insert.on_conflict_do_nothing())
            rows = select.rows(self._connection, {"name": name})
        ((key, exponent),) = rows
        return key, exponent

    def _delete_where(self, column: sa.Column[str], values: Iterable[str]) -> None:
        for part in split_batches(values):
            self._connection.execute(column.table.delete().where(column.in_(part)))

    def _write_journal(self, change: str, payload: dict[str, Any]) -> None:
        write_journal(self._connection, change, payload)


def _build_queue_row(node: str, operation: str, payload: str | None = None) -> dict[str, Any]:
    return {"id": node, "operation": operation, "payload": payload, "embedding": None}


def _build_splits(change: c.StageNodes) -> Iterable[tuple[str, str]]:
    """Nodes to split, with the arguments of the split as JSON."""
    for one in change.splits:
        yield one.whole, json.dumps({"pieces": one.pieces, "run": one.run})


def _build_staged_row(node: Node) -> dict[str, Any]:
    payload = {
        "document": node.document,
        "source": node.source,
        "content": node.content,
        "title": node.title,
        "names": node.names,
        "addresses": node.addresses,
        "references": node.references,
        "position": node.position,
        "metadata": dict(node.metadata),
        "digest": node.digest,
    }
    assert node.vector is not None, "staged nodes must have a vector"  # noqa: S101
    return {
        "id": node.id,
        "operation": "put",
        "payload": json.dumps(payload, ensure_ascii=False),
        "embedding": encode_vector(node.vector),
    }
