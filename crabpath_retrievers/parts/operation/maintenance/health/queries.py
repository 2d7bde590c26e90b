"""Reads for health reports: counters and samples, whose cost does not grow with the corpus.

Learned rows are read in full up to a limit; beyond it, those of a fixed pseudo-random share of the
source nodes.
"""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.core.records import TYPED_KINDS, EdgeKind, StoredWeight
from crabpath_retrievers.storage.read.catalog import KEY_BOUNDS
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    health_reports,
    meta,
    namespaces,
    nodes,
    overlay,
    pair_counts,
    turns,
)
from crabpath_retrievers.storage.sql_tools import Queries

KINDS_NOT_WALKED = [kind.value for kind in (EdgeKind.STOP, *TYPED_KINDS)]
"""Numbers of the edge kinds that retrieval does not follow; health does not count them."""

_GOLDEN, _WORD = 2_654_435_761, 1 << 32  # Fibonacci hashing: consecutive keys are spread evenly
_MAX_PARTS = 20_000
_SEED = 0
_MAX_DRAWS = 20  # keys drawn per wanted node, for stores with many deleted keys
_EDGE = ("source", "target", "kind")


class EdgeGroup(NamedTuple):
    """A group of edges with equal values.

    Attributes:
        stored: Weight of each.
        crossing: Whether they connect different documents; None where an end is a note.
        number: Number of edges in the group.
    """

    stored: StoredWeight
    crossing: bool | None
    number: int


class EdgeSample(NamedTuple):
    """A sample, and the share of all rows that was read for it, in (0, 1]."""

    found: Any
    share: float


class SampledChunk(NamedTuple):
    """A sampled document chunk, and whether it has no edges."""

    id: str
    document: str
    isolated: bool


class TurnFacts(NamedTuple):
    """Of one turn: number of nodes reached by an edge, of returned documents, of their tokens."""

    fired: int
    returned: int
    tokens: int


