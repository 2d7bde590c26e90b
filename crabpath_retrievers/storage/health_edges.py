"""Reads of edges for health reports: structural ones of sampled nodes, learned ones of a namespace.

Learned rows are read in full up to a limit; beyond it, those of a fixed pseudo-random share of the
source nodes.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind
from crabpath_retrievers.storage.batching import split_batches
from crabpath_retrievers.storage.reading import ReadableStore
from crabpath_retrievers.storage.schema import contents, edges, nodes, overlay, pair_counts

KINDS_NOT_WALKED = [kind.value for kind in (EdgeKind.STOP, *TYPED_KINDS)]
"""Numbers of the edge kinds that retrieval does not follow; health does not count them."""

_GOLDEN, _WORD = 2_654_435_761, 1 << 32  # Fibonacci hashing: consecutive keys are spread evenly
_MAX_PARTS = 20_000
_EDGE = ("source", "target", "kind")


class EdgeGroup(NamedTuple):
    """A group of edges with equal values.

    Attributes:
        weight, floor, decay_at: See :func:`~crabpath_retrievers.graph.effective_weight`.
        authority: Number of the authority of their targets.
        crossing: Whether they connect different documents; None where an end is a note.
        number: Number of edges in the group.
    """

    weight: float
    floor: float
    decay_at: float
    authority: int
    crossing: bool | None
    number: int


class EdgeSample(NamedTuple):
    """A sample, and the share of all rows that was read for it, in (0, 1]."""

    found: Any
    share: float


class CoUsedEdge(NamedTuple):
    """A ``co_used`` edge as stored, with the keys of its ends."""

    source: int
    target: int
    weight: float
    decay_at: float
    authority: int


class HealthEdges:
    """Reads of edges, and of counts that may become edges."""

    def __init__(self, store: ReadableStore) -> None:
        """Read from ``store``."""
        self._store = store

    def count_structural(self, keys: Sequence[int], namespace: int) -> list[EdgeGroup]:
        """Structural edges that leave these nodes and that a namespace (by key) did not learn."""
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
        with self._store.open_reader() as connection:
            return [
                EdgeGroup(*row)
                for part in split_batches(keys)
                for row in connection.execute(query.where(edges.c.source.in_(part)))
            ]

    def sample_learned(self, namespace: int, limit: int) -> EdgeSample:
        """Learned weights of a namespace (by key) that retrieval follows, as :class:`EdgeGroup`."""
        near, far, ends = contents.alias(), contents.alias(), nodes.alias()
        same = sa.and_(*(overlay.c[name] == edges.c[name] for name in _EDGE))
        documents = (ends.c.owner == 0) & (nodes.c.owner == 0)
        own = (overlay.c.namespace == namespace, overlay.c.kind.not_in(KINDS_NOT_WALKED))
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
        with self._store.open_reader() as connection:
            share, condition = _sample_condition(connection, overlay, own, limit)
            rows = connection.execute(query.where(condition)).all()
        return EdgeSample([EdgeGroup(*row, 1) for row in rows], share)

    def count_pairs(self, namespace: int, limit: int) -> EdgeSample:
        """Numbers of pairs used together, and of those with an edge, as ``(pairs, edges)``."""
        own = (pair_counts.c.namespace == namespace, pair_counts.c.kind == EdgeKind.CO_USED.value)
        same = [overlay.c[name] == pair_counts.c[name] for name in ("namespace", *_EDGE)]
        query = (
            sa.select(sa.func.count(), sa.func.count(overlay.c.weight))
            .select_from(pair_counts.outerjoin(overlay, sa.and_(*same)))
            .where(*own)
        )
        with self._store.open_reader() as connection:
            share, condition = _sample_condition(connection, pair_counts, own, limit)
            found, promoted = connection.execute(query.where(condition)).one()
        return EdgeSample((found, promoted), share)

    def get_split_parts(self) -> dict[int, str]:
        """Parts of split documents: id of the whole by key of the part, limited to 20,000."""
        query = (
            sa.select(contents.c.node, contents.c.split_from)
            .where(contents.c.split_from.is_not(None))
            .order_by(contents.c.split_from)
            .limit(_MAX_PARTS)
        )
        with self._store.open_reader() as connection:
            return {key: whole for key, whole in connection.execute(query)}

    def get_co_used(self, namespace: int, keys: Iterable[int]) -> list[CoUsedEdge]:
        """The ``co_used`` edges of a namespace (by key) that leave these nodes."""
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
        with self._store.open_reader() as connection:
            return [
                CoUsedEdge(*row)
                for part in split_batches(keys)
                for row in connection.execute(query.where(overlay.c.source.in_(part)))
            ]


def _sample_condition(
    connection: sa.Connection, table: sa.Table, own: Sequence[Any], limit: int
) -> tuple[float, sa.ColumnElement[bool]]:
    """The share of rows to read, and the condition on their source that selects them."""
    total = connection.scalar(sa.select(sa.func.count()).select_from(table).where(*own)) or 0
    if total <= limit:
        return 1.0, sa.true()
    share = limit / total
    return share, (table.c.source * _GOLDEN) % _WORD < int(share * _WORD)
