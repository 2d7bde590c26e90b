"""Writers of history: undo of feedback, and snapshots."""

import json
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import history as h
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import (
    COUNTERS,
    KEYED_BY_NAMESPACE,
    NODE_COLUMNS,
    NOTE_TABLES,
    SNAPSHOT_TABLES,
    TABLES,
)
from crabpath_retrievers.storage.sql_tools import decode_vector
from crabpath_retrievers.storage.write.learned import keep_episode, require_unchanged
from crabpath_retrievers.storage.write.notes import restore_notes, undo_notes
from crabpath_retrievers.storage.write.rows import (
    NodeCollector,
    SnapshotRows,
    add_counts,
    decode_snapshot,
    insert_rows,
    read_snapshot,
    translate_rows,
)
from crabpath_retrievers.storage.write.transaction import Transaction
from crabpath_retrievers.storage.write.weights import insert_unattributed_changes, undo_weights


def undo_feedback(tx: Transaction, change: h.UndoFeedback) -> None:
    """Subtract all effects of applied feedback, and release its turns.

    Raises:
        ConflictError: Another change came first.
    """
    name, cause = change.namespace, change.feedback_id
    columns = (s.namespaces.c.key, s.namespaces.c.exponent, s.namespaces.c.version)
    query = sa.select(*columns).where(s.namespaces.c.name == name).with_for_update(key_share=True)
    space = tx.run(query).one_or_none()
    require_unchanged(space is not None and space.version == change.version, cause)
    assert space is not None  # noqa: S101
    query = sa.select(s.feedback_effects).where(s.feedback_effects.c.feedback == cause)
    effects = tx.run(query).one_or_none()
    require_unchanged(effects, cause)
    assert effects is not None  # noqa: S101
    last = _find_last_effect(tx, space.key) == effects.sequence
    undo_weights(tx, space.key, space.exponent, cause)
    exponent = max(0.0, space.exponent - effects.exponent) if last else space.exponent
    _update_namespace(tx, space.key, exponent=exponent, model=change.model)
    record = json.loads(effects.record)
    for table in COUNTERS:
        _subtract_counts(tx, space.key, table, record[table])
    for episode in record["episodes"]:
        _undo_episode(tx, name, episode, last=last)
    tx.delete(s.feedback_effects, s.feedback_effects.c.feedback == cause)
    tx.delete(s.consumed_turns, s.consumed_turns.c.feedback == cause)
    own = (s.feedback.c.id == cause, s.feedback.c.status == "applied")
    done = tx.update(s.feedback, *own, status="undone", note=change.note)
    require_unchanged(done == 1, cause)
    undo_notes(tx, name, record["notes"], record["used"])


def _find_last_effect(tx: Transaction, namespace: int) -> int:
    """Sequence number of the latest effects of feedback in a namespace; 0 without any."""
    effects = s.feedback_effects.c
    query = sa.select(sa.func.max(effects.sequence)).where(effects.namespace == namespace)
    return tx.scalar(query) or 0


def _update_namespace(tx: Transaction, namespace: int, **values: Any) -> None:
    """Update a namespace and increment its version, which invalidates caches."""
    values["version"] = s.namespaces.c.version + 1
    tx.update(s.namespaces, s.namespaces.c.key == namespace, **values)


def _subtract_counts(
    tx: Transaction, namespace: int, table: str, counts: Sequence[Sequence[Any]]
) -> None:
    """Subtract from the counters of nodes that still exist; counts that were lowered rise again."""
    names = [column.name for column in TABLES[table].c if column.name != "namespace"]
    rows = [dict(zip(names, count, strict=True)) for count in counts]
    nodes = NODE_COLUMNS[table]
    asked = {row[column] for row in rows for column in nodes}
    alive = tx.hold_nodes(asked)
    negated = [
        {**row, **{name: -row[name] for name in COUNTERS[table]}}
        for row in rows
        if all(row[column] in alive for column in nodes)
    ]
    add_counts(tx, table, namespace, negated)


def _undo_episode(tx: Transaction, name: str, episode: tuple[Any, ...], *, last: bool) -> None:
    identity, turns, documents, clock, labelled, user = episode
    query = sa.select(s.episodes.c.clock, s.episodes.c.embedding)
    row = tx.run(query.where(s.episodes.c.id == identity)).one_or_none()
    if row is not None:
        negated = {node: -credit for node, credit in documents.items()}
        then = row.clock if clock is None or not last else clock
        vector = decode_vector(row.embedding)
        change = c.KeepEpisode(name, identity, "", vector, -turns, -labelled, negated, then, user)
        keep_episode(tx, change)


def write_snapshot(tx: Transaction, change: h.TakeSnapshot) -> None:
    """Copy the learned state of a namespace."""
    query = sa.select(s.namespaces.c.key, s.namespaces.c.version)
    own = s.namespaces.c.name == change.namespace
    space = tx.run(query.where(own).with_for_update(key_share=True)).one_or_none()
    require_unchanged(space is not None, change.namespace)
    assert space is not None  # noqa: S101
    last_change = sa.select(sa.func.max(s.weight_changes.c.sequence))
    row = {
        "id": change.id,
        "namespace": space.key,
        "name": change.name,
        "created": time.time(),
        "version": space.version,
        "last_weight_change": tx.scalar(
            last_change.where(s.weight_changes.c.namespace == space.key)
        )
        or 0,
        "last_feedback_effect": _find_last_effect(tx, space.key),
        "content": read_snapshot(tx, space.key, change.namespace),
    }
    tx.add(s.snapshots, [row])


def apply_snapshot(tx: Transaction, change: h.RestoreSnapshot) -> None:
    """Replace the learned state of a namespace by that of a snapshot."""
    query = sa.select(s.snapshots, s.namespaces.c.name.label("space"))
    query = query.join(s.namespaces, s.namespaces.c.key == s.snapshots.c.namespace)
    held = query.where(s.snapshots.c.id == change.id).with_for_update(key_share=True)
    kept = tx.run(held).one_or_none()
    require_unchanged(kept, change.id)
    assert kept is not None  # noqa: S101
    key, rows = kept.namespace, decode_snapshot(kept.content)
    restore_notes(tx, key, rows)  # before the learned state, which refers to notes
    (space,) = rows["namespaces"]
    _update_namespace(tx, key, exponent=space["exponent"], model=space["model"])
    # The restored state lacks later changes, so nothing is left of them to undo.
    for table, known in (
        (s.weight_changes, kept.last_weight_change),
        (s.feedback_effects, kept.last_feedback_effect),
    ):
        tx.delete(table, table.c.namespace == key, table.c.sequence > known)
    _restore_learned(tx, key, kept.space, rows)
    insert_unattributed_changes(tx, key)


def _restore_learned(tx: Transaction, namespace: int, name: str, rows: SnapshotRows) -> None:
    """Replace the rows of tables of learned state; those of deleted nodes are skipped."""
    learned = [
        table
        for table in SNAPSHOT_TABLES
        if TABLES[table] in KEYED_BY_NAMESPACE and table not in NOTE_TABLES
    ]
    asked = NodeCollector()
    for table in learned:
        translate_rows(table, rows[table], asked)
    keys = {key: key for key in tx.hold_nodes(asked)}
    for table in learned:
        tx.delete(TABLES[table], TABLES[table].c.namespace == namespace)
        insert_rows(tx, table, translate_rows(table, rows[table], keys), namespace, name)


def drop_snapshot(tx: Transaction, change: h.DeleteSnapshot) -> None:
    """Delete a snapshot."""
    tx.delete(s.snapshots, s.snapshots.c.id == change.id)