class HealthQueries(Queries):
    """Reads for health reports; samples use a fixed seed."""

    def corpus(self) -> tuple[int, int]:
        """Number of document chunks, and of the tokens of their titles and texts."""
        query = sa.select(meta.c.name, meta.c.value).where(meta.c.name.in_(("nodes", "tokens")))
        found = {name: int(value) for name, value in self._rows(query)}
        return found.get("nodes", 0), found.get("tokens", 0)

    def sample(self, limit: int) -> list[int]:
        """Keys of about ``limit`` uniformly drawn document chunks, or of all if there are fewer."""
        own = sa.select(nodes.c.key).where(nodes.c.owner == 0).order_by(nodes.c.key)
        total, _ = self.corpus()
        ((low, high),) = self._rows(KEY_BOUNDS)
        if low is None or total <= limit:
            return self._scalars(own.limit(limit))
        drawn = _draw_keys(low, high, limit, total)
        return [key for (key,) in self._rows_in(own, nodes.c.key, drawn)]

    def describe_sample(self, keys: Sequence[int], namespace: int) -> list[SampledChunk]:
        """The chunks with these keys, with the edges that a namespace (by key) sees."""
        mine = overlay.c.namespace == namespace
        walked = overlay.c.kind.not_in(KINDS_NOT_WALKED)
        touched = sa.or_(
            sa.exists().where(edges.c.source == nodes.c.key),
            sa.exists().where(edges.c.target == nodes.c.key),
            sa.exists().where(mine, walked, overlay.c.source == nodes.c.key),
            sa.exists().where(mine, walked, overlay.c.target == nodes.c.key),
        )
        query = sa.select(nodes.c.id, contents.c.document, ~touched).join(
            contents, contents.c.node == nodes.c.key
        )
        rows = self._rows_in(query, nodes.c.key, keys)
        return [SampledChunk(node, document, bool(isolated)) for node, document, isolated in rows]

    def turns(self, namespace: int, limit: int) -> list[TurnFacts]:
        """The latest turns of a namespace (by key), newest first; deleted documents count 0."""
        query = (
            sa.select(turns.c.record)
            .where(turns.c.namespace == namespace)
            .order_by(turns.c.clock.desc())
            .limit(limit)
        )
        records = [from_json(record) for record in self._scalars(query)]
        returned = [[item["node"] for item in record["returned"]] for record in records]
        words = self._lengths({node for of_turn in returned for node in of_turn}, namespace)
        return [
            TurnFacts(
                len(record["visited"]) - len(record["seeds"]),
                len(of_turn),
                sum(words.get(node, 0) for node in of_turn),
            )
            for record, of_turn in zip(records, returned, strict=True)
        ]

    def _lengths(self, ids: set[str], namespace: int) -> dict[str, int]:
        query = (
            sa.select(nodes.c.id, contents.c.length)
            .join(contents, contents.c.node == nodes.c.key)
            .where(nodes.c.owner.in_((0, namespace)))
        )
        return {node: length for node, length in self._rows_in(query, nodes.c.id, sorted(ids))}

    def history(self, namespace: str, limit: int) -> list[dict[str, Any]]:
        """The latest ``limit`` reports of a namespace, oldest first."""
        query = (
            sa.select(health_reports.c.report)
            .join(namespaces, namespaces.c.key == health_reports.c.namespace)
            .where(namespaces.c.name == namespace)
            .order_by(health_reports.c.sequence.desc())
            .limit(limit)
        )
        return [json.loads(report) for report in self._scalars(query)][::-1]

    def count_structural(self, keys: Sequence[int], namespace: int) -> list[EdgeGroup]:
        """Structural edges that leave these nodes and that a namespace (by key) did not learn."""
        near, far = contents.alias(), contents.alias()
        same = [overlay.c[name] == edges.c[name] for name in _EDGE]
        learned = sa.exists().where(overlay.c.namespace == namespace, *same)
        crossing = near.c.document != far.c.document
        what = (edges.c.prior, edges.c.decay_at, edges.c.floor, nodes.c.authority, crossing)
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
        rows = self._rows_in(query, edges.c.source, keys)
        return [EdgeGroup(StoredWeight(*stored), crossing, n) for *stored, crossing, n in rows]

    def sample_learned(self, namespace: int, limit: int) -> EdgeSample:
        """Learned weights of a namespace (by key) that retrieval follows, as :class:`EdgeGroup`."""
        near, far, ends = contents.alias(), contents.alias(), nodes.alias()
        same = sa.and_(*(overlay.c[name] == edges.c[name] for name in _EDGE))
        documents = (ends.c.owner == 0) & (nodes.c.owner == 0)
        own = (overlay.c.namespace == namespace, overlay.c.kind.not_in(KINDS_NOT_WALKED))
        query = (
            sa.select(
                overlay.c.weight,
                overlay.c.decay_at,
                sa.func.coalesce(edges.c.floor, 0.0),
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
        with self._store.connect() as connection:
            share, condition = _sample_condition(connection, overlay, own, limit)
            rows = connection.execute(query.where(condition)).all()
        groups = [EdgeGroup(StoredWeight(*stored), crossing, 1) for *stored, crossing in rows]
        return EdgeSample(groups, share)

    def count_pairs(self, namespace: int, limit: int) -> EdgeSample:
        """Numbers of pairs used together, and of those with an edge, as ``(pairs, edges)``."""
        own = (
            pair_counts.c.namespace == namespace,
            pair_counts.c.kind == EdgeKind.CO_USED.value,
            pair_counts.c["count"] > 0,
        )
        same = [overlay.c[name] == pair_counts.c[name] for name in ("namespace", *_EDGE)]
        query = (
            sa.select(sa.func.count(), sa.func.count(overlay.c.weight))
            .select_from(pair_counts.outerjoin(overlay, sa.and_(*same)))
            .where(*own)
        )
        with self._store.connect() as connection:
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
        return {key: whole for key, whole in self._rows(query)}

    def get_co_used(
        self, namespace: int, keys: Iterable[int]
    ) -> dict[tuple[int, int], StoredWeight]:
        """The ``co_used`` edges of a namespace (by key) that leave these nodes, by both ends."""
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
        return {
            (source, target): StoredWeight(weight, decay_at, authority=authority)
            for source, target, weight, decay_at, authority in self._rows_in(
                query, overlay.c.source, keys
            )
        }


def _sample_condition(
    connection: sa.Connection, table: sa.Table, own: Sequence[Any], limit: int
) -> tuple[float, sa.ColumnElement[bool]]:
    """The share of rows to read, and the condition on their source that selects them."""
    total = connection.scalar(sa.select(sa.func.count()).select_from(table).where(*own)) or 0
    if total <= limit:
        return 1.0, sa.true()
    share = limit / total
    return share, (table.c.source * _GOLDEN) % _WORD < int(share * _WORD)


def _draw_keys(low: int, high: int, limit: int, total: int) -> list[int]:
    """Random keys in [low, high], so many that about ``limit`` of them exist."""
    span = high - low + 1
    size = min(span, limit * _MAX_DRAWS, -(-limit * span // total))
    drawn = np.random.default_rng(_SEED).choice(span, size=size, replace=False)
    return [low + offset for offset in sorted(drawn.tolist())]
