"""Reads of the hot path: entry nodes, and the outgoing edges of a whole frontier."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import OVERLAY_KINDS, EdgeKind, NodeHead, Pointer, effective_weight
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import (
    edges,
    meta,
    names,
    namespaces,
    nodes,
    overlay,
    terms,
)

_KINDS = {kind.value: kind for kind in EdgeKind}  # a look-up costs a third of EdgeKind(value)


class Clock(NamedTuple):
    """Where a namespace stands: its surrogate key (0 if unseen), turns, decay, times learned."""

    key: int
    turn: int
    exponent: float
    learned: int = 0


class Frontier(NamedTuple):
    """Outgoing edges of a frontier, and the learned weight of STOP per node that has one."""

    pointers: list[Pointer]
    stops: dict[int, float]


_HEAD = (nodes.c.key, nodes.c.id, nodes.c.title, nodes.c.mentions, nodes.c.embedding, nodes.c.terms)
_BY_ID = sa.select(*_HEAD).where(nodes.c.id.in_(sa.bindparam("ids", expanding=True)))
_BY_KEY = sa.select(*_HEAD).where(nodes.c.key.in_(sa.bindparam("keys", expanding=True)))
_HEADS = HotSelect(sa.union_all(_BY_ID, _BY_KEY))
_CLOCK = HotSelect(
    sa.select(
        namespaces.c.key, namespaces.c.turn, namespaces.c.exponent, namespaces.c.learned
    ).where(namespaces.c.name == sa.bindparam("name"))
)
_OWNERS = HotSelect(
    sa.select(names.c.name, names.c.node).where(
        names.c.name.in_(sa.bindparam("names", expanding=True))
    )
)
_TERMS = HotSelect(
    sa.union_all(
        sa.select(terms.c.term, terms.c.frequency, sa.literal_column("1")).where(
            terms.c.term.in_(sa.bindparam("terms", expanding=True))
        ),
        sa.select(meta.c.name, sa.cast(meta.c.value, sa.BigInteger), sa.literal_column("0")).where(
            meta.c.name.in_([sa.literal_column("'nodes'"), sa.literal_column("'tokens'")])
        ),
    )
)


def _outgoing() -> sa.CompoundSelect[Any]:
    frontier: sa.BindParameter[int] = sa.bindparam("keys", expanding=True)
    seen = sa.and_(
        overlay.c.namespace == sa.bindparam("namespace"),
        overlay.c.source == edges.c.source,
        overlay.c.target == edges.c.target,
        overlay.c.kind == edges.c.kind,
    )
    pointers = (
        sa.select(
            edges.c.source,
            edges.c.kind,
            edges.c.prior,
            edges.c.floor,
            edges.c.born,
            overlay.c.weight,
            overlay.c.mark,
            *_HEAD,
        )
        .select_from(edges.join(nodes, nodes.c.key == edges.c.target).outerjoin(overlay, seen))
        .where(edges.c.source.in_(frontier))
    )
    zero = sa.literal_column("0.0", sa.Float)
    learned = (
        sa.select(
            overlay.c.source,
            overlay.c.kind,
            zero,
            zero,
            zero,
            overlay.c.weight,
            overlay.c.mark,
            *_HEAD,
        )
        .select_from(overlay.join(nodes, nodes.c.key == overlay.c.target))
        .where(
            overlay.c.namespace == sa.bindparam("namespace"),
            overlay.c.source.in_(frontier),
            overlay.c.kind.in_([sa.literal_column(str(kind.value)) for kind in OVERLAY_KINDS]),
        )
    )
    stops = sa.select(
        overlay.c.source,
        overlay.c.kind,
        zero,
        zero,
        zero,
        overlay.c.weight,
        overlay.c.mark,
        overlay.c.target,
        sa.null(),
        sa.null(),
        sa.null(),
        sa.null(),
        sa.null(),
    ).where(
        overlay.c.namespace == sa.bindparam("namespace"),
        overlay.c.source.in_(frontier),
        overlay.c.target == sa.literal_column("0"),
    )
    return sa.union_all(pointers, learned, stops)


_OUTGOING = HotSelect(_outgoing())


class WalkQueries:
    """Reads whose cost depends on what is asked for, never on the size of the corpus."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def heads(self, ids: Sequence[str], keys: Sequence[int] = ()) -> list[NodeHead]:
        """The nodes with these ids or keys; unknown ones are left out."""
        with self._store.reading() as connection:
            rows = _HEADS.rows(connection, {"ids": list(ids), "keys": list(keys)})
        return [_head(row) for row in {row[0]: row for row in rows}.values()]

    def outgoing(self, keys: Sequence[int], clock: Clock) -> Frontier:
        """The outgoing edges of all given nodes as one namespace sees them now, in one query."""
        with self._store.reading() as connection:
            rows = _OUTGOING.rows(connection, {"keys": list(keys), "namespace": clock.key})
        pointers: list[Pointer] = []
        stops: dict[int, float] = {}
        heads: dict[int, NodeHead] = {}
        for row in rows:
            source, kind, prior, floor, born, weight, mark, target = row[:8]
            touched = weight is not None
            now = effective_weight(
                weight if touched else prior,
                floor,
                mark if touched else min(born, clock.exponent),
                clock.exponent,
            )
            if kind == EdgeKind.STOP.value:
                stops[source] = now
            else:
                if target not in heads:
                    heads[target] = _head(row[7:])
                pointers.append(Pointer(source, heads[target], _KINDS[kind], now, prior))
        return Frontier(pointers, stops)

    def clock(self, namespace: str) -> Clock:
        """Where the namespace stands; all zero for one that has never been used."""
        with self._store.reading() as connection:
            rows = _CLOCK.rows(connection, {"name": namespace})
        return Clock(*rows[0]) if rows else Clock(0, 0, 0.0)

    def owners(self, candidates: Sequence[str]) -> list[tuple[str, int]]:
        """Which of these names are names of nodes, as ``(name, key)``."""
        if not candidates:
            return []
        with self._store.reading() as connection:
            return [(n, key) for n, key in _OWNERS.rows(connection, {"names": list(candidates)})]

    def frequencies(self, words: Sequence[str]) -> tuple[dict[str, int], int, float]:
        """Document frequencies of the known words, number of nodes, mean length in tokens."""
        with self._store.reading() as connection:
            rows = _TERMS.rows(connection, {"terms": list(words)})
        found = {term: frequency for term, frequency, is_term in rows if is_term}
        counters = {name: value for name, value, is_term in rows if not is_term}
        total = counters.get("nodes", 0)
        return found, total, max(1.0, counters.get("tokens", 0) / max(1, total))


def _head(row: Sequence[Any]) -> NodeHead:
    key, node_id, title, mentions, embedding, terms = row
    return NodeHead(key, node_id, title, mentions, unpack(embedding), terms)
