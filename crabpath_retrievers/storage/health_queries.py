"""Reads for health reports: counters and samples, whose cost does not grow with the corpus."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import sqlalchemy as sa
from pydantic_core import from_json

from crabpath_retrievers.storage.batching import split_batches
from crabpath_retrievers.storage.health_edges import KINDS_NOT_WALKED, HealthEdges
from crabpath_retrievers.storage.reading import ReadableStore
from crabpath_retrievers.storage.schema import (
    contents,
    edges,
    health_reports,
    meta,
    namespaces,
    nodes,
    overlay,
    turns,
)

_SEED = 0
_MAX_DRAWS = 20  # keys drawn per wanted node, for stores with many deleted keys


class CorpusSize(NamedTuple):
    """Number of document chunks, and of the tokens of their titles and texts."""

    nodes: int
    tokens: int


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


class HealthQueries:
    """Reads for health reports; samples use a fixed seed.

    Attributes:
        edges: Reads of edges, and of counts that may become edges.
    """

    def __init__(self, store: ReadableStore) -> None:
        """Read from ``store``."""
        self._store = store
        self.edges = HealthEdges(store)

    def corpus(self) -> CorpusSize:
        """Size of the corpus, without notes."""
        query = sa.select(meta.c.name, meta.c.value).where(meta.c.name.in_(("nodes", "tokens")))
        with self._store.open_reader() as connection:
            found = {name: int(value) for name, value in connection.execute(query)}
        return CorpusSize(found.get("nodes", 0), found.get("tokens", 0))

    def sample(self, limit: int) -> list[int]:
        """Keys of about ``limit`` uniformly drawn document chunks, or of all if there are fewer."""
        own = sa.select(nodes.c.key).where(nodes.c.owner == 0).order_by(nodes.c.key)
        total = self.corpus().nodes
        # Two subqueries use the index; one query with both would scan.
        ends = (sa.func.min(nodes.c.key), sa.func.max(nodes.c.key))
        bounds = sa.select(*(sa.select(end).scalar_subquery() for end in ends))
        with self._store.open_reader() as connection:
            low, high = connection.execute(bounds).one()
            if low is None or total <= limit:
                return list(connection.scalars(own.limit(limit)))
            drawn = _draw_keys(low, high, limit, total)
            found = [
                connection.scalars(own.where(nodes.c.key.in_(part))).all()
                for part in split_batches(drawn)
            ]
        return [key for part in found for key in part]

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
        with self._store.open_reader() as connection:
            rows = [
                row
                for part in split_batches(keys)
                for row in connection.execute(query.where(nodes.c.key.in_(part)))
            ]
        return [SampledChunk(node, document, bool(isolated)) for node, document, isolated in rows]

    def turns(self, namespace: int, limit: int) -> list[TurnFacts]:
        """The latest turns of a namespace (by key), newest first; deleted documents count 0."""
        query = (
            sa.select(turns.c.record)
            .where(turns.c.namespace == namespace)
            .order_by(turns.c.clock.desc())
            .limit(limit)
        )
        with self._store.open_reader() as connection:
            records = [from_json(record) for record in connection.scalars(query)]
        returned = [[item["node"] for item in record["returned"]] for record in records]
        words = self._lengths({node for of_turn in returned for node in of_turn})
        return [
            TurnFacts(
                len(record["visited"]) - len(record["seeds"]),
                len(of_turn),
                sum(words.get(node, 0) for node in of_turn),
            )
            for record, of_turn in zip(records, returned, strict=True)
        ]

    def _lengths(self, ids: set[str]) -> dict[str, int]:
        query = sa.select(nodes.c.id, contents.c.length).join(
            contents, contents.c.node == nodes.c.key
        )
        with self._store.open_reader() as connection:
            return {
                node: length
                for part in split_batches(sorted(ids))
                for node, length in connection.execute(query.where(nodes.c.id.in_(part)))
            }

    def history(self, namespace: str, limit: int) -> list[dict[str, Any]]:
        """The latest ``limit`` reports of a namespace, oldest first."""
        query = (
            sa.select(health_reports.c.report)
            .join(namespaces, namespaces.c.key == health_reports.c.namespace)
            .where(namespaces.c.name == namespace)
            .order_by(health_reports.c.sequence.desc())
            .limit(limit)
        )
        with self._store.open_reader() as connection:
            return [json.loads(report) for report in connection.scalars(query)][::-1]


def _draw_keys(low: int, high: int, limit: int, total: int) -> list[int]:
    """Random keys in [low, high], so many that about ``limit`` of them exist."""
    span = high - low + 1
    size = min(span, limit * _MAX_DRAWS, -(-limit * span // total))
    drawn = np.random.default_rng(_SEED).choice(span, size=size, replace=False)
    return [low + offset for offset in sorted(drawn.tolist())]
