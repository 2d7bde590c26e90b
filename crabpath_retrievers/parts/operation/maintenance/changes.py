"""Writers of maintenance, whose changes the journal can undo; knobs, health reports."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.records import Edge
from crabpath_retrievers.errors import ConflictError, StoreError
from crabpath_retrievers.parts.operation.maintenance.queries import (
    build_run_condition,
    find_awaited_turns,
    find_old_episodes,
)
from crabpath_retrievers.parts.operation.maintenance.row_images import (
    RowChange,
    get_primary_key,
    read_rows,
    restore_rows,
)
from crabpath_retrievers.parts.operation.maintenance.rules import LearnedWeight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import TABLES, list_orphans
from crabpath_retrievers.storage.sql_tools import delete_in, split_batches
from crabpath_retrievers.storage.write.nodes import build_edge_rows, put_edges
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal

Tuning = tuple[str | None, str | None]
"""Knobs of a namespace that override the settings, and the autotuner's state, as JSON."""

_EDGE = ("source", "target", "kind")
_UNDOABLE = ("drop_weights", "connect_nodes", "set_knobs")
_AT_ONCE = 500  # rows of three values in one statement


def drop_weights(
    tx: Transaction, run: str, namespace: str, weights: Sequence[LearnedWeight]
) -> None:
    """Delete learned weights with their history; structural edges get their prior back.

    Weights that changed since they were read stay. The change can be undone by the id of the
    maintenance ``run``.
    """
    tx.touches_corpus = True
    key = tx.find_key(namespace)
    if key is None:  # the namespace was deleted in the meantime
        return
    images: list[RowChange] = []
    for part in split_batches(weights, _AT_ONCE):
        expected = {edge[:3]: edge.stored.decay_at for edge in part}
        rows = _select_edges(tx, s.overlay, key, list(expected))
        same = [row for row in rows if row["decay_at"] == expected[_get_edge(row)]]
        edges = [_get_edge(row) for row in same]
        images += [("overlay", row, None) for row in same]
        moves = _select_edges(tx, s.weight_changes, key, edges) if edges else []
        images += [("weight_changes", row, None) for row in moves]
        for table in (s.overlay, s.weight_changes) if edges else ():
            tx.delete(table, _match_edges(table, key, edges))
    tx.increment_versions(key)
    payload = {"run": run, "weights": sum(table == "overlay" for table, *_ in images)}
    write_journal(tx, "drop_weights", payload, namespace, {"images": images})


def _get_edge(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _EDGE)


def _select_edges(
    tx: Transaction, table: sa.Table, namespace: int, edges: Sequence[Any]
) -> list[dict[str, Any]]:
    return tx.dicts(sa.select(table).where(_match_edges(table, namespace, edges)))


