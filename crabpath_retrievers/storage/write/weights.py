"""Writers of learned weights: updates, their undo, and decay that is made permanent."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.changes import AdjustWeights, WeightDelta
from crabpath_retrievers.core.changes.notes import SetAuthority
from crabpath_retrievers.core.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    CompiledWrite,
    build_insert,
    build_upsert,
    split_batches,
)
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.transaction import Transaction

EdgeKeys = tuple[int, int, int]
"""Keys of source and target, number of the kind."""

_AT_ONCE = 512  # edges in one statement: SQLite takes 500 rows of VALUES without recursion
_MAX_EXPONENT = 20.0  # beyond this, exp() would magnify rounding errors too much


class _Weight(NamedTuple):
    """A learned weight as stored, and the authority of its target."""

    weight: float
    decay_at: float
    authority: int = 0


class _Structure(NamedTuple):
    """A structural edge, and the authority of its target."""

    prior: float
    floor: float
    decay_at: float
    authority: int = 0


def _match_edges(table: sa.Table) -> sa.ColumnElement[bool]:
    """Condition: the row belongs to one of these edges.

    SQLite uses no index for row values; the condition on their sources lets it use one.
    """
    edge = sa.tuple_(table.c.source, table.c.target, table.c.kind)
    of_sources = table.c.source.in_(sa.bindparam("sources", expanding=True))
    return sa.and_(of_sources, edge.in_(sa.bindparam("edges", expanding=True)))


def _edge_columns(table: sa.Table) -> tuple[sa.Column[int], ...]:
    return table.c.source, table.c.target, table.c.kind


def _with_authority(table: sa.Table, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """Select edges with these columns, and the authority of their targets; 0 for STOP."""
    authority = sa.func.coalesce(s.nodes.c.authority, sa.literal_column("0"))
    joined = table.outerjoin(s.nodes, s.nodes.c.key == table.c.target)
    wanted: list[sa.ColumnElement[Any]] = [*_edge_columns(table), *columns, authority]
    return sa.select(*wanted).select_from(joined)


_NAMESPACE: sa.BindParameter[int] = sa.bindparam("namespace")
_EDGES = CompiledSelect(
    _with_authority(s.edges, s.edges.c.prior, s.edges.c.floor, s.edges.c.decay_at).where(
        _match_edges(s.edges)
    )
)
_OVERLAY = CompiledSelect(
    _with_authority(s.overlay, s.overlay.c.weight, s.overlay.c.decay_at).where(
        s.overlay.c.namespace == _NAMESPACE, _match_edges(s.overlay)
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
_UPSERT = CompiledWrite(lambda insert: build_upsert(insert, s.overlay))
_INSERT_CHANGE = CompiledWrite(lambda insert: build_insert(insert, s.weight_changes))
_DROP = CompiledWrite(
    lambda _: s.overlay.delete().where(
        *(s.overlay.c[n] == sa.bindparam(n) for n in ("namespace", "source", "target", "kind"))
    )
)
_DELETE_CHANGES = CompiledWrite(
    lambda _: s.weight_changes.delete().where(
        s.weight_changes.c.namespace == _NAMESPACE,
        s.weight_changes.c.cause == sa.bindparam("cause"),
    )
)


def adjust_weights(tx: Transaction, change: AdjustWeights) -> None:
    """Add deltas to the weights of one namespace."""
    # Locks the namespace: an edge without learned weight has no row to lock.
    namespace, exponent = tx.get_namespace(change.namespace, lock=True)
    WeightWriter(tx.connection, namespace, exponent).adjust(change.deltas, change.cause)


def set_authority(tx: Transaction, change: SetAuthority) -> None:
    """Set the authority of nodes; learned weights to them decay at its rate from now on."""
    for part in split_batches(change.keys):
        materialise_decay(tx, part)
        tx.update(s.nodes, s.nodes.c.key.in_(part), authority=change.authority.value)
    payload = {"keys": list(change.keys), "authority": change.authority.name.lower()}
    write_journal(tx, "authority", payload)


class WeightWriter:
    """Updates the weights of one namespace, whose row the caller has locked."""

    def __init__(self, connection: sa.Connection, namespace: int, exponent: float) -> None:
        """Write on an open transaction.

        Args:
            connection: The transaction.
            namespace: Key of the namespace.
            exponent: Its accumulated decay exponent.
        """
        self._connection = connection
        self._namespace, self._exponent = namespace, exponent

    def adjust(self, deltas: Sequence[WeightDelta], cause: str) -> None:
        """Apply ``weight = clip(decayed(weight) + delta, -1, 1)`` in order; record the changes."""
        edges = list(dict.fromkeys((d.source, d.target, d.kind.value) for d in deltas))
        structure, overlay = self._read_structure(edges), self._read_overlay(edges)
        now = {edge: self._compute_effective(edge, structure, overlay) for edge in edges}
        moves = []
        for delta in deltas:
            edge = (delta.source, delta.target, delta.kind.value)
            new = _clip(now[edge] + delta.delta)
            moves.append((edge, new - now[edge]))
            now[edge] = new
        self._write_weights({edge: _Weight(weight, self._exponent) for edge, weight in now.items()})
        self._insert_changes(moves, cause)

    def _compute_effective(
        self,
        edge: EdgeKeys,
        structure: Mapping[EdgeKeys, _Structure],
        overlay: Mapping[EdgeKeys, _Weight],
    ) -> float:
        structural = structure.get(edge) or _Structure(0.0, 0.0, self._exponent)
        initial = _Weight(
            structural.prior, min(structural.decay_at, self._exponent), structural.authority
        )
        weight, decay_at, authority = overlay.get(edge) or initial
        return effective_weight(
            weight, structural.floor, decay_at, self._exponent, DECAY_RATES[authority]
        )

    def undo(self, cause: str) -> None:
        """Undo the changes of one feedback: subtract what decay has left of them.

        A weight without other changes is deleted. A weight that did not change since becomes what
        it was before the feedback, with its former ``decay_at``.
        """
        parameters = {"namespace": self._namespace, "cause": cause}
        remaining: dict[EdgeKeys, float] = {}
        for *edge, delta, decay_at, authority in _CHANGES_OF_CAUSE.rows(
            self._connection, parameters
        ):
            share = math.exp(DECAY_RATES[authority] * min(0.0, decay_at - self._exponent))
            key = (edge[0], edge[1], edge[2])
            remaining[key] = remaining.get(key, 0.0) + delta * share
        _DELETE_CHANGES.run(self._connection, parameters)
        edges = list(remaining)
        structure, overlay, last = (
            self._read_structure(edges),
            self._read_overlay(edges),
            self._read_last_decay(edges),
        )
        self._delete_weights([edge for edge in edges if edge not in last])
        self._write_weights(
            {
                edge: self._subtract(
                    remaining[edge], overlay[edge], last[edge], structure.get(edge)
                )
                for edge in edges
                if edge in last and edge in overlay
            }
        )

    def _subtract(
        self, remaining: float, stored: _Weight, last: float, structure: _Structure | None
    ) -> _Weight:
        """A weight minus the remainder of a change, written as of the last other change."""
        floor = structure.floor if structure else 0.0
        rate = DECAY_RATES[stored.authority]
        now = (
            effective_weight(stored.weight, floor, stored.decay_at, self._exponent, rate)
            - remaining
        )
        since = rate * (self._exponent - last)
        if not 0 <= since < _MAX_EXPONENT:
            return _Weight(_clip(now), self._exponent)
        return _Weight(_clip(floor + (now - floor) * math.exp(since)), last)

    def _read_structure(self, edges: Sequence[EdgeKeys]) -> dict[EdgeKeys, _Structure]:
        return {
            (a, b, kind): _Structure(*rest) for a, b, kind, *rest in self._select(_EDGES, edges)
        }

    def _read_overlay(self, edges: Sequence[EdgeKeys]) -> dict[EdgeKeys, _Weight]:
        return {(a, b, kind): _Weight(*rest) for a, b, kind, *rest in self._select(_OVERLAY, edges)}

    def _read_last_decay(self, edges: Sequence[EdgeKeys]) -> dict[EdgeKeys, float]:
        return {(a, b, kind): decay_at for a, b, kind, decay_at in self._select(_LAST, edges)}

    def _select(self, select: CompiledSelect, edges: Sequence[EdgeKeys]) -> Iterable[Sequence[Any]]:
        for part in split_batches(edges, _AT_ONCE):
            scope = {} if select is _EDGES else {"namespace": self._namespace}
            parameters = {"edges": part, "sources": list({source for source, *_ in part}), **scope}
            yield from select.rows(self._connection, parameters)

    def _write_weights(self, weights: Mapping[EdgeKeys, _Weight]) -> None:
        rows = [
            {**self._get_columns(edge), "weight": weight, "decay_at": decay_at}
            for edge, (weight, decay_at, _) in weights.items()
        ]
        _UPSERT.run_all(self._connection, rows)

    def _delete_weights(self, edges: Iterable[EdgeKeys]) -> None:
        _DROP.run_all(self._connection, [self._get_columns(edge) for edge in edges])

    def _insert_changes(self, moves: Iterable[tuple[EdgeKeys, float]], cause: str) -> None:
        same = {"cause": cause, "created": time.time(), "decay_at": self._exponent}
        rows = [{**self._get_columns(edge), **same, "delta": delta} for edge, delta in moves]
        _INSERT_CHANGE.run_all(self._connection, rows)

    def _get_columns(self, edge: EdgeKeys) -> dict[str, int]:
        source, target, kind = edge
        return {"namespace": self._namespace, "source": source, "target": target, "kind": kind}


def insert_unattributed_changes(tx: Transaction, namespace: int) -> None:
    """Insert changes without cause for weights that have no changes.

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
    """Effective weight, in [-1, 1], of a learned edge without structural edge; 0 without weight.

    Args:
        tx: The transaction.
        namespace: Key of the namespace.
        edge: Keys of ``source`` and ``target``, number of the ``kind``.
    """
    own = [s.overlay.c[name] == value for name, value in edge.items()]
    query = sa.select(s.overlay, *_NOW).select_from(_join_decay(s.overlay))
    row = tx.run(query.where(s.overlay.c.namespace == namespace, *own)).one_or_none()
    return 0.0 if row is None else _get_effective(row, row.weight, 0.0)


def materialise_decay(tx: Transaction, keys: Sequence[int]) -> None:
    """Replace the learned weights that lead to these nodes by their effective values now.

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
    return effective_weight(amount, floor, row.decay_at, row.exponent, DECAY_RATES[row.authority])
