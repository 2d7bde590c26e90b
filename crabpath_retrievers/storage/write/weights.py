"""Writers of learned weights: updates, their undo, and decay that is made permanent."""

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.changes import AdjustWeights
from crabpath_retrievers.core.records import Authority, StoredWeight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import (
    ROUNDING,
    CompiledSelect,
    CompiledWrite,
    build_insert,
    build_upsert,
    is_one_of,
    split_batches,
)
from crabpath_retrievers.storage.write.transaction import Transaction, write_journal

EdgeKeys = tuple[int, int, int]
"""Keys of source and target, number of the kind."""

_AT_ONCE = 256  # edges in one statement: SQLite takes 500 rows of VALUES without recursion


def _match_edges(table: sa.Table) -> sa.ColumnElement[bool]:
    """Condition: the row belongs to one of these edges.

    SQLite uses no index for row values; the condition on their sources lets it use one.
    """
    edge = sa.tuple_(table.c.source, table.c.target, table.c.kind)
    of_sources = table.c.source.in_(sa.bindparam("sources", expanding=True))
    return sa.and_(of_sources, edge.in_(sa.bindparam("edges", expanding=True)))


def _edge_columns(table: sa.Table) -> tuple[sa.Column[int], ...]:
    return table.c.source, table.c.target, table.c.kind


def _with_authority(table: sa.Table, *columns: sa.ColumnElement[Any]) -> sa.Select[Any]:
    """Select edges with these columns, and the authority of their targets; 0 for STOP."""
    authority = sa.func.coalesce(s.nodes.c.authority, sa.literal_column("0"))
    joined = table.outerjoin(s.nodes, s.nodes.c.key == table.c.target)
    wanted: list[sa.ColumnElement[Any]] = [*_edge_columns(table), *columns, authority]
    return sa.select(*wanted).select_from(joined)


_NAMESPACE: sa.BindParameter[int] = sa.bindparam("namespace")
_EDGE, _EARLIER = ("namespace", "source", "target", "kind"), s.weight_changes.alias()
_NO, _YES = (sa.literal_column(number, sa.Integer) for number in "01")
_CURRENT = CompiledSelect(
    sa.union_all(
        _with_authority(s.edges, _NO, s.edges.c.prior, s.edges.c.decay_at, s.edges.c.floor).where(
            _match_edges(s.edges)
        ),
        _with_authority(s.overlay, _YES, s.overlay.c.weight, s.overlay.c.decay_at, _NO).where(
            s.overlay.c.namespace == _NAMESPACE, _match_edges(s.overlay)
        ),
    )
)
_LAST = CompiledSelect(
    sa.select(*_edge_columns(s.weight_changes), sa.func.max(s.weight_changes.c.decay_at))
    .where(s.weight_changes.c.namespace == _NAMESPACE, _match_edges(s.weight_changes))
    .group_by(*_edge_columns(s.weight_changes))
)
_CHANGES_OF_CAUSE = CompiledSelect(
    _with_authority(s.weight_changes, s.weight_changes.c.delta, s.weight_changes.c.decay_at)
    .where(
        s.weight_changes.c.namespace == _NAMESPACE,
        s.weight_changes.c.cause == sa.bindparam("cause"),
    )
    .order_by(s.weight_changes.c.sequence)
)
_REDUCE_LAST = CompiledWrite(
    lambda _: (
        s.weight_changes.update()
        .where(
            s.weight_changes.c.sequence
            == sa.select(sa.func.max(_EARLIER.c.sequence))
            .where(*(_EARLIER.c[name] == sa.bindparam(f"the_{name}") for name in _EDGE))
            .scalar_subquery()
        )
        .values(delta=s.weight_changes.c.delta - sa.bindparam("taken", type_=sa.Float()))
    )
)
_UPSERT = CompiledWrite(lambda insert: build_upsert(insert, s.overlay))
_INSERT_CHANGE = CompiledWrite(lambda insert: build_insert(insert, s.weight_changes))
_DROP = CompiledWrite(
    lambda _: s.overlay.delete().where(*(s.overlay.c[n] == sa.bindparam(n) for n in _EDGE))
)
_DELETE_CHANGES = CompiledWrite(
    lambda _: s.weight_changes.delete().where(
        s.weight_changes.c.namespace == _NAMESPACE,
        s.weight_changes.c.cause == sa.bindparam("cause"),
    )
)


