"""Reads of documents by id and source: contents, digests, the ingest queue, statistics."""

import json
import random
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import zip_longest
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.core.records import EdgeKind, Node, Vector
from crabpath_retrievers.storage.retired import (
    RETIRED,
    build_retired_address,
)
from crabpath_retrievers.storage.schema import (
    addresses,
    contents,
    edges,
    index_deletions,
    meta,
    namespaces,
    nodes,
    notes,
    overlay,
    reembedded,
    staging,
    turns,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    decode_rows,
    decode_vector,
    split_batches,
)


class StoredChunk(NamedTuple):
    """Identity of a document chunk, by which a change is seen."""

    id: str
    document: str
    source: str
    position: int
    digest: str


MetadataTest = Callable[[Mapping[str, Any]], bool]
"""Whether metadata are those that are looked for."""

_AT_ONCE = 5000  # chunks whose metadata are read together
CONTENT = (
    nodes.c.id,
    contents.c.document,
    contents.c.source,
    contents.c.content,
    nodes.c.title,
    contents.c.position,
    contents.c.metadata,
    contents.c.digest,
)
_CONTENT_NAMES = tuple(column.name for column in CONTENT)
CONTENTS = CompiledSelect(
    sa.select(*CONTENT)
    .join(contents, contents.c.node == nodes.c.key)
    .where(
        nodes.c.id.in_(sa.bindparam("ids", expanding=True)),
        sa.or_(
            nodes.c.owner == 0,
            nodes.c.owner == sa.bindparam("namespace"),
        ),
    )
    .order_by(nodes.c.owner.desc())
)
"""Texts and metadata of nodes by id, as far as a namespace sees them.

Documents come last: each hides a note with its id.
"""
_DOCUMENTS = (
    sa.select(contents.c.metadata)
    .join(nodes, nodes.c.key == contents.c.node)
    # Notes have no document.
    .where(
        contents.c.document > "",
        nodes.c.owner == 0,
    )
    .limit(8)
    .offset(0)  # else SQLite adds a parameter
)
_SAMPLE = CompiledSelect(
    sa.union_all(
        *(
            sa.select(_DOCUMENTS.order_by(order).subquery())
            for order in (contents.c.document, contents.c.document.desc())
        )
    )
)
_KNOWN = sa.select(
    nodes.c.id, contents.c.document, contents.c.source, contents.c.position, contents.c.digest
).join(contents, contents.c.node == nodes.c.key)
_OF_PLAN = CompiledSelect(
    sa.union_all(
        *(
            _KNOWN.where(column.in_(sa.bindparam(name, expanding=True)), nodes.c.owner == 0)
            for column, name in (
                (nodes.c.id, "ids"),
                (contents.c.document, "documents"),
                (contents.c.source, "sources"),
            )
        )
    )
)
_INDEXED = sa.select(nodes.c.id).where(
    nodes.c.owner == 0,
    ~sa.exists().where(staging.c.id == nodes.c.id),
)
KEY_BOUNDS = sa.select(
    # Two subqueries use the index; one query with both would scan.
    sa.select(sa.func.min(nodes.c.key)).scalar_subquery(),
    sa.select(sa.func.max(nodes.c.key)).scalar_subquery(),
)
"""The lowest and the highest key of a node; None without nodes."""


