"""Writer of history changes: undo of feedback, and snapshots.

Content of snapshots: the learned rows and the notes of a namespace, compressed.
"""

import json
import time
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterator, Sequence
from functools import singledispatchmethod
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import history as h
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import ConflictError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import resolve_alias_ids, resolve_alias_keys
from crabpath_retrievers.storage.sql_tools import decode_vector, find_existing_keys
from crabpath_retrievers.storage.write.learned import LearnedWriter
from crabpath_retrievers.storage.write.weights import WeightWriter, build_unattributed_changes

_NODES = {
    s.overlay: ("source", "target"),
    s.pair_counts: ("source", "target"),
    s.usage: ("node",),
    s.transitions: ("region",),
}
_TABLES = (*_NODES, s.episodes)
# The tables of notes, each with the condition that joins it to ``notes``.
_NOTES = {
    s.nodes: s.notes.c.node == s.nodes.c.key,
    s.contents: s.notes.c.node == s.contents.c.node,
    s.notes: sa.true(),
}
_COMPRESSION_LEVEL = 1  # of zlib: the highest level is six times slower and saves a tenth


class SnapshotContent(NamedTuple):
    """Learned state of a namespace.

    Attributes:
        exponent: Its accumulated decay exponent.
        model: Its ranking model as JSON; None before it first learned.
        tables: Rows without their namespace, by name of the table.
        notes: Rows of its notes, by name of the table.
    """

    exponent: float
    model: str | None
    tables: dict[str, list[dict[str, Any]]]
    notes: dict[str, list[dict[str, Any]]]

    def note_rows(self, namespace: int) -> Iterator[tuple[sa.Table, list[Any]]]:
        """Rows of the notes to write, by table; they are queued for the index."""
        here = {"owner": namespace, "namespace": namespace, "indexed": 0}
        for table in _NOTES:
            rows = self.notes[table.name]
            fixed = {name: value for name, value in here.items() if name in table.c}
            yield table, [{**_decode_binary(table, row), **fixed} for row in rows]

    def nodes(self) -> set[int]:
        """Keys of all nodes that the rows refer to."""
        return {
            row[name]
            for table, names in _NODES.items()
            for row in self.tables[table.name]
            for name in names
        }

    def rows(self, namespace: int, alive: set[int]) -> Iterator[tuple[sa.Table, list[Any]]]:
        """Rows to write, by table, without rows of deleted nodes; episodes are to be indexed."""
        for table, names in _NODES.items():
            yield (
                table,
                [
                    {**row, "namespace": namespace}
                    for row in self.tables[table.name]
                    if all(row[name] in alive for name in names)
                ],
            )
        yield (
            s.episodes,
            [
                {
                    **row,
                    "namespace": namespace,
                    "embedding": urlsafe_b64decode(row["embedding"]),
                    "indexed": 0,
                }
                for row in self.tables[s.episodes.name]
            ],
        )


def _decode_binary(table: sa.Table, row: dict[str, Any]) -> dict[str, Any]:
    """A row with decoded binary values."""
    return {
        name: urlsafe_b64decode(value) if isinstance(table.c[name].type, sa.LargeBinary) else value
        for name, value in row.items()
    }


