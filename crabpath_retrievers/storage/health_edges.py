"""Reads of edges for health: of a sample of nodes, and of what one namespace has learned.

What it has learned is counted within its own rows; beyond a bound only the rows of every
so-many-th source are read, always the same ones.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import contents, edges, nodes, overlay, pair_counts

UNWALKED = [kind.value for kind in (EdgeKind.STOP, *TYPED_KINDS)]
"""Numbers of the kinds that no walk follows: health does not count them."""

_GOLDEN, _WORD = 2_654_435_761, 1 << 32  # Fibonacci hashing: consecutive keys are spread evenly
_MOST_PIECES = 20_000
_EDGE = ("source", "target", "kind")


class EdgeRow(NamedTuple):
    """Edges that are alike, as they stood when they were last touched.

    Attributes:
        weight, floor, mark: See :func:`~crabpath_retrievers.graph.effective_weight`.
        authority: Of the node that they lead to.
        crossing: Whether they lead from one document to another; None where an end is a note.
        number: How many.
    """

    weight: float
    floor: float
    mark: float
    authority: int
    crossing: bool | None
    number: int


class Share(NamedTuple):
    """What was found in a sample, and which share of all the sample is."""

    found: Any
    share: float


class Joint(NamedTuple):
    """A pointer of joint use, as it stood when it was last touched; its ends by key."""

    source: int
    target: int
    weight: float
    mark: float
    authority: int


class HealthEdges:
    """Reads of edges, and of what may become one."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def structure(self, keys: Sequence[int], namespace: int) -> list[EdgeRow]:
        """Edges that leave these nodes and that a namespace (by key) has learned nothing about."""
        near, far = contents.alias(), contents.alias()
        same = [overlay.c[name] == edges.c[name] for name in _EDGE]
        learned = sa.exists().where(overlay.c.namespace == namespace, *same)
        crossing = near.c.document != far.c.document
        what = (edges.c.prior, edges.c.floor, edges.c.decay_at, nodes.c.authority, crossing)
        query = (
            sa.select(*what, sa.func.count())
            .select_from(
                edges.join(nodes, nodes.c.key == edges.c.target)
                .join(near, near.c.node == edges.c.source)
                .join(far, far.c.node == edges.c.target)
            )
            .where(~learned)
            .group_by(*what)
        )
        with self._store.reading() as connection:
            return [
                EdgeRow(*row)
                for part in parts(keys)
                for row in connection.execute(query.where(edges.c.source.in_(part)))
            ]

    def learned(self, namespace: int, limit: int) -> Share:
        """Weights that a namespace (by key) has learned and walks by, as :class:`EdgeRow`."""
        near, far, ends = contents.alias(), contents.alias(), nodes.alias()
        same = sa.and_(*(overlay.c[name] == edges.c[name] for name in _EDGE))
        documents = (ends.c.owner == 0) & (nodes.c.owner == 0)
        own = (overlay.c.namespace == namespace, overlay.c.kind.not_in(UNWALKED))
        query = (
            sa.select(
                overlay.c.weight,
                sa.func.coalesce(edges.c.floor, 0.0),
                overlay.c.decay_at,
                nodes.c.authority,
                sa.case((documents, near.c.document != far.c.document)),
            )
            .select_from(
                overlay.join(nodes, nodes.c.key == overlay.c.target)
                .join(ends, ends.c.key == overlay.c.source)
                .join(near, near.c.node == overlay.c.source)
                .join(far, far.c.node == overlay.c.target)
                .outerjoin(edges, same)
            )
            .where(*own)
        )
        with self._store.reading() as connection:
            share, bar = _bar(connection, overlay, own, limit)
            rows = connection.execute(query.where(bar)).all()
        return Share([EdgeRow(*row, 1) for row in rows], share)

    def pairs(self, namespace: int, limit: int) -> Share:
        """Pairs that were used together, and those of them with an edge, as ``(all, edges)``."""
        own = (pair_counts.c.namespace == namespace, pair_counts.c.kind == EdgeKind.CO_USED.value)
        same = [overlay.c[name] == pair_counts.c[name] for name in ("namespace", *_EDGE)]
        query = (
            sa.select(sa.func.count(), sa.func.count(overlay.c.weight))
            .select_from(pair_counts.outerjoin(overlay, sa.and_(*same)))
            .where(*own)
        )
        with self._store.reading() as connection:
            share, bar = _bar(connection, pair_counts, own, limit)
            found, promoted = connection.execute(query.where(bar)).one()
        return Share((found, promoted), share)

    def pieces(self) -> dict[int, str]:
        """The nodes, by key, that were split off another one, with its id."""
        query = (
            sa.select(contents.c.node, contents.c.split_from)
            .where(contents.c.split_from.is_not(None))
            .order_by(contents.c.split_from)
            .limit(_MOST_PIECES)
        )
        with self._store.reading() as connection:
            return {key: whole for key, whole in connection.execute(query)}

    def together(self, namespace: int, keys: Iterable[int]) -> list[Joint]:
        """Pointers of joint use that leave these nodes, in a namespace by key."""
        query = (
            sa.select(
                overlay.c.source,
                overlay.c.target,
                overlay.c.weight,
                overlay.c.decay_at,
                nodes.c.authority,
            )
            .join(nodes, nodes.c.key == overlay.c.target)
            .where(overlay.c.namespace == namespace, overlay.c.kind == EdgeKind.CO_USED.value)
        )
        with self._store.reading() as connection:
            return [
                Joint(*row)
                for part in parts(keys)
                for row in connection.execute(query.where(overlay.c.source.in_(part)))
            ]


def _bar(
    connection: sa.Connection, table: sa.Table, own: Sequence[Any], limit: int
) -> tuple[float, sa.ColumnElement[bool]]:
    """The share of rows that is read, and the condition on their source that says which."""
    total = connection.scalar(sa.select(sa.func.count()).select_from(table).where(*own)) or 0
    if total <= limit:
        return 1.0, sa.true()
    share = limit / total
    return share, (table.c.source * _GOLDEN) % _WORD < int(share * _WORD)