class Catalog(Queries):
    """Reads of documents; the methods for work on the whole corpus say so."""

    def documents(self, ids: Sequence[str], *, namespace: int = 0) -> dict[str, Node]:
        """Nodes by id, without vectors; unknown ids are left out.

        Args:
            ids: Ids of nodes.
            namespace: Key of the namespace whose notes are visible; 0 for none.
        """
        found: dict[str, Node] = {}
        with self._store.connect() as connection:
            for part in split_batches(ids):
                rows = CONTENTS.rows(connection, {"ids": part, "namespace": namespace})
                found |= {node.id: node for node in decode_rows("a chunk", rows, decode_node)}
        return found

    def get_titles(self, ids: Iterable[str], *, namespace: int = 0) -> dict[str, str]:
        """Titles of nodes by id, of those without one the sources.

        Nodes that a namespace (by key) does not see are left out.
        """
        title = sa.func.coalesce(sa.func.nullif(nodes.c.title, ""), contents.c.source, nodes.c.id)
        query = (
            sa.select(nodes.c.id, title)
            .outerjoin(contents, contents.c.node == nodes.c.key)
            .where(nodes.c.owner.in_((0, namespace)))
            .order_by(nodes.c.owner.desc())  # a document hides a note with its id
        )
        return {node: label for node, label in self._rows_in(query, nodes.c.id, ids)}

    def list_nodes(
        self,
        limit: int,
        *,
        source: str | None = None,
        under: str | None = None,
        matches: MetadataTest | None = None,
        owner: int = 0,
    ) -> list[Node]:
        """Visible chunks, without vectors, the oldest first.

        Args:
            limit: How many at most.
            source: Only chunks of this source, in the order of its texts.
            under: Only chunks whose source begins with this text, by source.
            matches: Only chunks whose metadata pass; then the corpus is read up to the limit.
            owner: Which chunks: 0 for visible, ``RETIRED`` for retired.
        """
        query = (
            sa.select(contents.c.source, contents.c.node, nodes.c.id, contents.c.metadata)
            .join(nodes, nodes.c.key == contents.c.node)
            .where(nodes.c.owner == owner)
            .limit(min(limit, _AT_ONCE))
        )
        if source is not None:
            query = query.where(contents.c.source == source)
        if under is None:
            query = query.order_by(contents.c.node)
        else:
            query = query.where(_begins_with(under)).order_by(contents.c.source, contents.c.node)
        place = ("", 0)
        ids: list[str] = []
        while len(ids) < limit:
            rows = self._rows(query.where(*_stand_after(place, under)))
            if not rows:
                break
            passed = (row for row in rows if matches is None or _passes(matches, row.metadata))
            ids += [row.id for row in passed]
            place = rows[-1].source, rows[-1].node
        read = self.documents(ids[:limit], namespace=owner)
        found = [read[node] for node in ids[:limit] if node in read]
        if source is None:
            return found
        return sorted(found, key=lambda node: (node.document, node.position))

    def count_by_source(
        self, limit: int, *, under: str | None = None, after: str | None = None
    ) -> dict[str, int]:
        """Number of visible chunks of each source, in the order of their names.

        Args:
            limit: How many sources at most.
            under: Only sources that begin with this text.
            after: Only sources that stand after this text.
        """
        query = (
            sa.select(contents.c.source, sa.func.count())
            .join(nodes, nodes.c.key == contents.c.node)
            .where(nodes.c.owner == 0)
            .group_by(contents.c.source)
            .order_by(contents.c.source)
        )
        if under is not None:
            query = query.where(_begins_with(under))
        if after is not None:
            query = query.where(contents.c.source > after)
        return {source: count for source, count in self._rows(query.limit(limit))}

    def sample(self) -> list[dict[str, Any]]:
        """Metadata of at most 16 document chunks: the first and last 8 by document id."""
        found: list[Any] = []
        for (metadata,) in self._run(_SAMPLE):
            with suppress(ValueError, RecursionError):  # skip damaged rows
                found.append(json.loads(metadata))
        return [metadata for metadata in found if isinstance(metadata, dict)]

    def find_outer_sources(self) -> list[str]:
        """The first and the last source that are absolute paths; empty without any."""
        bounds = (contents.c.source >= "/", contents.c.source < "0")  # "0" follows "/"
        ends = [
            self._scalar(sa.select(end(contents.c.source)).where(*bounds))
            for end in (sa.func.min, sa.func.max)
        ]
        return [source for source in ends if source is not None]

    def find_chunks(
        self,
        *,
        ids: Iterable[str] = (),
        documents: Iterable[str] = (),
        sources: Iterable[str] = (),
        owners: Collection[int] = (0,),
    ) -> list[StoredChunk]:
        """Chunks with these ids, of these documents or from these sources; no notes.

        Args:
            ids: Ids of chunks.
            documents: Ids of documents.
            sources: Sources.
            owners: Which chunks: 0 for visible, ``RETIRED`` for retired.
        """
        if owners == (0,):
            return list(self.find_replaced(ids, documents, sources).values())
        wanted = ((nodes.c.id, ids), (contents.c.document, documents), (contents.c.source, sources))
        query = _KNOWN.where(nodes.c.owner.in_(owners))
        found: dict[str, StoredChunk] = {}
        for column, values in wanted:
            found |= {row.id: StoredChunk(*row) for row in self._rows_in(query, column, values)}
        return list(found.values())

    def find_titled(self, titles: Sequence[str]) -> dict[str, list[str]]:
        """Ids of the visible documents with these titles, by title; reads the whole corpus."""
        found: dict[str, list[str]] = {}
        if not titles:
            return found
        query = sa.select(nodes.c.title, contents.c.document).distinct()
        query = query.join(contents, contents.c.node == nodes.c.key).where(nodes.c.owner == 0)
        for title, document in self._rows_in(query, nodes.c.title, titles):
            found.setdefault(title, []).append(document)
        return found

    def find_replaced(
        self, ids: Iterable[str], documents: Iterable[str], sources: Iterable[str]
    ) -> dict[str, StoredChunk]:
        """Visible chunks with these ids, of these documents or from these sources, by id."""
        chunks: dict[str, StoredChunk] = {}
        parts = (split_batches(values) for values in (ids, documents, sources))
        for some in zip_longest(*parts, fillvalue=()):
            names = zip(("ids", "documents", "sources"), map(list, some), strict=True)
            chunks |= {row[0]: StoredChunk(*row) for row in self._run(_OF_PLAN, **dict(names))}
        return chunks

    def find_by_digest(self, documents: Iterable[str], digests: Iterable[str]) -> list[StoredChunk]:
        """Visible chunks of these documents that have one of these digests."""
        query = _KNOWN.where(nodes.c.owner == 0)
        wanted = list(documents)
        return [
            StoredChunk(*row)
            for some in split_batches(digests)
            for row in self._rows_in(
                query.where(contents.c.digest.in_(some)), contents.c.document, wanted
            )
        ]

    def get_next_positions(self, documents: Iterable[str]) -> dict[str, int]:
        """The position after the last chunk of each document; unknown documents are left out."""
        query = sa.select(contents.c.document, sa.func.max(contents.c.position) + 1)
        query = query.group_by(contents.c.document)
        return {
            document: end for document, end in self._rows_in(query, contents.c.document, documents)
        }

    def find_under_source(self, root: str) -> list[StoredChunk]:
        """Chunks whose source is ``root`` or starts with ``root/``.

        A trailing slash of ``root`` is not doubled.
        """
        start = root if root.endswith("/") else f"{root}/"
        query = _KNOWN.where(nodes.c.owner == 0, _begins_with(start) | (contents.c.source == root))
        return [StoredChunk(*row) for row in self._rows(query)]

    def find_retired(self, *, texts: Iterable[str], documents: Iterable[str]) -> list[Node]:
        """Retired nodes with one of these texts or of one of these documents."""
        hidden = {known.id for known in self.find_chunks(documents=documents, owners=(RETIRED,))}
        query = sa.select(nodes.c.id).join(addresses, addresses.c.node == nodes.c.key)
        retired = {build_retired_address(text) for text in texts}
        hidden |= {node for (node,) in self._rows_in(query, addresses.c.address, retired)}
        return list(self.documents(sorted(hidden), namespace=RETIRED).values())

    def all_ids(self) -> list[str]:
        """Ids of all chunks that belong to a source; scans the corpus."""
        query = sa.select(nodes.c.id).where(nodes.c.owner == 0)
        return self._scalars(query)

    def chunk_ids(self) -> list[str]:
        """Ids of all chunks that the vector index must hold; scans the corpus."""
        return self._scalars(_INDEXED)

    def some_chunk_ids(self, limit: int) -> list[str]:
        """Up to ``limit`` of the ids that the index must hold: the newest and a random sample."""
        found = self._scalars(_INDEXED.order_by(nodes.c.key.desc()).limit(limit // 2))
        ((low, high),) = self._rows(KEY_BOUNDS)
        if low is not None:
            drawn = [random.randint(low, high) for _ in range(2 * limit)]  # noqa: S311
            found += [node for (node,) in self._rows_in(_INDEXED, nodes.c.key, drawn)]
        return list(dict.fromkeys(found))[:limit]

    def vectors(self, ids: Iterable[str]) -> dict[str, Vector]:
        """Unit vectors of documents by id, shape ``[d]``, in half precision."""
        query = sa.select(nodes.c.id, nodes.c.embedding).where(nodes.c.owner <= 0)
        return {n: decode_vector(vector) for n, vector in self._rows_in(query, nodes.c.id, ids)}

    def get_staged(self) -> list[Node]:
        """Staged nodes that are not published yet, with their vectors."""
        columns = (staging.c.id, staging.c.payload, staging.c.embedding)
        rows = self._rows(sa.select(*columns).where(staging.c.operation == "put"))
        return [
            Node(id=node_id, vector=decode_vector(embedding), **json.loads(payload))
            for node_id, payload, embedding in rows
        ]

    def get_staged_ids(self) -> list[str]:
        """Ids of the nodes that the next publication adds, replaces, removes or retires."""
        changing = staging.c.operation.in_(("put", "remove", "retire"))
        return list(self._scalars(sa.select(staging.c.id).where(changing)))

    def get_unindexed(self, limit: int) -> list[Node]:
        """Published nodes that are queued for the vector index, with their vectors."""
        query = (
            sa.select(*CONTENT, nodes.c.embedding)
            .join(contents, contents.c.node == nodes.c.key)
            .join(staging, staging.c.id == nodes.c.id)
            .where(staging.c.operation.in_(("index", "return")), nodes.c.owner <= 0)
            .order_by(nodes.c.key)
            .limit(limit)
        )
        rows = self._rows(query)
        return [replace(decode_node(row[:-1]), vector=decode_vector(row.embedding)) for row in rows]

    def count_unindexed(self) -> int:
        """Number of published nodes that are queued for the vector index."""
        waiting = staging.c.operation.in_(("index", "return"))
        return self._scalar(sa.select(sa.func.count()).where(waiting)) or 0

    def get_unlinked_keys(self) -> list[int]:
        """Keys of published nodes that are queued for linking."""
        query = sa.select(nodes.c.key).join(staging, staging.c.id == nodes.c.id)
        queued = (staging.c.operation == "link", nodes.c.owner <= 0)
        return sorted(self._scalars(query.where(*queued)))

    def has_chunks_before(self, key: int) -> bool:
        """Whether a chunk that queries see has a lower key."""
        query = sa.select(nodes.c.key).where(nodes.c.owner == 0, nodes.c.key < key)
        return bool(self._scalar(sa.select(sa.exists(query))))

    def get_last_key(self) -> int:
        """The highest key of a node; 0 without nodes."""
        return self._scalar(sa.select(sa.func.max(nodes.c.key))) or 0

    def get_index_deletions(self) -> list[str]:
        """Ids whose vectors must still be deleted from the index."""
        return self._scalars(sa.select(index_deletions.c.id))

    def has_unfinished_ingest(self) -> bool:
        """Whether an interrupted ingest left work in a queue."""
        queues = (sa.exists(sa.select(queue.c.id)) for queue in (staging, index_deletions))
        return bool(self._scalar(sa.select(sa.or_(*queues))))

    def find_unfinished_work(self, fact: str) -> tuple[bool, str]:
        """Unfinished work, and the value of a fact of the store; empty without it."""
        queues = (sa.exists(sa.select(queue.c.id)) for queue in (staging, index_deletions))
        value = sa.select(meta.c.value).where(meta.c.name == fact).scalar_subquery()
        ((unfinished, found),) = self._rows(sa.select(sa.or_(*queues), value))
        return bool(unfinished), found or ""

    def holds_new_vectors(self) -> bool:
        """Whether a change of the embedder has begun, and keeps its vectors apart."""
        with self._store.connect() as connection:
            return sa.inspect(connection).has_table(reembedded.name)

    def meta(self) -> dict[str, str]:
        """Metadata of the store by name."""
        return {name: value for name, value in self._rows(sa.select(meta))}

    def statistics(self) -> dict[str, object]:
        """Counts of nodes, sources, edges by kind, turns by namespace, notes and more."""
        self._store.flush()
        owned = sa.select(nodes.c.owner, sa.func.count()).where(nodes.c.owner <= 0)
        owners = {o: n for o, n in self._rows(owned.group_by(nodes.c.owner))}
        kinds = self._rows(sa.select(edges.c.kind, sa.func.count()).group_by(edges.c.kind))
        clocks = sa.select(namespaces.c.name, namespaces.c.turn).order_by(namespaces.c.name)
        sources = (
            sa.select(sa.func.count(sa.distinct(contents.c.source)))
            .join(nodes, nodes.c.key == contents.c.node)
            .where(nodes.c.owner == 0)
        )
        return {
            "nodes": owners.get(0, 0),
            "retired": owners.get(RETIRED, 0),
            "notes": self._count(notes),
            "sources": self._scalar(sources),
            "edges": {EdgeKind(kind).label: count for kind, count in kinds},
            "namespaces": {name: turn for name, turn in self._rows(clocks)},
            "learned_weights": self._count(overlay),
            "turns": self._count(turns),
        }

    def _count(self, table: sa.Table) -> int:
        return self._scalar(sa.select(sa.func.count()).select_from(table)) or 0


def _begins_with(text: str) -> sa.ColumnElement[bool]:
    """Whether a source begins with a text; read from the index of the sources."""
    source = contents.c.source
    # The last code point stands behind all that texts consist of.
    return sa.and_(source >= text, source < f"{text}\U0010ffff")


def _stand_after(place: tuple[str, int], under: str | None) -> list[sa.ColumnElement[bool]]:
    """Condition on the chunks that a list has after one with this source and key."""
    source, key = place
    if under is None:
        # Both bounds: PostgreSQL would read the other table from its first row.
        return [contents.c.node > key, nodes.c.key > key]
    rest = sa.and_(contents.c.source == source, contents.c.node > key)
    return [contents.c.source >= source, (contents.c.source > source) | rest]


def _passes(matches: MetadataTest, text: str) -> bool:
    """Whether stored metadata pass a test; damaged ones do not."""
    with suppress(ValueError, RecursionError):
        return matches(json.loads(text))
    return False


def decode_node(row: Sequence[Any]) -> Node:
    """Decode a row of ``CONTENTS`` to a node without vector."""
    values = dict(zip(_CONTENT_NAMES, row, strict=True))
    return Node(**{**values, "metadata": json.loads(values["metadata"])})