def _match_edges(table: sa.Table, namespace: int, edges: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Make the condition that a row of a table belongs to one of these edges of a namespace."""
    edge = sa.tuple_(*(table.c[name] for name in _EDGE)).in_(edges)
    near = table.c.source.in_({source for source, *_ in edges})
    return sa.and_(table.c.namespace == namespace, near, edge)


def connect_nodes(tx: Transaction, run: str, edges: Sequence[Edge]) -> None:
    """Add edges to isolated nodes; the id of the maintenance ``run`` undoes this."""
    tx.touches_corpus = True
    rows = build_edge_rows(tx, edges)
    before = read_rows(tx, "edges", (get_primary_key("edges", row) for row in rows))
    put_edges(tx, edges)
    after = read_rows(tx, "edges", (get_primary_key("edges", row) for row in rows))
    images = [("edges", before.get(key), row) for key, row in after.items()]
    payload = {"run": run, "edges": len(edges)}
    write_journal(tx, "connect_nodes", payload, inverse={"images": images})


def compact_turns(tx: Transaction, run: str, namespace: str, until: int) -> None:
    """Delete the turn records of a namespace up to the turn numbered ``until``.

    Records that waiting feedback refers to stay. ``run`` is the id of the maintenance run.
    """
    key = tx.find_key(namespace)
    if key is None:
        return
    old = sa.and_(s.turns.c.namespace == key, s.turns.c.clock <= until)
    deletable = sa.and_(old, s.turns.c.id.not_in(find_awaited_turns(tx.connection)))
    ids = sa.select(s.turns.c.id).where(deletable)
    tx.delete(s.consumed_turns, s.consumed_turns.c.turn.in_(ids))
    payload = {"run": run, "turns": tx.delete(s.turns, deletable)}
    write_journal(tx, "compact_turns", payload, namespace)


def compact_episodes(tx: Transaction, run: str, namespace: str, keep: int) -> None:
    """Delete the episodes of a namespace that no recent feedback added to.

    The effects of older feedback are deleted as well, so it can no longer be undone: no undo
    subtracts from an episode that was created again. Episodes of notes, and feedback that taught
    notes, stay. Learning that began before starts again.

    ``keep`` is the number of the latest feedback whose episodes stay, at least 1; ``run`` is the id
    of the maintenance run.
    """
    key = tx.find_key(namespace)
    old = None if key is None else find_old_episodes(tx.connection, key, keep)
    if key is None or old is None:
        return
    ids, effects = old
    delete_in(tx.connection, s.episodes.c.id, ids)
    delete_in(tx.connection, s.feedback_effects.c.sequence, effects)
    tx.increment_versions(key)
    payload = {"run": run, "episodes": len(ids)}
    write_journal(tx, "compact_episodes", payload, namespace)


def compact_journal(tx: Transaction, keep: int) -> None:
    """Delete all but the latest ``keep`` rows of the journal, at least one."""
    newest = sa.select(s.journal.c.sequence).order_by(s.journal.c.sequence.desc())
    last = tx.scalar(newest.offset(keep).limit(1))
    if last is not None:
        tx.delete(s.journal, s.journal.c.sequence <= last)


def sweep_orphans(tx: Transaction, run: str) -> None:
    """Delete the rows whose namespace, node, turn or feedback is gone.

    ``run`` is the id of the maintenance run, for the journal.
    """
    deleted = {name: tx.delete(TABLES[name], lost) for name, lost in list_orphans().items()}
    write_journal(tx, "sweep", {"run": run, **deleted})


def undo_maintenance(tx: Transaction, run: str) -> None:
    """Undo the changes of one maintenance run, the newest first, as far as the journal reaches.

    What was learned since is kept: a weight that exists again is not overwritten.
    """
    tx.touches_corpus = True
    query = sa.select(s.journal).where(s.journal.c.change.in_(_UNDOABLE), build_run_condition(run))
    for row in tx.run(query.order_by(s.journal.c.sequence.desc())).all():
        inverse = _parse_inverse(row.inverse, run)
        images = inverse["images"]
        restore_rows(tx, images)
        touched = {before["namespace"] for name, before, _ in images if name == "overlay"}
        if touched:
            tx.increment_versions(*touched)
        undone = {"change": f"{row.change}_undone", "inverse": None}
        tx.update(s.journal, s.journal.c.sequence == row.sequence, **undone)


def _parse_inverse(inverse: str | None, run: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(inverse or "")
    except ValueError:
        msg = f"the journal of maintenance {run!r} is damaged: restore a snapshot or an archive"
        raise StoreError(msg) from None
    return found


def set_knobs(
    tx: Transaction,
    run: str,
    namespace: str,
    new: Tuning,
    before: Tuning,
    why: Sequence[Mapping[str, Any]] = (),
) -> None:
    """Set the knobs of a namespace, which is created if it is new; changed knobs are journaled.

    Args:
        tx: The transaction.
        run: Id of the maintenance run, by which the change can be undone.
        namespace: Name of the namespace.
        new: Knobs and history to store.
        before: Those that the caller read.
        why: Reasons, JSON-safe, kept in the journal.

    Raises:
        ConflictError: The stored knobs are not those of ``before``.
    """
    key, _ = tx.get_namespace(namespace, lock=True)
    own = s.namespaces.c.key == key
    query = sa.select(s.namespaces.c.knobs, s.namespaces.c.tuning).where(own)
    if tuple(tx.run(query).one()) != before:
        msg = f"the knobs of {namespace!r} met another change: read again and repeat it"
        raise ConflictError(msg)
    knobs, tuning = new
    tx.update(s.namespaces, own, knobs=knobs, tuning=tuning)
    if knobs != before[0]:
        payload = {"run": run, "knobs": knobs, "why": list(why)}
        images = [("namespaces", *({"key": key, "knobs": each} for each in (before[0], knobs)))]
        write_journal(tx, "set_knobs", payload, namespace, {"images": images})


def record_health(
    tx: Transaction,
    namespace: str,
    clock: int,
    created: float,
    report: Mapping[str, Any],
    keep: int,
) -> None:
    """Store a health report of a namespace; nothing happens if there is no such namespace.

    ``clock`` is the number of its last turn, ``created`` the time; ``keep`` is how many of its
    latest reports are kept.
    """
    key = tx.find_key(namespace)
    if key is None:
        return
    row = {
        "namespace": key,
        "clock": clock,
        "created": created,
        "report": json.dumps(dict(report), allow_nan=False),
    }
    reports = s.health_reports
    tx.add(reports, [row])
    own = reports.c.namespace == key
    latest = sa.select(reports.c.sequence).where(own).order_by(reports.c.sequence.desc())
    # The newest report to delete; the condition is never true while there are too few.
    last = latest.offset(keep).limit(1).scalar_subquery()
    tx.delete(reports, own, reports.c.sequence <= last)
