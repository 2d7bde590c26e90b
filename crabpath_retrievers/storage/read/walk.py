"""Reads of every query: nodes, outgoing edges of a frontier, names, term statistics."""

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.graph import (
    DECAY_RATES,
    OVERLAY_KINDS,
    EdgeKind,
    NodeHead,
    OutgoingEdge,
    effective_weight,
)
from crabpath_retrievers.storage.schema import edges, meta, names, namespaces, nodes, overlay, terms
from crabpath_retrievers.storage.sql_tools import CompiledSelect, Queries, decode_vectors

_STOP = EdgeKind.STOP.value
_KINDS = {kind.value: kind for kind in EdgeKind}  # three times faster than EdgeKind(value)


class Clock(NamedTuple):
    """Clock and counters of a namespace.

    Attributes:
        key: Key of the namespace; 0 for one that does not exist.
        turn: Number of its last turn.
        exponent: Accumulated decay exponent.
        learned: Version of its learned state; 0 before it first learned.
        notes: Number of its notes.
        hubs: Version of the set of hubs; 0 in a corpus without any.
        knobs: Settings that override the configured ones, as JSON; see
            :mod:`crabpath_retrievers.config.settings`.
    """

    key: int
    turn: int
    exponent: float
    learned: int = 0
    notes: int = 0
    hubs: int = 0
    knobs: str | None = None


class QueryFacts(NamedTuple):
    """What a store knows about a query before its candidates are read.

    Attributes:
        clock: State of the namespace; all 0 for one that does not exist.
        frequencies: Document frequency by word; unknown words are left out.
        total: Number of nodes.
        mean_length: Mean length of the nodes in tokens, at least 1.
        named: Keys of the nodes with a name, by name; unknown names are left out.
    """

    clock: Clock
    frequencies: dict[str, int]
    total: int
    mean_length: float
    named: dict[str, list[int]]


class Frontier(NamedTuple):
    """Outgoing edges of a frontier, and the weight of STOP by key of the node that has one."""

    pointers: list[OutgoingEdge]
    stops: dict[int, float]


_IS_CLOCK, _IS_TERM, _IS_COUNTER, _IS_NAME = range(4)

_HEAD = (nodes.c.key, nodes.c.id, nodes.c.title, nodes.c.mentions, nodes.c.embedding, nodes.c.terms)
_ZERO = sa.literal_column("0", sa.Integer)
_IS_VISIBLE = sa.or_(nodes.c.owner == _ZERO, nodes.c.owner == sa.bindparam("namespace"))
_BY_ID = sa.select(*_HEAD).where(_IS_VISIBLE, nodes.c.id.in_(sa.bindparam("ids", expanding=True)))
_BY_KEY = sa.select(*_HEAD).where(
    _IS_VISIBLE, nodes.c.key.in_(sa.bindparam("keys", expanding=True))
)
_HEADS = CompiledSelect(sa.union_all(_BY_ID, _BY_KEY))
_HUBS = sa.select(sa.cast(meta.c.value, sa.BigInteger)).where(meta.c.name == "hubs")
CLOCK_COLUMNS: tuple[sa.ColumnElement[Any], ...] = (
    namespaces.c.key,
    namespaces.c.turn,
    namespaces.c.exponent,
    namespaces.c.version,
    namespaces.c.note_count,
    sa.func.coalesce(_HUBS.scalar_subquery(), 0),
    namespaces.c.knobs,
)
"""Columns of a :class:`Clock`, from ``namespaces``."""
_KEY, *_COUNTERS, _KNOBS = CLOCK_COLUMNS

_CLOCK = CompiledSelect(sa.select(*CLOCK_COLUMNS).where(namespaces.c.name == sa.bindparam("name")))


def _select_fact(kind: int, text: Any, number: Any, *more: Any) -> sa.Select[Any]:
    """A row of ``_FACTS``; the columns that only the clock fills are NULL in the others."""
    nothing: list[Any] = [sa.literal_column("NULL")] * (5 - len(more))
    return sa.select(sa.literal(kind), text, number, *more, *nothing)


_FACTS = CompiledSelect(
    sa.union_all(
        _select_fact(_IS_CLOCK, _KNOBS, _KEY, *_COUNTERS).where(
            namespaces.c.name == sa.bindparam("namespace")
        ),
        _select_fact(_IS_TERM, terms.c.term, terms.c.frequency).where(
            terms.c.term.in_(sa.bindparam("terms", expanding=True))
        ),
        _select_fact(_IS_COUNTER, meta.c.name, sa.cast(meta.c.value, sa.BigInteger)).where(
            meta.c.name.in_(["nodes", "tokens"])
        ),
        _select_fact(_IS_NAME, names.c.name, names.c.node)
        .join(nodes, nodes.c.key == names.c.node)
        .where(names.c.name.in_(sa.bindparam("names", expanding=True)), nodes.c.owner == 0),
    )
)

_LEARNED_ONLY = (EdgeKind.STOP, *OVERLAY_KINDS)  # kinds without structural edges


