"""Writers of history: undo of feedback; the clock and the end of a namespace."""

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
    COUNTERS,
    KEYED_BY_NAMESPACE,
    NODE_COLUMNS,
    TABLES,
)
from crabpath_retrievers.storage.sql_tools import CounterTable
from crabpath_retrievers.storage.write.learned import require_unchanged, undo_episode
from crabpath_retrievers.storage.write.notes import delete_notes, undo_notes
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal
from crabpath_retrievers.storage.write.weights import undo_weights

_COUNTERS = {table: CounterTable(TABLES[table], names) for table, names in COUNTERS.items()}


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
    update_namespace(tx, space.key, model=model)
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
    last = find_last_effect(tx, space.key) == effects.sequence
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


def find_last_effect(tx: Transaction, namespace: int) -> int:
    """Find the number of the latest effects of feedback in a namespace; 0 without any."""
    effects = s.feedback_effects.c
    query = sa.select(sa.func.max(effects.sequence)).where(effects.namespace == namespace)
    return tx.scalar(query) or 0


def update_namespace(tx: Transaction, namespace: int, **values: Any) -> None:
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


def add_counts(
    tx: Transaction, table: str, namespace: int, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Add ``rows`` to the counters of a namespace in ``table``, one of ``COUNTERS``."""
    given = [{**row, "namespace": namespace} for row in rows]
    _COUNTERS[table].add(tx.connection, given, undo=True)


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
