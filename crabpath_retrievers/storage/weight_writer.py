"""How learned weights move, and how moves are taken back: a few statements, however many edges."""

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.changes import WeightDelta
from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.hot import HotSelect, HotWrite, inserted, upserted

Edge = tuple[int, int, int]
"""Keys of source and target, number of the kind."""

_AT_ONCE = 512  # edges in one statement: SQLite takes 500 rows of VALUES without recursion
_LATE = 20.0  # a mark further back would magnify rounding too much


class _Weight(NamedTuple):
    """A stored weight, with the decay exponent at its last touch, and where the edge leads."""

    weight: float
    decay_at: float
    authority: int = 0


class _Structure(NamedTuple):
    """What the text says of an edge, and the authority of the node that it leads to."""

    prior: float
    floor: float
    decay_at: float
    authority: int = 0


def _of(table: sa.Table) -> sa.ColumnElement[bool]:
    """Whether a row is of one of these edges.

    SQLite finds no index for rows of three values; by their sources alone it does.
    """
    edge = sa.tuple_(table.c.source, table.c.target, table.c.kind)
    near = table.c.source.in_(sa.bindparam("sources", expanding=True))
    return sa.and_(near, edge.in_(sa.bindparam("edges", expanding=True)))


def _edge(table: sa.Table) -> tuple[sa.Column[int], ...]:
    return table.c.source, table.c.target, table.c.kind


def _with_authority(table: sa.Table, *columns: sa.Column[Any]) -> sa.Select[Any]:
    """Edges with these columns, and the authority of the node that each leads to.

    STOP leads to none.
    """
    authority = sa.func.coalesce(s.nodes.c.authority, sa.literal_column("0"))
    joined = table.outerjoin(s.nodes, s.nodes.c.key == table.c.target)
    wanted: list[sa.ColumnElement[Any]] = [*_edge(table), *columns, authority]
    return sa.select(*wanted).select_from(joined)


_MINE: sa.BindParameter[int] = sa.bindparam("namespace")
_EDGES = HotSelect(
    _with_authority(s.edges, s.edges.c.prior, s.edges.c.floor, s.edges.c.decay_at).where(
        _of(s.edges)
    )
)
_OVERLAY = HotSelect(
    _with_authority(s.overlay, s.overlay.c.weight, s.overlay.c.decay_at).where(
        s.overlay.c.namespace == _MINE, _of(s.overlay)
    )
)
_LAST = HotSelect(
    sa.select(*_edge(s.weight_changes), sa.func.max(s.weight_changes.c.decay_at))
    .where(s.weight_changes.c.namespace == _MINE, _of(s.weight_changes))
    .group_by(*_edge(s.weight_changes))
)
_CAUSED = HotSelect(
    _with_authority(s.weight_changes, s.weight_changes.c.delta, s.weight_changes.c.decay_at)
    .where(s.weight_changes.c.namespace == _MINE, s.weight_changes.c.cause == sa.bindparam("cause"))
    .order_by(s.weight_changes.c.sequence)
)
_PUT = HotWrite(lambda insert: upserted(insert, s.overlay))
_MOVED = HotWrite(lambda insert: inserted(insert, s.weight_changes))
_DROP = HotWrite(
    lambda _: s.overlay.delete().where(
        *(s.overlay.c[n] == sa.bindparam(n) for n in ("namespace", "source", "target", "kind"))
    )
)
_UNMOVE = HotWrite(
    lambda _: s.weight_changes.delete().where(
        s.weight_changes.c.namespace == _MINE, s.weight_changes.c.cause == sa.bindparam("cause")
    )
)


