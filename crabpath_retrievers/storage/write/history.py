"""Writers of history: undo of feedback, snapshots; the clock and the end of a namespace."""

import json
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
    COUNTERS,
    KEYED_BY_NAMESPACE,
    NODE_COLUMNS,
    NOTE_TABLES,
    REEMBEDDED_AT,
    SNAPSHOT_TABLES,
    TABLES,
)
from crabpath_retrievers.storage.write.journal import (
    NodeCollector,
    SnapshotRows,
    add_counts,
    decode_snapshot,
    insert_rows,
    read_snapshot,
    translate_rows,
    write_journal,
)
from crabpath_retrievers.storage.write.learned import require_unchanged, undo_episode
from crabpath_retrievers.storage.write.notes import delete_notes, restore_notes, undo_notes
from crabpath_retrievers.storage.write.transaction import Transaction
from crabpath_retrievers.storage.write.weights import insert_unattributed_changes, undo_weights

_TICK = 1e-3  # seconds between snapshots


def undo_feedback(
    tx: Transaction, name: str, cause: str, version: int, model: str, note: str | None
) -> None:
    """Subtract all stored effects of feedback, on notes as well, and free its turns.

    Args:
        version: Version of the namespace that the caller read.
        model: Ranking model without the feedback, as JSON.
        note: Reason to store; None leaves the status, of feedback that waits again.

    Raises:
        ConflictError: The feedback is no longer applied, or the namespace has another version.
    """
    columns = (s.namespaces.c.key, s.namespaces.c.exponent, s.namespaces.c.version)
    query = sa.select(*columns).where(s.namespaces.c.name == name).with_for_update(key_share=True)
    space = tx.run(query).one_or_none()
    require_unchanged(space is not None and space.version == version, cause)
    assert space is not None  # noqa: S101
    own = (s.feedback_effects.c.feedback == cause, s.feedback_effects.c.namespace == space.key)
    query = sa.select(s.feedback_effects).where(*own)
    effects = tx.run(query).one_or_none()
    if effects is not None:
        _subtract_effects(tx, name, space, effects)
    tx.delete(s.feedback_effects, *own)
    turns = sa.select(s.turns.c.id).where(s.turns.c.namespace == space.key)
    consumed = s.consumed_turns.c
    tx.delete(s.consumed_turns, consumed.feedback == cause, consumed.turn.in_(turns))
    _update_namespace(tx, space.key, model=model)
    if note is not None:
        given = (s.feedback.c.id == cause, s.feedback.c.namespace == name)
        known = (*given, s.feedback.c.status == "applied")
        done = tx.update(s.feedback, *known, status="undone", note=note)
        require_unchanged(done == 1, cause)
    if effects is not None:
        record = json.loads(effects.record)
        undo_notes(tx, name, record["notes"], record["used"])


def _subtract_effects(tx: Transaction, name: str, space: Any, effects: Any) -> None:
    """Subtract all that a feedback changed, except in the model and in notes."""
    last = _find_last_effect(tx, space.key) == effects.sequence
    cause = effects.feedback
    undo_weights(tx, space.key, space.exponent, cause)
    gone = effects.exponent if last else 0.0
    if not last:
        # The time that it took belongs to the next feedback, and goes with that.
        e = s.feedback_effects.c
        following = sa.select(sa.func.min(e.sequence)).where(
            e.namespace == space.key, e.sequence > effects.sequence
        )
        own_time = {"exponent": e.exponent + effects.exponent}
        tx.update(s.feedback_effects, e.sequence == following.scalar_subquery(), **own_time)
    exponent = max(0.0, space.exponent - gone)
    tx.update(s.namespaces, s.namespaces.c.key == space.key, exponent=exponent)
    record = json.loads(effects.record)
    for table in COUNTERS:
        _subtract_counts(tx, space.key, table, record[table])
    for episode in record["episodes"]:
        undo_episode(tx, name, episode, last=last)


def _find_last_effect(tx: Transaction, namespace: int) -> int:
    """Find the number of the latest effects of feedback in a namespace; 0 without any."""
    effects = s.feedback_effects.c
    query = sa.select(sa.func.max(effects.sequence)).where(effects.namespace == namespace)
    return tx.scalar(query) or 0


def _update_namespace(tx: Transaction, namespace: int, **values: Any) -> None:
    """Update ``values`` of a namespace and increment its version, which invalidates caches."""
    values["version"] = s.namespaces.c.version + 1
    tx.update(s.namespaces, s.namespaces.c.key == namespace, **values)