def adjust_weights(tx: Transaction, change: AdjustWeights) -> None:
    """Add the deltas of a change to learned weights, in order, and record the changes.

    A weight decays until now before it is changed, and stays in [-1, 1]. Edges of nodes that do not
    exist are left out.
    """
    # Locks the namespace: an edge without learned weight has no row to lock.
    namespace, exponent = tx.get_namespace(change.namespace, lock=True)
    alive = tx.hold_nodes(end for d in change.deltas for end in (d.source, d.target))
    deltas = [d for d in change.deltas if d.source in alive and d.target in alive]
    edges = list(dict.fromkeys((d.source, d.target, d.kind.value) for d in deltas))
    structure, overlay = _read_current(tx, namespace, edges)
    now: dict[EdgeKeys, float] = {}
    for edge in edges:
        stored = overlay.get(edge) or structure.get(edge) or StoredWeight(0.0, exponent)
        now[edge] = stored.decay_to(exponent)
    same = {"cause": change.cause, "created": time.time(), "decay_at": exponent}
    moves = []
    for delta in deltas:
        edge = (delta.source, delta.target, delta.kind.value)
        new = _clip(now[edge] + delta.delta)
        moves.append({**_get_columns(namespace, edge), **same, "delta": new - now[edge]})
        now[edge] = new
    _write_weights(tx, namespace, {edge: (weight, exponent) for edge, weight in now.items()})
    _INSERT_CHANGE.run_all(tx.connection, moves)


def undo_weights(tx: Transaction, namespace: int, exponent: float, cause: str) -> None:
    """Undo the changes of one feedback: subtract what decay has left of them.

    ``namespace`` is a key, ``exponent`` its decay now, and ``cause`` the id of the feedback. A
    weight without other changes is deleted. A weight that did not change since becomes what it was
    before the feedback, with its former ``decay_at``.
    """
    parameters = {"namespace": namespace, "cause": cause}
    remaining: dict[EdgeKeys, float] = {}
    rows = _CHANGES_OF_CAUSE.rows(tx.connection, parameters)
    for source, target, kind, delta, decay_at, authority in rows:
        left = StoredWeight(delta, decay_at, authority=authority).decay_to(exponent)
        edge = (source, target, kind)
        remaining[edge] = remaining.get(edge, 0.0) + left
    _DELETE_CHANGES.run(tx.connection, parameters)
    edges = list(remaining)
    _, overlay = _read_current(tx, namespace, edges)
    latest = _select(tx, _LAST, edges, namespace=namespace)
    last = {(source, target, kind): decay_at for source, target, kind, decay_at in latest}
    gone = [_get_columns(namespace, edge) for edge in edges if edge not in last]
    _DROP.run_all(tx.connection, gone)
    written: dict[EdgeKeys, tuple[float, float]] = {}
    taken: dict[EdgeKeys, float] = {}
    for edge in edges:
        if edge in last and edge in overlay:
            weight = overlay[edge].decay_to(exponent) - remaining[edge]
            now = overlay[edge]._replace(weight=weight, decay_at=exponent)
            # Written as of the last other change.
            if now.can_return_to(last[edge]):
                now = now.move_to(last[edge])
                taken[edge] = now.weight - _clip(now.weight)
            written[edge] = (_clip(now.weight), now.decay_at)
    _write_weights(tx, namespace, written)
    # What the bound takes of a weight, the last other change of it did not add: undone, it would
    # be subtracted.
    lowered = [
        {"taken": amount, **{f"the_{k}": v for k, v in _get_columns(namespace, edge).items()}}
        for edge, amount in taken.items()
        if abs(amount) > ROUNDING
    ]
    _REDUCE_LAST.run_all(tx.connection, lowered)


def _read_current(
    tx: Transaction, namespace: int, edges: Sequence[EdgeKeys]
) -> tuple[dict[EdgeKeys, StoredWeight], dict[EdgeKeys, StoredWeight]]:
    """Read structural and learned weights of ``edges``, in one statement.

    Returns:
        The structural ones, and the learned ones; edges without such a weight are left out of each.
    """
    structure: dict[EdgeKeys, StoredWeight] = {}
    overlay: dict[EdgeKeys, StoredWeight] = {}
    for a, b, kind, is_learned, *weight in _select(tx, _CURRENT, edges, namespace=namespace):
        (overlay if is_learned else structure)[a, b, kind] = StoredWeight(*weight)
    for edge in structure.keys() & overlay.keys():
        overlay[edge] = overlay[edge]._replace(floor=structure[edge].floor)
    return structure, overlay