def encode_snapshot(
    connection: sa.Connection, namespace: int, exponent: float, model: str | None
) -> bytes:
    """Read and compress the learned state of a namespace."""
    tables = {}
    for table in _TABLES:
        columns = [column for column in table.c if column.name not in {"namespace", "indexed"}]
        query = sa.select(*columns).where(table.c.namespace == namespace)
        tables[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    notes = {}
    for table, joined in _NOTES.items():
        query = sa.select(table).where(joined, s.notes.c.namespace == namespace)
        notes[table.name] = [dict(row) for row in connection.execute(query).mappings()]
    data = {"exponent": exponent, "model": model, "tables": tables, "notes": notes}
    return zlib.compress(to_json(data, bytes_mode="base64"), _COMPRESSION_LEVEL)


def remove_notes_from_snapshot(data: bytes, keys: Container[int]) -> bytes:
    """Remove the notes with these keys from compressed content."""
    content = decode_snapshot(data)
    kept = {
        table.name: [
            row
            for row in content.notes[table.name]
            if row[table.primary_key.columns[0].name] not in keys
        ]
        for table in _NOTES
    }
    return zlib.compress(to_json(content._replace(notes=kept)._asdict()), _COMPRESSION_LEVEL)


def decode_snapshot(data: bytes) -> SnapshotContent:
    """The inverse of :func:`encode_snapshot`.

    Raises:
        StoreError: The content is damaged.
    """
    try:
        return SnapshotContent(**json.loads(zlib.decompress(data)))
    except (ValueError, TypeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error


class HistoryWriter(LearnedWriter):
    """Applies the changes of ``LearnedWriter``, and those of ``changes.history``."""

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        super().apply(change)

    @apply.register
    def _(self, change: h.UndoFeedback) -> None:
        key, exponent = self._lock_namespace(change)
        effects = self._connection.execute(
            sa.select(s.feedback_effects).where(s.feedback_effects.c.feedback == change.feedback_id)
        ).one_or_none()
        self._require_unchanged(effects is not None, change.feedback_id)
        assert effects is not None  # noqa: S101
        last = self._last_effect(key) == effects.sequence
        WeightWriter(self._connection, key, exponent).undo(change.feedback_id)
        if last:
            exponent = max(0.0, exponent - effects.exponent)
        self._update_namespace(key, exponent=exponent, model=change.mind)
        record = json.loads(effects.record)
        self._undo_usage(change.namespace, record["usage"])
        self._undo_transitions(change.namespace, record["transitions"])
        self._undo_pair_counts(change.namespace, record["pair_counts"])
        for episode in record["episodes"]:
            self._undo_episode(change.namespace, episode, last=last)
        for table in (s.feedback_effects, s.consumed_turns):
            mine = table.c.feedback == change.feedback_id
            self._connection.execute(table.delete().where(mine))
        self._set_undone(change.feedback_id, "applied", change.note)

    @apply.register
    def _(self, change: h.CancelFeedback) -> None:
        self._set_undone(change.feedback_id, "waiting", change.note)

    def _set_undone(self, feedback_id: str, status: str, note: str) -> None:
        done = self._connection.execute(
            s.feedback.update()
            .where(s.feedback.c.id == feedback_id, s.feedback.c.status == status)
            .values(status="undone", note=note)
        )
        self._require_unchanged(done.rowcount == 1, feedback_id)

    def _require_unchanged(self, condition: bool, what: str) -> None:  # noqa: FBT001
        if not condition:
            msg = f"{what!r} met another change: read again and repeat it"
            raise ConflictError(msg)

    def _lock_namespace(self, change: h.UndoFeedback) -> tuple[int, float]:
        """Lock a namespace that has the expected version; returns its key and decay exponent."""
        row = self._connection.execute(
            sa.select(s.namespaces.c.key, s.namespaces.c.exponent, s.namespaces.c.version)
            .where(s.namespaces.c.name == change.namespace)
            .with_for_update()
        ).one_or_none()
        self._require_unchanged(
            row is not None and row.version == change.version, change.feedback_id
        )
        assert row is not None  # noqa: S101
        return row.key, row.exponent

    def _last_effect(self, namespace: int) -> int:
        """Sequence number of the latest effects of feedback in a namespace; 0 without any."""
        query = sa.select(sa.func.max(s.feedback_effects.c.sequence)).where(
            s.feedback_effects.c.namespace == namespace
        )
        return self._connection.scalar(query) or 0

    def _update_namespace(self, namespace: int, **values: Any) -> None:
        """Update a namespace and increment its version, which invalidates caches."""
        self._connection.execute(
            s.namespaces.update()
            .where(s.namespaces.c.key == namespace)
            .values(version=s.namespaces.c.version + 1, **values)
        )

    def _undo_usage(self, name: str, uses: list[Sequence[float]]) -> None:
        alive = find_existing_keys(self._connection, {int(use[0]) for use in uses})
        to = resolve_alias_keys(self._connection, alive)
        negated = [
            (to.get(int(node), int(node)), -wins, -losses, -decay)
            for node, wins, losses, decay in uses
            if node in alive
        ]
        self.apply(c.AddUsage(name, tuple(negated)))

    def _undo_transitions(self, name: str, steps: list[Sequence[Any]]) -> None:
        found = [TransitionCount(*step) for step in steps]
        alive = find_existing_keys(self._connection, {step.region for step in found}) | {0}
        negated = [TransitionCount(*step.place, *(-n for n in step.counts)) for step in found]
        self.apply(AddTransitions(name, tuple(step for step in negated if step.region in alive)))

    def _undo_pair_counts(self, name: str, pairs: list[tuple[int, int, int, float]]) -> None:
        alive = find_existing_keys(
            self._connection, {node for a, b, *_ in pairs for node in (a, b)}
        )
        to = resolve_alias_keys(self._connection, alive)
        negated = [
            (to.get(a, a), to.get(b, b), EdgeKind(k), -n) for a, b, k, n in pairs if {a, b} <= alive
        ]
        # Counts that the feedback had lowered rise again, so a row may have to be created.
        self.apply(c.AddPairCounts(name, tuple(negated)))

    def _undo_episode(self, name: str, episode: tuple[Any, ...], *, last: bool) -> None:
        identity, turns, documents, clock, labelled, user = episode
        query = sa.select(s.episodes.c.clock, s.episodes.c.embedding)
        row = self._connection.execute(query.where(s.episodes.c.id == identity)).one_or_none()
        if row is not None:
            to = resolve_alias_ids(self._connection, documents)
            negated_credit: dict[str, float] = {}
            for node, credit in documents.items():
                negated_credit[to.get(node, node)] = (
                    negated_credit.get(to.get(node, node), 0.0) - credit
                )
            then = row.clock if clock is None or not last else clock
            vector = decode_vector(row.embedding)
            self.apply(
                c.KeepEpisode(
                    name, identity, "", vector, -turns, -labelled, negated_credit, then, user
                )
            )

    @apply.register
    def _(self, change: h.TakeSnapshot) -> None:
        query = sa.select(s.namespaces).where(s.namespaces.c.name == change.namespace)
        row = self._connection.execute(query.with_for_update()).one_or_none()
        self._require_unchanged(row is not None, change.namespace)
        assert row is not None  # noqa: S101
        last_change = sa.select(sa.func.max(s.weight_changes.c.sequence)).where(
            s.weight_changes.c.namespace == row.key
        )
        self._connection.execute(
            s.snapshots.insert().values(
                id=change.id,
                namespace=row.key,
                name=change.name,
                created=time.time(),
                version=row.version,
                last_weight_change=self._connection.scalar(last_change) or 0,
                last_feedback_effect=self._last_effect(row.key),
                content=encode_snapshot(self._connection, row.key, row.exponent, row.model),
            )
        )

    @apply.register
    def _(self, change: h.RestoreSnapshot) -> None:
        kept = self._connection.execute(
            sa.select(s.snapshots).where(s.snapshots.c.id == change.id)
        ).one_or_none()
        self._require_unchanged(kept is not None, change.id)
        assert kept is not None  # noqa: S101
        content = decode_snapshot(kept.content)
        self._update_namespace(kept.namespace, exponent=content.exponent, model=content.model)
        # The restored state lacks later changes, so nothing is left of them to undo.
        for table, known in (
            (s.weight_changes, kept.last_weight_change),
            (s.feedback_effects, kept.last_feedback_effect),
        ):
            later = sa.and_(table.c.namespace == kept.namespace, table.c.sequence > known)
            self._connection.execute(table.delete().where(later))
        self._restore_tables(kept.namespace, content)
        self._connection.execute(build_unattributed_changes(kept.namespace))

    def _restore_tables(self, namespace: int, content: SnapshotContent) -> None:
        alive = find_existing_keys(self._connection, content.nodes()) | {0}  # the target of STOP
        for table, rows in content.rows(namespace, alive):
            self._connection.execute(table.delete().where(table.c.namespace == namespace))
            if rows:
                self._connection.execute(table.insert(), rows)

    @apply.register
    def _(self, change: h.DeleteSnapshot) -> None:
        self._connection.execute(s.snapshots.delete().where(s.snapshots.c.id == change.id))