def _build_outgoing() -> sa.CompoundSelect[Any]:
    frontier: sa.BindParameter[int] = sa.bindparam("keys", expanding=True)
    same_edge = sa.and_(
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
            sa.func.coalesce(overlay.c.weight, edges.c.prior),
            sa.func.coalesce(overlay.c.decay_at, edges.c.decay_at),
            nodes.c.authority,
            *_HEAD,
        )
        .select_from(edges.join(nodes, nodes.c.key == edges.c.target).outerjoin(overlay, same_edge))
        .where(edges.c.source.in_(frontier))
    )
    zero = sa.literal(0.0)
    # A STOP edge has a weight and no target.
    _, *described = _HEAD
    learned = (
        sa.select(
            overlay.c.source,
            overlay.c.kind,
            zero,
            zero,
            overlay.c.weight,
            overlay.c.decay_at,
            sa.func.coalesce(nodes.c.authority, 0),
            overlay.c.target,
            *described,
        )
        .select_from(
            overlay.outerjoin(nodes, sa.and_(nodes.c.key == overlay.c.target, _IS_VISIBLE))
        )
        .where(
            overlay.c.namespace == sa.bindparam("namespace"),
            overlay.c.source.in_(frontier),
            overlay.c.kind.in_([kind.value for kind in _LEARNED_ONLY]),
            sa.or_(overlay.c.target == 0, nodes.c.key.is_not(None)),
        )
    )
    return sa.union_all(pointers, learned)


_OUTGOING = CompiledSelect(_build_outgoing())


class WalkQueries(Queries):
    """Reads whose cost does not grow with the corpus."""

    def get_nodes(
        self, ids: Sequence[str], keys: Sequence[int] = (), *, namespace: int = 0
    ) -> list[NodeHead]:
        """Nodes by id and by key; unknown ones are left out.

        Args:
            ids: Ids of nodes.
            keys: Keys of other nodes.
            namespace: Key of the namespace whose notes are visible; 0 for none.
        """
        wanted = {"ids": list(ids), "keys": list(keys), "namespace": namespace}
        rows = self._run(_HEADS, **wanted)
        distinct = {row[0]: row for row in rows}.values()
        return _heads(*zip(*distinct, strict=True)) if distinct else []

    def get_outgoing_edges(self, keys: Sequence[int], clock: Clock) -> Frontier:
        """Outgoing edges of all given nodes with effective weights, in one statement."""
        rows = self._run(_OUTGOING, keys=list(keys), namespace=clock.key)
        learned = [row for row in rows if row[1] == _STOP]
        stops = {
            source: effective_weight(weight, floor, decay_at, clock.exponent)
            for source, _, _, floor, weight, decay_at, *_ in learned
        }
        read = [row for row in rows if row[1] != _STOP] if learned else rows
        return Frontier(_pointers(read, clock.exponent), stops)

    def get_clock(self, namespace: str) -> Clock:
        """Clock of a namespace; all 0 for one that does not exist."""
        rows = self._run(_CLOCK, name=namespace)
        return Clock(*rows[0]) if rows else Clock(0, 0, 0.0)

    def read_facts(
        self, namespace: str, words: Sequence[str], names: Sequence[str] = ()
    ) -> QueryFacts:
        """Clock, term statistics and owners of names, in one statement.

        Args:
            namespace: The namespace that asks.
            words: Words of the query.
            names: Normalised names that the query may contain.
        """
        rows = self._run(_FACTS, namespace=namespace, terms=list(words), names=list(names))
        clock, frequencies, counters = Clock(0, 0, 0.0), {}, {}
        named: dict[str, list[int]] = {}
        for kind, text, number, *more in rows:
            if kind == _IS_TERM:
                frequencies[text] = number
            elif kind == _IS_NAME:
                named.setdefault(text, []).append(number)
            elif kind == _IS_COUNTER:
                counters[text] = number
            else:
                turn, exponent, version, notes, hubs = more
                clock = Clock(number, turn, exponent, version, notes, hubs, text)
        total = counters.get("nodes", 0)
        mean_length = max(1.0, counters.get("tokens", 0) / max(1, total))
        return QueryFacts(clock, frequencies, total, mean_length, named)


def _pointers(rows: Sequence[Sequence[Any]], exponent: float) -> list[OutgoingEdge]:
    """Decode rows to edges with their targets, column by column: there are hundreds of rows."""
    if not rows:
        return []
    sources, kinds, priors, floors, weights, decay_exponents, ranks, *targets = zip(
        *rows, strict=True
    )
    now = [
        # Most edges do not decay: then one comparison is enough.
        weight
        if weight == floor or exponent <= decay_at
        else effective_weight(weight, floor, decay_at, exponent, DECAY_RATES[rank])
        for weight, floor, decay_at, rank in zip(
            weights, floors, decay_exponents, ranks, strict=True
        )
    ]
    found = zip(sources, _heads(*targets), map(_KINDS.__getitem__, kinds), now, priors, strict=True)
    return list(map(partial(tuple.__new__, OutgoingEdge), found))


def _heads(
    keys: Sequence[int],
    ids: Sequence[str],
    titles: Sequence[str],
    mentions: Sequence[int],
    embeddings: Sequence[bytes],
    terms: Sequence[bytes],
) -> list[NodeHead]:
    columns = zip(keys, ids, titles, mentions, decode_vectors(embeddings), terms, strict=True)
    return list(map(partial(tuple.__new__, NodeHead), columns))