def _select(
    tx: Transaction, select: CompiledSelect, edges: Sequence[EdgeKeys], **scope: int
) -> Iterator[Sequence[Any]]:
    for part in split_batches(edges, _AT_ONCE):
        sources = list({source for source, *_ in part})
        yield from select.rows(tx.connection, {"edges": part, "sources": sources, **scope})


def _write_weights(
    tx: Transaction, namespace: int, weights: Mapping[EdgeKeys, tuple[float, float]]
) -> None:
    rows = [
        {**_get_columns(namespace, edge), "weight": weight, "decay_at": decay_at}
        for edge, (weight, decay_at) in weights.items()
    ]
    _UPSERT.run_all(tx.connection, rows)


def _get_columns(namespace: int, edge: EdgeKeys) -> dict[str, int]:
    source, target, kind = edge
    return {"namespace": namespace, "source": source, "target": target, "kind": kind}


def set_authority(tx: Transaction, keys: Sequence[int], authority: Authority) -> None:
    """Set the authority of nodes; from now on, learned weights to them decay at its rate."""
    tx.touches_corpus = True
    for part in split_batches(keys):
        materialise_decay(tx, part)
        tx.update(s.nodes, is_one_of(tx.connection, s.nodes.c.key, part), authority=authority.value)
    payload = {"keys": list(keys), "authority": authority.name.lower()}
    write_journal(tx, "authority", payload)


def insert_unattributed_changes(tx: Transaction, namespace: int) -> None:
    """Insert a change without cause for each weight of a namespace that has no changes.

    Undo deletes weights without other changes; this keeps those of unknown origin.
    """
    edge = [s.overlay.c[name] for name in ("namespace", "source", "target", "kind")]
    own = [s.weight_changes.c[column.name] == column for column in edge]
    columns = [*edge, sa.literal(""), sa.literal(0.0), sa.literal(0.0), s.overlay.c.decay_at]
    query = sa.select(*columns).where(s.overlay.c.namespace == namespace, ~sa.exists().where(*own))
    names = [column.name for column in s.weight_changes.c if column.name != "sequence"]
    tx.run(s.weight_changes.insert().from_select(names, query))


def _clip(weight: float) -> float:
    return max(-1.0, min(1.0, weight))


_NOW = (s.namespaces.c.exponent, s.nodes.c.authority)


def _join_decay(table: sa.Table) -> sa.Join:
    """Join rows with the namespace and the target node that determine their decay."""
    of = s.namespaces.c.key == table.c.namespace
    return table.join(s.namespaces, of).join(s.nodes, s.nodes.c.key == table.c.target)


def read_effective_weight(tx: Transaction, namespace: int, edge: Mapping[str, int]) -> float:
    """Read the weight, in [-1, 1], of a learned edge without structural edge; 0 without one."""
    own = [s.overlay.c[name] == value for name, value in edge.items()]
    query = sa.select(s.overlay, *_NOW).select_from(_join_decay(s.overlay))
    row = tx.run(query.where(s.overlay.c.namespace == namespace, *own)).one_or_none()
    return 0.0 if row is None else _get_effective(row, row.weight, 0.0)


def materialise_decay(tx: Transaction, keys: Sequence[int]) -> None:
    """Replace the learned weights that lead to the nodes ``keys`` by their effective values.

    The weight changes behind them are replaced alike, so that undo stays exact.
    """
    o, e, w = s.overlay, s.edges, s.weight_changes
    same = sa.and_(o.c.source == e.c.source, o.c.target == e.c.target, o.c.kind == e.c.kind)
    floor = sa.func.coalesce(e.c.floor, 0.0).label("floor")
    weights = sa.select(o, floor, *_NOW).select_from(_join_decay(o).outerjoin(e, same))
    changes = sa.select(w, sa.literal(0.0).label("floor"), *_NOW).select_from(_join_decay(w))
    for table, name, query in ((o, "weight", weights), (w, "delta", changes)):
        key = [column.name for column in table.primary_key]
        own = [table.c[column] == sa.bindparam(f"the_{column}") for column in key]
        values: dict[str, Any] = {name: sa.bindparam("to"), "decay_at": sa.bindparam("now")}
        rows = [
            {
                **{f"the_{column}": getattr(row, column) for column in key},
                "to": _get_effective(row, getattr(row, name), row.floor),
                "now": max(row.decay_at, row.exponent),
            }
            for row in tx.run(query.where(table.c.target.in_(keys)))
        ]
        if rows:
            tx.run(table.update().where(*own).values(values), rows)


def _get_effective(row: Any, amount: float, floor: float) -> float:
    return StoredWeight(amount, row.decay_at, floor, row.authority).decay_to(row.exponent)