def _subtract_counts(
    tx: Transaction, namespace: int, table: str, counts: Sequence[Sequence[Any]]
) -> None:
    """Subtract counts in a table of ``COUNTERS`` from nodes that still exist.

    Negative counts raise them again.
    """
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


def write_snapshot(tx: Transaction, namespace: str, identity: str, name: str | None = None) -> None:
    """Copy the learned state of a namespace to a snapshot with the id ``identity``.

    Raises:
        ConflictError: There is no such namespace.
    """
    tx.touches_corpus = True
    query = sa.select(s.namespaces.c.key, s.namespaces.c.version)
    own = s.namespaces.c.name == namespace
    space = tx.run(query.where(own).with_for_update(key_share=True)).one_or_none()
    require_unchanged(space is not None, namespace)
    assert space is not None  # noqa: S101
    last_change = sa.select(sa.func.max(s.weight_changes.c.sequence))
    latest = sa.select(sa.func.max(s.snapshots.c.created))
    row = {
        "id": identity,
        "namespace": space.key,
        "name": name,
        # Later than all others, also after the clock was set back: lists are in this order.
        "created": max(time.time(), (tx.scalar(latest) or 0.0) + _TICK),
        "version": space.version,
        "last_weight_change": tx.scalar(
            last_change.where(s.weight_changes.c.namespace == space.key)
        )
        or 0,
        "last_feedback_effect": _find_last_effect(tx, space.key),
        "content": read_snapshot(tx, space.key, namespace),
    }
    tx.add(s.snapshots, [row])


def apply_snapshot(tx: Transaction, identity: str) -> None:
    """Replace the learned state of a namespace by that of the snapshot ``identity``.

    Nodes that were deleted in the meantime are skipped. Feedback stays applied, and its turns stay
    consumed.

    Raises:
        ConflictError: There is no such snapshot.
        InvalidInputError: The embedder was changed after the snapshot.
    """
    tx.touches_corpus = True
    query = sa.select(s.snapshots, s.namespaces.c.name.label("space"))
    query = query.join(s.namespaces, s.namespaces.c.key == s.snapshots.c.namespace)
    held = query.where(s.snapshots.c.id == identity).with_for_update(key_share=True)
    kept = tx.run(held).one_or_none()
    require_unchanged(kept, identity)
    assert kept is not None  # noqa: S101
    changed = tx.scalar(sa.select(s.meta.c.value).where(s.meta.c.name == REEMBEDDED_AT))
    if changed is not None and kept.created < float(changed):
        msg = (
            "the snapshot is older than the embedder of the memory, and its vectors are those of "
            "the former one: it cannot be restored"
        )
        raise InvalidInputError(msg)
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
    """Restore the tables of learned state from ``rows``; rows of deleted nodes are skipped."""
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


def drop_snapshot(tx: Transaction, identity: str) -> None:
    """Delete the snapshot ``identity``; the learned state of the namespace does not change."""
    tx.delete(s.snapshots, s.snapshots.c.id == identity)


def set_frozen(tx: Transaction, namespace: str, *, frozen: bool) -> None:
    """Stop learning in a namespace (``frozen`` True), or resume it; a new one is created."""
    tx.update(s.namespaces, s.namespaces.c.key == tx.get_key(namespace), frozen=int(frozen))


def forget_namespace(tx: Transaction, name: str) -> dict[str, int]:
    """Delete a namespace with all that it has; return the number of deleted rows by table."""
    tx.touches_corpus = True
    key = tx.find_key(name)  # first: whoever writes to it waits, and finds it gone
    deleted = {"feedback": tx.delete(s.feedback, s.feedback.c.namespace == name)}
    tx.delete(s.journal, s.journal.c.namespace == name)
    if key is None:
        return deleted
    deleted["notes"] = len(delete_notes(tx, s.notes.c.namespace == key))
    turns = sa.select(s.turns.c.id).where(s.turns.c.namespace == key)
    tx.delete(s.consumed_turns, s.consumed_turns.c.turn.in_(turns))
    for table in KEYED_BY_NAMESPACE:
        deleted.setdefault(table.name.removeprefix("crabpath_"), 0)
        deleted[table.name.removeprefix("crabpath_")] += tx.delete(table, table.c.namespace == key)
    tx.delete(s.namespaces, s.namespaces.c.key == key)
    tx.forget_key(name)
    write_journal(tx, "forget_namespace", {"key": key})
    return deleted
