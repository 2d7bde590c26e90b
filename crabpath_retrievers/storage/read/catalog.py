"""Reads of documents by id and source: contents, digests, the ingest queue, statistics.

Reads of the linkers: names, mentions, link targets, and the order of chunks.
"""

import json
import random
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from itertools import zip_longest
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple, TypeVar

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from crabpath_retrievers.core.records import EdgeKind, Node, Vector
from crabpath_retrievers.core.terms import TERM
from crabpath_retrievers.core.text import prepend_title
from crabpath_retrievers.storage.fulltext import FullTextReader
from crabpath_retrievers.storage.read.walk import CONTENT, CONTENTS, decode_node
from crabpath_retrievers.storage.schema import (
    RETIRED,
    addresses,
    build_retired_address,
    contents,
    edges,
    index_deletions,
    meta,
    names,
    namespaces,
    nodes,
    notes,
    overlay,
    reembedded,
    references,
    staging,
    turns,
)
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    Queries,
    ReadableStore,
    decode_rows,
    decode_vector,
    split_batches,
)


class StoredChunk(NamedTuple):
    """Ids, source, position and digest of a stored chunk, to detect changes."""

    id: str
    document: str
    source: str
    position: int
    digest: str


_START = 60  # characters of a text in place of a title
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
        """Read nodes by id, without vectors; unknown ids are left out.

        Notes are visible to the namespace with this key only.
        """
        found: dict[str, Node] = {}
        with self._store.connect() as connection:
            for part in split_batches(ids):
                rows = CONTENTS.rows(connection, {"ids": part, "namespace": namespace})
                found |= {node.id: node for node in decode_rows("a chunk", rows, decode_node)}
        return found

    def get_titles(self, ids: Iterable[str], *, namespace: int = 0) -> dict[str, str]:
        """Read titles of nodes by id; without a title the source, or else how the text begins.

        Notes are visible to the namespace with this key only; nodes that it does not see are left
        out.
        """
        text = sa.func.replace(contents.c.content, "\n", " ", type_=sa.Text())
        start = sa.func.substr(text, 1, _START, type_=sa.Text()) + "…"
        title = sa.func.coalesce(
            sa.func.nullif(nodes.c.title, ""),
            sa.func.nullif(contents.c.source, ""),
            sa.func.nullif(sa.case((sa.func.length(text) > _START, start), else_=text), ""),
            nodes.c.id,
        )
        query = (
            sa.select(nodes.c.id, title)
            .outerjoin(contents, contents.c.node == nodes.c.key)
            .where(nodes.c.owner.in_((0, namespace)))
            .order_by(nodes.c.owner.desc())  # a document hides a note with its id
        )
        return {node: label for node, label in self._rows_in(query, nodes.c.id, ids)}

    def sample(self) -> list[dict[str, Any]]:
        """Read the metadata of at most 16 document chunks: the first and last 8 by document id."""
        found: list[Any] = []
        for (metadata,) in self._run(_SAMPLE):
            with suppress(ValueError, RecursionError):  # skip damaged rows
                found.append(json.loads(metadata))
        return [metadata for metadata in found if isinstance(metadata, dict)]

    def find_chunks(
        self,
        *,
        ids: Iterable[str] = (),
        documents: Iterable[str] = (),
        sources: Iterable[str] = (),
        owners: Collection[int] = (0,),
    ) -> list[StoredChunk]:
        """Find chunks with these ids, of these documents or from these sources, without notes.

        ``owners`` are 0 for visible chunks, ``RETIRED`` for retired ones.
        """
        if owners == (0,):
            return list(self.find_replaced(ids, documents, sources).values())
        wanted = ((nodes.c.id, ids), (contents.c.document, documents), (contents.c.source, sources))
        query = _KNOWN.where(nodes.c.owner.in_(owners))
        found: dict[str, StoredChunk] = {}
        for column, values in wanted:
            found |= {row.id: StoredChunk(*row) for row in self._rows_in(query, column, values)}
        return list(found.values())

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
        """Find the visible chunks whose source is ``root`` or a path below it.

        A trailing slash of ``root`` makes no difference.
        """
        start = root if root.endswith("/") else f"{root}/"
        query = _KNOWN.where(nodes.c.owner == 0, begins_with(start) | (contents.c.source == root))
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
        """Read unit vectors of documents by id, shape ``[d]``, in half precision."""
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
        return self._count(staging, staging.c.operation.in_(("index", "return")))

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
        """Return whether an ingest is unfinished, and the metadata row ``fact``; "" without one."""
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


