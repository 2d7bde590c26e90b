"""Reads for merging near-duplicates and for splitting long documents."""

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import Authority, Vector
from crabpath_retrievers.storage.batching import split_batches
from crabpath_retrievers.storage.packing import decode_vector
from crabpath_retrievers.storage.reading import ReadableStore
from crabpath_retrievers.storage.replaced import IS_PART
from crabpath_retrievers.storage.schema import aliases, contents, episodes, nodes, usage


class DocumentText(NamedTuple):
    """The text of a node; its metadata as JSON."""

    key: int
    title: str
    content: str
    metadata: str


class MergeCandidate(NamedTuple):
    """A node that may be a near-duplicate of another one.

    Attributes:
        key: Key of the node; older nodes have smaller keys.
        authority: Number of its authority.
        uses: Turns that used it, summed over all namespaces.
        vector: Unit vector, shape ``[d]``.
    """

    key: int
    authority: int
    uses: float
    vector: Vector


class LongDocument(NamedTuple):
    """A document with a long text."""

    key: int
    id: str
    content: str


class DuplicateQueries:
    """Reads of whole tables in blocks; queries use none of them."""

    def __init__(self, store: ReadableStore) -> None:
        """Read from ``store``."""
        self._store = store

    def iterate_texts(self, size: int) -> Iterator[list[DocumentText]]:
        """Yield the texts of all visible documents, without parts, in blocks of ``size`` rows."""
        query = (
            sa.select(nodes.c.key, nodes.c.title, contents.c.content, contents.c.metadata)
            .join(contents, contents.c.node == nodes.c.key)
            .where(nodes.c.owner == 0, ~IS_PART)
            .order_by(nodes.c.key)
            .limit(size)
        )
        last = 0
        while True:
            with self._store.open_reader() as connection:
                rows = connection.execute(query.where(nodes.c.key > last)).all()
            if not rows:
                return
            last = rows[-1].key
            yield [DocumentText(*row) for row in rows]

    def get_candidates(self, keys: Sequence[int]) -> dict[int, MergeCandidate]:
        """Merge candidates by key."""
        used = sa.func.coalesce(
            sa.select(sa.func.sum(usage.c.wins))
            .where(usage.c.node == nodes.c.key)
            .correlate(nodes)
            .scalar_subquery(),
            0.0,
        )
        query = sa.select(nodes.c.key, nodes.c.authority, used, nodes.c.embedding)
        found: dict[int, MergeCandidate] = {}
        with self._store.open_reader() as connection:
            for part in split_batches(keys):
                for key, rank, uses, vector in connection.execute(
                    query.where(nodes.c.key.in_(part))
                ):
                    found[key] = MergeCandidate(key, rank, float(uses), decode_vector(vector))
        return found

    def get_long_documents(self, least: int) -> list[LongDocument]:
        """Documents of at least ``least`` characters that may be split, oldest first.

        Parts, nodes that replace others, and ``constitutional`` nodes are left out.
        """
        keeps = sa.exists().where(aliases.c.target == nodes.c.key)
        query = (
            sa.select(nodes.c.key, nodes.c.id, contents.c.content)
            .join(contents, contents.c.node == nodes.c.key)
            .where(
                nodes.c.owner == 0,
                ~keeps,
                nodes.c.authority < Authority.CONSTITUTIONAL.value,
                sa.func.length(contents.c.content) >= least,
            )
            .order_by(nodes.c.key)
        )
        with self._store.open_reader() as connection:
            return [LongDocument(*row) for row in connection.execute(query)]

    def get_query_vectors(self, node: str, most: int) -> list[Vector]:
        """Unit vectors, shape ``[d]``, of queries with credit for a node, latest first."""
        named = episodes.c.documents.contains(json.dumps(node), autoescape=True)
        query = sa.select(episodes.c.documents, episodes.c.embedding).where(named)
        query = query.order_by(episodes.c.clock.desc(), episodes.c.id).limit(most)
        with self._store.open_reader() as connection:
            rows = connection.execute(query).all()
        return [decode_vector(vector) for text, vector in rows if _credit(text, node) > 0]


def _credit(documents: str, node: str) -> float:
    return float(json.loads(documents).get(node, 0.0))
