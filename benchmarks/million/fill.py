"""Fills the graph tables of a store in bulk: ``executemany`` on SQLite, COPY on PostgreSQL."""

import json
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import closing
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from benchmarks.million.corpus import BATCH, Corpus, Passage
from crabpath_retrievers.core.records import Vector, compute_hub_level
from crabpath_retrievers.core.text import IndexedWords, list_mention_names
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.fulltext import TsVector
from crabpath_retrievers.storage.sql_tools import encode_vector

_TABLES = (s.nodes, s.contents, s.names, s.edges)
_NODE_COLUMNS = ("key", "id", "mentions", "title", "embedding", "terms", "level")
_CONTENT_COLUMNS = (
    *("node", "document", "source", "position", "digest", "length", "content", "metadata"),
)
Rows = Iterable[Sequence[Any]]
Known = tuple[Sequence[IndexedWords], Sequence[int], Sequence[int]]


class _Bulk(ABC):
    """Writes many rows; secondary indexes are built afterwards."""

    @abstractmethod
    def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """Insert rows."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run one statement."""

    @abstractmethod
    def read(self, query: str) -> list[tuple[Any, ...]]:
        """Rows of a query."""

    @abstractmethod
    def index_texts(self, rows: Iterable[tuple[int, list[str]]]) -> None:
        """Add tokens by key to the full-text index."""

    @abstractmethod
    def finish(self) -> None:
        """Make what the planner of the database needs."""


class _Sqlite(_Bulk):
    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        for pragma in ("synchronous=OFF", "cache_size=-500000", "journal_mode=OFF"):
            connection.execute(f"PRAGMA {pragma}").fetchall()

    def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        marks = ", ".join("?" * len(columns))
        statement = f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks})"
        self._connection.executemany(statement, rows)

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def index_texts(self, rows: Iterable[tuple[int, list[str]]]) -> None:
        texts = ((key, " ".join(tokens)) for key, tokens in rows)
        self.write("crabpath_fulltext", ("rowid", "tokens"), texts)

    def read(self, query: str) -> list[tuple[Any, ...]]:
        return self._connection.execute(query).fetchall()

    def finish(self) -> None:
        self._connection.commit()
        self._connection.execute("PRAGMA journal_mode=WAL").fetchall()


class _Postgres(_Bulk):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.execute("SET synchronous_commit = off")
        self.execute("SET maintenance_work_mem = '512MB'")

    def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        statement = f"COPY {table} ({', '.join(columns)}) FROM STDIN"
        with self._connection.cursor().copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def execute(self, statement: str) -> None:
        self._connection.execute(statement)

    def index_texts(self, rows: Iterable[tuple[int, list[str]]]) -> None:
        build = TsVector()._build_tsvector  # noqa: SLF001
        texts = ((key, build(tokens)) for key, tokens in rows)
        self.write("crabpath_fulltext", ("node", "tokens"), texts)

    def read(self, query: str) -> list[tuple[Any, ...]]:
        return list(self._connection.execute(query))

    def finish(self) -> None:
        sequence = f"pg_get_serial_sequence('{s.nodes.name}', 'key')"
        highest = f"(SELECT max(key) FROM {s.nodes.name})"
        self.execute(f"SELECT setval({sequence}, {highest})")
        self.execute("VACUUM ANALYZE")


def extend(place: str, corpus: Corpus, start: int, stop: int) -> None:
    """Write made passages and their edges into the graph of a directory or URL.

    A made passage has as many edges as the real one that it begins as, of the same kinds. Where
    one of these leads to a passage, the new one leads to this or to one that begins as it does.

    Args:
        place: Holds the passages before ``start``.
        corpus: The passages.
        start: First number, not below the number of real passages.
        stop: Number behind the last.
    """
    if "://" not in place:
        with closing(sqlite3.connect(Path(place) / "graph.sqlite")) as connection:
            _extend(_Sqlite(connection), sa.create_engine("sqlite://").dialect, corpus, start, stop)
        return
    engine = sa.create_engine(place, isolation_level="AUTOCOMMIT")
    with engine.connect() as opened:
        bulk = _Postgres(opened.connection.driver_connection)
        _extend(bulk, engine.dialect, corpus, start, stop)
    engine.dispose()