def begins_with(text: str) -> sa.ColumnElement[bool]:
    """Condition: the source begins with a text; read from the index of the sources."""
    source = contents.c.source
    # The last code point stands behind all that texts consist of.
    return sa.and_(source >= text, source < f"{text}\U0010ffff")


T = TypeVar("T")


class LinkNode(NamedTuple):
    """The columns of a node that linkers use."""

    key: int
    id: str
    document: str
    source: str
    position: int
    title: str
    content: str

    @property
    def text(self) -> str:
        """Title, then content: the text that the full-text index holds."""
        return prepend_title(self.title, self.content)


_COLUMNS = (
    nodes.c.key,
    nodes.c.id,
    contents.c.document,
    contents.c.source,
    contents.c.position,
    nodes.c.title,
    contents.c.content,
)
_NODES = CompiledSelect(
    sa.select(*_COLUMNS)
    .join(contents, contents.c.node == nodes.c.key)
    .where(nodes.c.key.in_(sa.bindparam("values", expanding=True)))
)

_FEW = 256  # values

_PLACES = (
    sa.select(contents.c.source, contents.c.document, contents.c.position, contents.c.node)
    .join(nodes, nodes.c.key == contents.c.node)
    .where(nodes.c.owner == 0)
)
_IN_ORDER = CompiledSelect(
    _PLACES.where(contents.c.source.in_(sa.bindparam("values", expanding=True)))
    .limit(sa.bindparam("most", type_=sa.BigInteger))
    .offset(sa.literal_column("0", sa.Integer))  # else SQLite is given a value for it
)
_OF_SOURCE = contents.c.source == sa.bindparam("source")
_LOW, _HIGH = (sa.bindparam(name, type_=sa.BigInteger) for name in ("low", "high"))
_AROUND = CompiledSelect(_PLACES.where(_OF_SOURCE, contents.c.node.between(_LOW, _HIGH)))
_BEYOND = CompiledSelect(
    _PLACES.with_only_columns(contents.c.document, sa.func.min(contents.c.node))
    .where(
        _OF_SOURCE,
        contents.c.document.in_(sa.bindparam("documents", expanding=True)),
        sa.not_(contents.c.node.between(_LOW, _HIGH)),
    )
    .group_by(contents.c.document)
)
_ENDS = CompiledSelect(
    sa.select(
        *(
            sa.exists().where(_OF_SOURCE, is_beyond).correlate(None)
            for is_beyond in (contents.c.node < _LOW, contents.c.node > _HIGH)
        )
    )
)
_MANY_CHUNKS = 4096  # of the sources of a batch, which are not all read for it
_OF_ONE_READ = 256  # chunks, for whose sources as many again are read
_BESIDE = 2  # chunks before and after: the neighbours of a new chunk get another neighbour
_ALL = 2**62
_WIDEST = 4096  # range of keys in which they are looked for
_NEAR = 64  # keys on either side within which the neighbours of a chunk are looked for