class WeightWriter:
    """Moves the weights of one namespace, whose row the caller has locked."""

    def __init__(self, connection: sa.Connection, namespace: int, exponent: float) -> None:
        """Write on an open transaction.

        Args:
            connection: The transaction.
            namespace: Key of the namespace.
            exponent: Its accumulated decay exponent now.
        """
        self._connection = connection
        self._namespace, self._exponent = namespace, exponent

    def adjust(self, deltas: Sequence[WeightDelta], cause: str) -> None:
        """``weight = clip(decayed(weight) + delta)``, one after the other, and who caused it."""
        edges = list(dict.fromkeys((d.source, d.target, d.kind.value) for d in deltas))
        structure, overlay = self._structure(edges), self._overlay(edges)
        now = {edge: self._effective(edge, structure, overlay) for edge in edges}
        moves = []
        for delta in deltas:
            edge = (delta.source, delta.target, delta.kind.value)
            new = _clipped(now[edge] + delta.delta)
            moves.append((edge, new - now[edge]))
            now[edge] = new
        self._put({edge: _Weight(weight, self._exponent) for edge, weight in now.items()})
        self._note(moves, cause)

    def _effective(
        self, edge: Edge, structure: Mapping[Edge, _Structure], overlay: Mapping[Edge, _Weight]
    ) -> float:
        text = structure.get(edge) or _Structure(0.0, 0.0, self._exponent)
        begun = _Weight(text.prior, min(text.decay_at, self._exponent), text.authority)
        weight, decay_at, authority = overlay.get(edge) or begun
        return effective_weight(
            weight, text.floor, decay_at, self._exponent, DECAY_RATES[authority]
        )

    def take_back(self, cause: str) -> None:
        """Undo the moves of one feedback: what decay has left of them is subtracted.

        A weight that nothing else has moved leaves the overlay. One that is as the feedback left
        it becomes what it was before, mark included.
        """
        given = {"namespace": self._namespace, "cause": cause}
        left: dict[Edge, float] = {}
        for *edge, delta, decay_at, authority in _CAUSED.rows(self._connection, given):
            share = math.exp(DECAY_RATES[authority] * min(0.0, decay_at - self._exponent))
            key = (edge[0], edge[1], edge[2])
            left[key] = left.get(key, 0.0) + delta * share
        _UNMOVE.run(self._connection, given)
        edges = list(left)
        structure, overlay, last = self._structure(edges), self._overlay(edges), self._last(edges)
        self._drop([edge for edge in edges if edge not in last])
        self._put(
            {
                edge: self._reduced(left[edge], overlay[edge], last[edge], structure.get(edge))
                for edge in edges
                if edge in last and edge in overlay
            }
        )

    def _reduced(
        self, left: float, stored: _Weight, last: float, structure: _Structure | None
    ) -> _Weight:
        """A weight without what is left of a move, as of the last move that remains."""
        floor = structure.floor if structure else 0.0
        rate = DECAY_RATES[stored.authority]
        now = effective_weight(stored.weight, floor, stored.decay_at, self._exponent, rate) - left
        since = rate * (self._exponent - last)
        if not 0 <= since < _LATE:
            return _Weight(_clipped(now), self._exponent)
        return _Weight(_clipped(floor + (now - floor) * math.exp(since)), last)

    def _structure(self, edges: Sequence[Edge]) -> dict[Edge, _Structure]:
        return {(a, b, kind): _Structure(*rest) for a, b, kind, *rest in self._read(_EDGES, edges)}

    def _overlay(self, edges: Sequence[Edge]) -> dict[Edge, _Weight]:
        return {(a, b, kind): _Weight(*rest) for a, b, kind, *rest in self._read(_OVERLAY, edges)}

    def _last(self, edges: Sequence[Edge]) -> dict[Edge, float]:
        return {(a, b, kind): decay_at for a, b, kind, decay_at in self._read(_LAST, edges)}

    def _read(self, select: HotSelect, edges: Sequence[Edge]) -> Iterable[Sequence[Any]]:
        for part in parts(edges, _AT_ONCE):
            mine = {} if select is _EDGES else {"namespace": self._namespace}
            given = {"edges": part, "sources": list({source for source, *_ in part}), **mine}
            yield from select.rows(self._connection, given)

    def _put(self, weights: Mapping[Edge, _Weight]) -> None:
        rows = [
            {**self._named(edge), "weight": weight, "decay_at": decay_at}
            for edge, (weight, decay_at, _) in weights.items()
        ]
        _PUT.run_all(self._connection, rows)

    def _drop(self, edges: Iterable[Edge]) -> None:
        _DROP.run_all(self._connection, [self._named(edge) for edge in edges])

    def _note(self, moves: Iterable[tuple[Edge, float]], cause: str) -> None:
        same = {"cause": cause, "created": time.time(), "decay_at": self._exponent}
        rows = [{**self._named(edge), **same, "delta": delta} for edge, delta in moves]
        _MOVED.run_all(self._connection, rows)

    def _named(self, edge: Edge) -> dict[str, int]:
        source, target, kind = edge
        return {"namespace": self._namespace, "source": source, "target": target, "kind": kind}


def unknown_moves(namespace: int | None = None) -> sa.Insert:
    """A move of no known cause for every weight that has no other: so it does not go with one.

    Args:
        namespace: Whose weights; None for all.
    """
    edge = [s.overlay.c[name] for name in ("namespace", "source", "target", "kind")]
    own = [s.weight_changes.c[column.name] == column for column in edge]
    columns = [*edge, sa.literal(""), sa.literal(0.0), sa.literal(0.0), s.overlay.c.decay_at]
    query = sa.select(*columns).where(~sa.exists().where(*own))
    if namespace is not None:
        query = query.where(s.overlay.c.namespace == namespace)
    names = [column.name for column in s.weight_changes.c if column.name != "sequence"]
    return s.weight_changes.insert().from_select(names, query)


def _clipped(weight: float) -> float:
    return max(-1.0, min(1.0, weight))
