"""Writers of maintenance, whose changes the journal can undo; knobs, health reports, trials."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.changes import PutEdges
from crabpath_retrievers.core.changes import maintenance as m
from crabpath_retrievers.errors import ConflictError, StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.read.maintenance import (
    build_run_condition,
    find_awaited_turns,
    find_old_episodes,
)
from crabpath_retrievers.storage.read.turns import build_trial_key
from crabpath_retrievers.storage.registry import TABLES, list_orphans
from crabpath_retrievers.storage.sql_tools import delete_in, split_batches
from crabpath_retrievers.storage.write.journal import (
    RowChange,
    get_primary_key,
    read_rows,
    restore_rows,
    write_journal,
)
from crabpath_retrievers.storage.write.nodes import build_edge_rows, put_edges
from crabpath_retrievers.storage.write.transaction import Transaction

_EDGE = ("source", "target", "kind")
_UNDOABLE = ("drop_weights", "connect_nodes", "set_knobs")
_AT_ONCE = 500  # rows of three values in one statement


def drop_weights(tx: Transaction, change: m.DropWeights) -> None:
    """Delete those of the weights, with their history, that did not change since they were read."""
    key = tx.find_key(change.namespace)
    if key is None:  # the namespace was deleted in the meantime
        return
    images: list[RowChange] = []
    for part in split_batches(change.edges, _AT_ONCE):
        expected = {edge[:3]: edge.decay_at for edge in part}
        rows = _select_edges(tx, s.overlay, key, list(expected))
        same = [row for row in rows if row["decay_at"] == expected[_get_edge(row)]]
        edges = [_get_edge(row) for row in same]
        images += [("overlay", row, None) for row in same]
        moves = _select_edges(tx, s.weight_changes, key, edges) if edges else []
        images += [("weight_changes", row, None) for row in moves]
        for table in (s.overlay, s.weight_changes) if edges else ():
            tx.delete(table, _match_edges(table, key, edges))
    tx.increment_versions(key)
    payload = {"run": change.run, "weights": sum(table == "overlay" for table, *_ in images)}
    write_journal(tx, "drop_weights", payload, change.namespace, {"images": images})


def _get_edge(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in _EDGE)


def _select_edges(
    tx: Transaction, table: sa.Table, namespace: int, edges: Sequence[Any]
) -> list[dict[str, Any]]:
    return tx.dicts(sa.select(table).where(_match_edges(table, namespace, edges)))


def _match_edges(table: sa.Table, namespace: int, edges: Sequence[Any]) -> sa.ColumnElement[bool]:
    """Condition: the row belongs to one of these edges of a namespace."""
    edge = sa.tuple_(*(table.c[name] for name in _EDGE)).in_(edges)
    near = table.c.source.in_({source for source, *_ in edges})
    return sa.and_(table.c.namespace == namespace, near, edge)


def connect_nodes(tx: Transaction, change: m.ConnectNodes) -> None:
    """Add edges to isolated nodes."""
    rows = build_edge_rows(tx, change.edges)
    before = read_rows(tx, "edges", (get_primary_key("edges", row) for row in rows))
    put_edges(tx, PutEdges(change.edges))
    after = read_rows(tx, "edges", (get_primary_key("edges", row) for row in rows))
    images = [("edges", before.get(key), row) for key, row in after.items()]
    payload = {"run": change.run, "edges": len(change.edges)}
    write_journal(tx, "connect_nodes", payload, inverse={"images": images})


def compact_turns(tx: Transaction, change: m.CompactTurns) -> None:
    """Delete old turn records."""
    key = tx.find_key(change.namespace)
    if key is None:
        return
    old = sa.and_(s.turns.c.namespace == key, s.turns.c.clock <= change.until)
    deletable = sa.and_(old, s.turns.c.id.not_in(find_awaited_turns(tx.connection)))
    ids = sa.select(s.turns.c.id).where(deletable)
    tx.delete(s.consumed_turns, s.consumed_turns.c.turn.in_(ids))
    payload = {"run": change.run, "turns": tx.delete(s.turns, deletable)}
    write_journal(tx, "compact_turns", payload, change.namespace)


def compact_episodes(tx: Transaction, change: m.CompactEpisodes) -> None:
    """Delete old episodes; a feedback that was read before this meets a new version."""
    key = tx.find_key(change.namespace)
    old = None if key is None else find_old_episodes(tx.connection, key, change.keep)
    if key is None or old is None:
        return
    delete_in(tx.connection, s.episodes.c.id, old.episodes)
    delete_in(tx.connection, s.feedback_effects.c.sequence, old.effects)
    tx.increment_versions(key)
    payload = {"run": change.run, "episodes": len(old.episodes)}
    write_journal(tx, "compact_episodes", payload, change.namespace)


def compact_journal(tx: Transaction, change: m.CompactJournal) -> None:
    """Delete all but the latest rows of the journal."""
    newest = sa.select(s.journal.c.sequence).order_by(s.journal.c.sequence.desc())
    last = tx.scalar(newest.offset(change.keep).limit(1))
    if last is not None:
        tx.delete(s.journal, s.journal.c.sequence <= last)


def sweep_orphans(tx: Transaction, change: m.SweepOrphans) -> None:
    """Delete rows whose owner is gone."""
    deleted = {name: tx.delete(TABLES[name], lost) for name, lost in list_orphans().items()}
    write_journal(tx, "sweep", {"run": change.run, **deleted})


def undo_maintenance(tx: Transaction, change: m.UndoMaintenance) -> None:
    """Undo the changes of a run, the newest first."""
    query = sa.select(s.journal).where(
        s.journal.c.change.in_(_UNDOABLE), build_run_condition(change.run)
    )
    for row in tx.run(query.order_by(s.journal.c.sequence.desc())).all():
        inverse = _parse_inverse(row.inverse, change.run)
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


def set_knobs(tx: Transaction, change: m.SetKnobs) -> None:
    """Set the knobs and the tuning state of a namespace.

    Raises:
        ConflictError: The stored values are not the expected ones.
    """
    key, _ = tx.get_namespace(change.namespace, lock=True)
    own = s.namespaces.c.key == key
    query = sa.select(s.namespaces.c.knobs, s.namespaces.c.tuning).where(own)
    if tuple(tx.run(query).one()) != change.before:
        msg = f"the knobs of {change.namespace!r} met another change: read again and repeat it"
        raise ConflictError(msg)
    tx.update(s.namespaces, own, knobs=change.knobs, tuning=change.tuning)
    if change.knobs != change.before[0]:
        payload = {"run": change.run, "knobs": change.knobs, "why": list(change.why)}
        before, after = ({"key": key, "knobs": knobs} for knobs in (change.before[0], change.knobs))
        images = [("namespaces", before, after)]
        write_journal(tx, "set_knobs", payload, change.namespace, {"images": images})


def record_health(tx: Transaction, change: m.RecordHealth) -> None:
    """Store a report, and delete all but the latest; does nothing for an unknown namespace."""
    key = tx.find_key(change.namespace)
    if key is None:
        return
    row = {
        "namespace": key,
        "clock": change.clock,
        "created": change.created,
        "report": json.dumps(dict(change.report), allow_nan=False),
    }
    reports = s.health_reports
    tx.add(reports, [row])
    own = reports.c.namespace == key
    latest = sa.select(reports.c.sequence).where(own).order_by(reports.c.sequence.desc())
    # The newest report to delete; the condition is never true while there are too few.
    last = latest.offset(change.keep).limit(1).scalar_subquery()
    tx.delete(reports, own, reports.c.sequence <= last)


def keep_trial(tx: Transaction, change: m.KeepTrial) -> None:
    """Replace the state of a trial, or insert that of a new one.

    Raises:
        ConflictError: The stored state is not the expected one.
    """
    name = build_trial_key(change.name)
    if change.before is None:
        new = tx.insert(s.meta).values(name=name, value=change.after)
        added = tx.run(new.on_conflict_do_nothing().returning(s.meta.c.name)).first()
        done = added is not None
    else:
        expected = (s.meta.c.name == name, s.meta.c.value == change.before)
        done = tx.update(s.meta, *expected, value=change.after) > 0
    if not done:
        msg = f"trial {change.name!r} was changed by somebody else meanwhile: try again"
        raise ConflictError(msg)
    write_journal(tx, "trial", {"trial": change.name, "state": json.loads(change.after)})