# A name is stored as its tokens with a space between, which sorts before every letter.
_LONGER_NAMES = """
SELECT value, name FROM (
    SELECT value, (
        SELECT name FROM crabpath_names WHERE name >= value ORDER BY name LIMIT 1
    ) AS name FROM {rows} AS given
) AS found WHERE name = value OR substr(name, 1, length(value) + 1) = value || ' '
"""
# The exclamation mark is the character after the space.
_NAMES_BEGINNING = """
SELECT value, name FROM {rows} AS given
JOIN crabpath_names ON name >= value || ' ' AND name < value || '!'
"""
_JSON_ROWS = {
    "sqlite": "json_each(:given)",
    "postgresql": "(SELECT jsonb_array_elements_text(CAST(:given AS jsonb)) AS value)",
}

_FEW_HOLDERS = {
    "sqlite": """
SELECT value, (
    SELECT group_concat(node) FROM (
        SELECT node FROM {table} WHERE address = value ORDER BY node LIMIT :most
    )
) FROM json_each(:given)
""",
    "postgresql": """
SELECT value, (
    SELECT string_agg(CAST(node AS text), ',') FROM (
        SELECT node FROM {table} WHERE address = value ORDER BY node LIMIT :most
    ) AS few
) FROM (SELECT jsonb_array_elements_text(CAST(:given AS jsonb)) AS value) AS given
""",
}


@cache
def _build_lookup(by: sa.Column[Any], of: sa.Column[Any]) -> CompiledSelect:
    """Build a select of two columns, ``by`` and ``of``, for rows with given values of ``by``."""
    wanted: sa.BindParameter[Any] = sa.bindparam("values", expanding=True)
    return CompiledSelect(sa.select(by, of).where(by.in_(wanted)))


_MAX_REMEMBERED = 500_000