def _extend(bulk: _Bulk, dialect: sa.Dialect, corpus: Corpus, start: int, stop: int) -> None:
    keys, mentions = _read_nodes(bulk, start, stop)
    indexes = sorted((i for table in _TABLES for i in table.indexes), key=lambda i: str(i.name))
    for index in indexes:
        bulk.execute(f"DROP INDEX {index.name}")
    frequencies = Counter(dict(bulk.read(f"SELECT term, frequency FROM {s.terms.name}")))
    tokens = hubs = 0
    for batch in range(start // BATCH, stop // BATCH):
        passages, vectors = corpus.make_batch(batch)
        words = [IndexedWords.from_text(one.title, one.text, None) for one in passages]
        texts = [each.tokens.split() for each in words]
        levels = [compute_hub_level(one.id) for one in passages]
        hubs += sum(level > 0 for level in levels)
        tokens += sum(map(len, texts))
        frequencies.update(chain.from_iterable(map(set, texts)))
        known = words, levels, [mentions[one.number % corpus.count] for one in passages]
        _write_batch(bulk, [keys[one.number] for one in passages], passages, vectors, known)
    bulk.execute(f"DELETE FROM {s.terms.name}")
    bulk.write(s.terms.name, ("term", "frequency"), sorted(frequencies.items()))
    columns = [column.name for column in s.edges.columns]
    last = keys[corpus.count - 1]
    query = (
        f"SELECT {', '.join(columns)} FROM {s.edges.name} "
        f"WHERE source <= {last} AND target <= {last} ORDER BY source, target, kind"
    )
    edges = bulk.read(query)  # before anything is written
    bulk.write(s.edges.name, columns, _copy_edges(edges, keys, corpus.count, start))
    for index in indexes:
        bulk.execute(str(sa.schema.CreateIndex(index).compile(dialect=dialect)))
    for name, more in (("nodes", stop - start), ("tokens", tokens), ("hubs", hubs)):
        ((old,),) = bulk.read(f"SELECT value FROM {s.meta.name} WHERE name = '{name}'")
        bulk.execute(f"UPDATE {s.meta.name} SET value = '{int(old) + more}' WHERE name = '{name}'")
    bulk.finish()


def _read_nodes(bulk: _Bulk, start: int, stop: int) -> tuple[list[int], list[int]]:
    """Keys of all passages, with those that new ones will get, and how often each is mentioned."""
    rows = bulk.read(f"SELECT id, key, mentions FROM {s.nodes.name}")
    numbered = sorted((int(name[1:]), key, count) for name, key, count in rows)
    assert len(numbered) == start, "the passages before, and nothing else"  # noqa: S101
    last = max(key for _, key, _ in numbered)
    keys = [key for _, key, _ in numbered] + [*range(last + 1, last + 1 + stop - start)]
    return keys, [count for *_, count in numbered]


def _write_batch(
    bulk: _Bulk,
    keys: Sequence[int],
    passages: Sequence[Passage],
    vectors: Vector,
    known: Known,
) -> None:
    words, levels, mentions = known
    texts = [each.tokens.split() for each in words]
    nodes = zip(
        keys,
        [passage.id for passage in passages],
        mentions,
        [passage.title for passage in passages],
        [encode_vector(vector) for vector in vectors],
        [each.terms for each in words],
        levels,
        strict=True,
    )
    bulk.write(s.nodes.name, _NODE_COLUMNS, nodes)
    contents = (
        (key, p.id, p.id, 0, "", len(each), p.text, json.dumps({"title": p.title}))
        for key, each, p in zip(keys, texts, passages, strict=True)
    )
    bulk.write(s.contents.name, _CONTENT_COLUMNS, contents)
    names = (
        (name, key)
        for key, passage in zip(keys, passages, strict=True)
        for name in list_mention_names(passage.title)
    )
    bulk.write(s.names.name, ("name", "node"), names)
    bulk.index_texts(zip(keys, texts, strict=True))


def _copy_edges(rows: Rows, keys: Sequence[int], count: int, start: int) -> Rows:
    places = {key: number for number, key in enumerate(keys[:count])}
    real = [row for row in rows if row[0] in places and row[1] in places]
    sources, targets = (np.array([places[row[end]] for row in real]) for end in (0, 1))
    rng, stop = np.random.default_rng(start), len(keys)
    for copy in range(start // count, -(-stop // count)):
        new = sources + copy * count
        others = targets + rng.integers(0, copy + 1, len(real)) * count
        others = np.where(others < stop, others, targets)
        for place in np.flatnonzero((new >= start) & (new < stop)).tolist():
            yield (keys[new[place]], keys[others[place]], *real[place][2:])