class LinkQueries(Queries):
    """Lookups whose cost does not grow with the corpus."""

    def __init__(self, store: ReadableStore, fulltext: FullTextReader) -> None:
        """Keep the store to read from, and its full-text index."""
        super().__init__(store)
        self._fulltext = fulltext

    @property
    def language(self) -> str | None:
        """Language of all texts of the store; None to detect that of each."""
        with self._store.connect() as connection:
            query = sa.select(meta.c.value).where(meta.c.name == "language")
            found: str | None = connection.scalar(query)
        return found

    def _lookup(
        self, statement: CompiledSelect, values: Sequence[object]
    ) -> Iterator[tuple[Any, ...]]:
        if not values:
            return
        with self._store.connect() as connection:
            for part in split_batches(values):
                yield from statement.rows(connection, {"values": part})

    def _pairs(
        self, by: sa.Column[Any], of: sa.Column[Any], values: Sequence[object]
    ) -> Iterable[tuple[Any, ...]]:
        """Read the columns ``by`` and ``of`` of all rows with one of ``values`` in ``by``."""
        if len(values) < _FEW:
            return self._lookup(_build_lookup(by, of), values)
        # Past the statement that is compiled for every length, which the driver parses in Python.
        return self._rows_in(sa.select(by, of), by, values)

    def _group(
        self, by: sa.Column[Any], of: sa.Column[Any], values: Sequence[object]
    ) -> dict[Any, list[Any]]:
        """Group the values of column ``of`` by those of column ``by``.

        Only rows with one of ``values`` in ``by`` are read; values without a row are left out.
        """
        return _group_by_key(self._pairs(by, of, values))

    def nodes(self, keys: Sequence[int]) -> list[LinkNode]:
        """The nodes with these keys."""
        return [LinkNode(*row) for row in self._lookup(_NODES, keys)]

    def documents(self, keys: Sequence[int]) -> dict[int, str]:
        """Document by key of the node."""
        return dict(self._pairs(contents.c.node, contents.c.document, keys))

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """Keys of nodes by id; those that do not exist are left out."""
        return dict(self._pairs(nodes.c.id, nodes.c.key, ids))

    def ids(self, keys: Sequence[int]) -> dict[int, str]:
        """Id by key of the node."""
        return dict(self._pairs(nodes.c.key, nodes.c.id, keys))

    def count_mentions(self, keys: Sequence[int]) -> dict[int, int]:
        """Count the nodes that mention each of these nodes."""
        return dict(self._pairs(nodes.c.key, nodes.c.mentions, keys))

    def owners(self, candidates: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes with these names, by name."""
        return self._group(names.c.name, names.c.node, candidates)

    def find_longer_names(self, texts: Sequence[str]) -> dict[str, str]:
        """Find, for each text, the first stored name that equals it or continues it by a word.

        Texts with which no name begins are left out.
        """
        if not texts:
            return {}
        with self._store.connect() as connection:
            query = sa.text(_LONGER_NAMES.format(rows=_JSON_ROWS[connection.dialect.name]))
            return {
                text: name
                for text, name in connection.execute(query, {"given": json.dumps(texts)}).all()
            }

    def find_second_words(self, firsts: Collection[str]) -> Mapping[str, AbstractSet[str]] | None:  # noqa: ARG002
        """Map each first word to the second words of stored names; None if not supported."""
        return None

    def names(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Names by key of the node."""
        return self._group(names.c.node, names.c.name, keys)

    def find_phrases(
        self, phrases: Iterable[tuple[str, ...]], limit: int
    ) -> dict[tuple[str, ...], list[int]]:
        """Find at most ``limit`` nodes with the tokens of a phrase side by side: keys by phrase."""
        distinct = list(dict.fromkeys(phrases))
        return dict(zip(distinct, self._fulltext.find_phrases(distinct, limit), strict=True))

    def find_addressed(self, targets: Sequence[str], most: int) -> dict[str, list[int]]:
        """Find the nodes that each link target leads to: at most ``most`` keys in order."""
        return self._find_few(addresses, targets, most)

    def addresses(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Link targets that lead to these nodes, by key."""
        return self._group(addresses.c.node, addresses.c.address, keys)

    def find_referring(self, targets: Sequence[str]) -> dict[str, list[int]]:
        """Keys of the nodes whose text contains link targets, by target."""
        return self._group(references.c.address, references.c.node, targets)

    def find_few_referring(self, targets: Sequence[str], most: int) -> dict[str, list[int]]:
        """Find the nodes that refer to each target: at most ``most`` keys in order, by target."""
        return self._find_few(references, targets, most)

    def _find_few(self, table: sa.Table, targets: Sequence[str], most: int) -> dict[str, list[int]]:
        if not targets:
            return {}
        with self._store.connect() as connection:
            query = _FEW_HOLDERS[connection.dialect.name].format(table=table.name)
            given = {"given": json.dumps(targets), "most": most}
            rows = connection.execute(sa.text(query), given)
            return {target: sorted(map(int, found.split(","))) for target, found in rows if found}

    def references(self, keys: Sequence[int], *, terms: bool) -> dict[int, list[str]]:
        """Read the terms (``terms`` True) or link targets in the text of these nodes, by key."""
        found = self._group(references.c.node, references.c.address, keys)
        return {key: _select_terms(values, terms=terms) for key, values in found.items()}

    def in_order(self, sources: Sequence[str]) -> dict[str, list[int]]:
        """Read the keys of the chunks of each source, in the order of the text.

        Documents of one source are in the order in which they were added, chunks by position.
        """
        return {source: self._read_source(source).tolist() for source in sources}

    def find_around(self, near: Mapping[str, Collection[int]]) -> dict[str, list[int]]:
        """Read a part of each source, as :meth:`in_order`, with two chunks beside each of some.

        Args:
            near: Keys of these chunks, by their source. Sources with thousands of chunks are not
                read whole where the keys of documents show which ones are side by side.
        """
        found = dict[str, list[int]]()
        most = _MANY_CHUNKS * (1 + sum(map(len, near.values())) // _OF_ONE_READ)
        for part in split_batches(near):
            rows = self._run(_IN_ORDER, values=part, most=most + 1)
            if len(rows) <= most:
                found |= _sort_by_source(rows)
                continue
            for source in part:
                around = self._read_around(source, near[source])
                if around is None:
                    whole = self._read_source(source)
                    places = np.flatnonzero(np.isin(whole, [*near[source]]))
                    start, end = max(0, places[0] - _BESIDE), places[-1] + _BESIDE + 1
                    around = whole[start:end].tolist()
                found[source] = around
        return found

    def _read_source(self, source: str) -> NDArray[np.int64]:
        """Read the keys of all chunks of a source, in order."""
        rows = self._run(_IN_ORDER, values=[source], most=_ALL)
        return np.array(_sort_by_source(rows).get(source, []), dtype=np.int64)

    def _read_around(self, source: str, keys: Collection[int]) -> list[int] | None:
        """Read a part as :meth:`find_around`; None if the chunks ``keys`` are not close together.

        Documents that were added one after the other, and whose chunks are all in a range of keys,
        are in this order side by side.
        """
        low, high = min(keys) - _NEAR, max(keys) + _NEAR
        if high - low > _WIDEST:
            return None
        scope: dict[str, Any] = {"source": source, "low": low, "high": high}
        rows = self._run(_AROUND, **scope)
        ((has_before, has_after),) = self._run(_ENDS, **scope)
        first = dict[str, int]()
        for _, document, _, key in rows:
            first[document] = min(key, first.get(document, key))
        end = _ALL
        for part in split_batches(first):
            for document, lowest in self._run(_BEYOND, documents=part, **scope):
                begun = first.pop(document)
                if lowest > high:  # it ends after the range
                    end = min(end, begun)
        whole = [row for row in rows if first.get(row[1], _ALL) < end]
        run = _sort_by_source(whole).get(source, [])
        given = set(keys)
        places = [place for place, key in enumerate(run) if key in given]
        if len(places) < len(given):
            return None
        is_first = places[0] >= _BESIDE or not has_before
        is_last = len(run) - places[-1] > _BESIDE or not has_after
        return run if is_first and is_last else None

    def find_ends(self, keys: Sequence[int], kind: int) -> set[tuple[int, int]]:
        """Find the edges of a kind that leave these nodes, as pairs ``(source, target)``."""
        query = sa.select(edges.c.source, edges.c.target).where(edges.c.kind == kind)
        return {(source, target) for source, target in self._rows_in(query, edges.c.source, keys)}

    def find_sources(self, keys: Sequence[int], kind: int) -> set[tuple[int, int]]:
        """Find the edges of a kind that lead to these nodes, as pairs ``(target, source)``."""
        query = sa.select(edges.c.target, edges.c.source).where(edges.c.kind == kind)
        return {(target, source) for target, source in self._rows_in(query, edges.c.target, keys)}


class RememberedLinks(LinkQueries):
    """Reader that looks up each word once; valid while no document is added or removed."""

    def __init__(self, store: ReadableStore, fulltext: FullTextReader) -> None:
        """Keep the store to read from, and its full-text index."""
        super().__init__(store, fulltext)
        self._names: dict[str, str | None] = {}
        self._seconds: dict[str, set[str]] = {}
        self._source: tuple[str, NDArray[np.int64]] | None = None

    def _read_source(self, source: str) -> NDArray[np.int64]:
        """Override :class:`LinkQueries`: the last source is remembered."""
        if self._source is None or self._source[0] != source:
            self._source = source, super()._read_source(source)
        return self._source[1]

    def find_longer_names(self, texts: Sequence[str]) -> dict[str, str]:
        """Override :class:`LinkQueries`: names are remembered."""
        return _remember(self._names, texts, super().find_longer_names)

    def find_second_words(self, firsts: Collection[str]) -> Mapping[str, AbstractSet[str]]:
        """Map first words of stored names to second words, read once for all look-ups."""
        if len(self._seconds) > _MAX_REMEMBERED:
            self._seconds.clear()
        if new := [first for first in firsts if first not in self._seconds]:
            self._seconds |= {first: set() for first in new}
            with self._store.connect() as connection:
                query = sa.text(_NAMES_BEGINNING.format(rows=_JSON_ROWS[connection.dialect.name]))
                for first, name in connection.execute(query, {"given": json.dumps(new)}).all():
                    self._seconds[first].add(name[len(first) + 1 :].partition(" ")[0])
        return self._seconds


class PublishedLinks(LinkQueries):
    """Reader that knows the chunks just published, and reads all others from the store."""

    def __init__(
        self, store: ReadableStore, fulltext: FullTextReader, published: Mapping[int, Node]
    ) -> None:
        """Keep the store to read from, its full-text index, and new chunks by key."""
        super().__init__(store, fulltext)
        self._published = published

    def _know(
        self,
        keys: Sequence[int],
        take: Callable[[int, Node], T],
        look_up: Callable[[list[int]], Mapping[int, T]],
    ) -> dict[int, T]:
        """Return values by key: of published chunks by ``take``, of other nodes by ``look_up``.

        Empty values of published chunks are left out.
        """
        other = [key for key in keys if key not in self._published]
        own = {key: take(key, self._published[key]) for key in keys if key in self._published}
        known = {key: value for key, value in own.items() if value}
        return {**known, **look_up(other)} if other else known

    def nodes(self, keys: Sequence[int]) -> list[LinkNode]:
        """Override :class:`LinkQueries`: published chunks are known."""
        columns = attrgetter("id", "document", "source", "position", "title", "content")
        found = self._know(
            keys,
            lambda key, node: LinkNode(key, *columns(node)),
            lambda others: {node.key: node for node in super(PublishedLinks, self).nodes(others)},
        )
        return list(found.values())

    def documents(self, keys: Sequence[int]) -> dict[int, str]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: node.document, super().documents)

    def names(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: [*dict.fromkeys(node.names)], super().names)

    def addresses(self, keys: Sequence[int]) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(keys, lambda _, node: [*dict.fromkeys(node.addresses)], super().addresses)

    def references(self, keys: Sequence[int], *, terms: bool) -> dict[int, list[str]]:
        """Override :class:`LinkQueries`: published chunks are known."""
        return self._know(
            keys,
            lambda _, node: _select_terms(dict.fromkeys(node.references), terms=terms),
            partial(super().references, terms=terms),
        )


def _select_terms(values: Iterable[str], *, terms: bool) -> list[str]:
    return [value for value in values if value.startswith(TERM) == terms]


def _remember(
    known: dict[str, T | None], wanted: Sequence[str], look_up: Callable[[list[str]], dict[str, T]]
) -> dict[str, T]:
    """Return the values of ``wanted`` words, from ``known`` or else by ``look_up``.

    New values, also that a word has none, are added to ``known``.
    """
    if len(known) > _MAX_REMEMBERED:
        known.clear()
    if new := [word for word in wanted if word not in known]:
        known.update(dict.fromkeys(new))
        known.update(look_up(new))
    return {word: value for word in wanted if (value := known[word]) is not None}


def _sort_by_source(rows: Iterable[tuple[Any, ...]]) -> dict[str, list[int]]:
    """Sort rows of ``_PLACES`` as :meth:`LinkQueries.in_order`; return keys by source."""
    begun: dict[tuple[str, str], int] = {}
    by_key = sorted(rows, key=itemgetter(3))
    places = [
        (source, begun.setdefault((source, document), key), position, key)
        for source, document, position, key in by_key
    ]
    return _group_by_key((source, key) for source, _, _, key in sorted(places))


def _group_by_key(rows: Iterable[tuple[Any, ...]]) -> dict[Any, list[Any]]:
    grouped: dict[Any, list[Any]] = {}
    for key, value in rows:
        grouped.setdefault(key, []).append(value)
    return grouped
