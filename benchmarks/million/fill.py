"""Fills the graph tables of a store in bulk: ``executemany`` on SQLite, COPY on PostgreSQL."""

import json
import sqlite3
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from benchmarks.million.corpus import BATCH, Corpus, Passage, make_id
from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.records import EdgeKind, Vector, compute_hub_level
from crabpath_retrievers.core.text import encode_terms, list_mention_names, tokenise
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.fulltext import TsVector
from crabpath_retrievers.storage.sql_tools import encode_vector

FIRST_KEY = 2
"""Key of passage 0: the store has one document already, which says what its embedder is."""

_TABLES = (s.nodes, s.contents, s.names, s.edges)
_NODE_COLUMNS = ("key", "id", "mentions", "title", "embedding", "terms", "level")
_CONTENT_COLUMNS = (
    *("node", "document", "source", "position", "digest", "length", "content", "metadata"),
)
Rows = Iterable[Sequence[Any]]


class _Bulk(ABC):
    """Writes many rows; secondary indexes are built afterwards."""

    @abstractmethod
    def write(self, table: str, columns: Sequence[str], rows: Rows) -> None:
        """Insert rows."""

    @abstractmethod
    def execute(self, statement: str) -> None:
        """Run one statement."""

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

    def finish(self) -> None:
        self.execute("INSERT INTO crabpath_fulltext(crabpath_fulltext) VALUES ('optimize')")
        self._connection.commit()
        self._connection.execute("PRAGMA journal_mode=WAL").fetchall()


class _Postgres(_Bulk):
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.execute("SET synchronous_commit = off")
        self.execute("SET maintenance_work_mem = '512MB'")
        self.execute("DROP INDEX ix_crabpath_fulltext")

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

    def finish(self) -> None:
        self.execute("CREATE INDEX ix_crabpath_fulltext ON crabpath_fulltext USING gin(tokens)")
        sequence = f"pg_get_serial_sequence('{s.nodes.name}', 'key')"
        highest = f"(SELECT max(key) FROM {s.nodes.name})"
        self.execute(f"SELECT setval({sequence}, {highest})")
        self.execute("VACUUM ANALYZE")


def fill(location: str, corpus: Corpus) -> None:
    """Write all passages and edges into the store at a directory or URL, which has one document."""
    if "://" not in location:
        with closing(sqlite3.connect(Path(location) / "graph.sqlite")) as connection:
            _fill(_Sqlite(connection), corpus, sa.create_engine("sqlite://").dialect)
        return
    engine = sa.create_engine(location, isolation_level="AUTOCOMMIT")
    with engine.connect() as opened:
        _fill(_Postgres(opened.connection.driver_connection), corpus, engine.dialect)
    engine.dispose()


def _fill(bulk: _Bulk, corpus: Corpus, dialect: sa.Dialect) -> None:
    indexes = sorted((i for table in _TABLES for i in table.indexes), key=lambda i: str(i.name))
    for index in indexes:
        bulk.execute(f"DROP INDEX {index.name}")
    frequencies, tokens, hubs = Counter[str](), 0, 0
    mentions = corpus.count_mentions().tolist()
    for batch in range(corpus.size // BATCH):
        passages, vectors = corpus.passages(batch)
        words = [tokenise(f"{passage.title}\n{passage.text}") for passage in passages]
        levels = [compute_hub_level(make_id(passage.number)) for passage in passages]
        hubs += sum(level > 0 for level in levels)
        tokens += sum(map(len, words))
        for each in words:
            frequencies.update(set(each))
        _write_batch(bulk, passages, vectors, words, (levels, mentions))
    # Of the document that is there already.
    known = "(SELECT term FROM crabpath_terms)"
    bulk.execute(f"DELETE FROM crabpath_terms WHERE term IN {known}")
    bulk.write(s.terms.name, ("term", "frequency"), sorted(frequencies.items()))
    columns = [column.name for column in s.edges.columns]
    bulk.write(s.edges.name, columns, _edge_rows(corpus))
    for index in indexes:
        bulk.execute(str(sa.schema.CreateIndex(index).compile(dialect=dialect)))
    names = ", ".join(f"'{name}'" for name in ("nodes", "tokens", "hubs"))
    bulk.execute(f"DELETE FROM {s.meta.name} WHERE name IN ({names})")
    counted = {"nodes": corpus.size + 1, "tokens": tokens, "hubs": hubs}
    bulk.write(s.meta.name, ("name", "value"), [(name, str(n)) for name, n in counted.items()])
    bulk.finish()


def _write_batch(
    bulk: _Bulk,
    passages: Sequence[Passage],
    vectors: Vector,
    words: Sequence[list[str]],
    known: tuple[Sequence[int], Sequence[int]],
) -> None:
    levels, mentions = known
    keys = [passage.number + FIRST_KEY for passage in passages]
    ids = [make_id(passage.number) for passage in passages]
    nodes = zip(
        keys,
        ids,
        [mentions[passage.number] for passage in passages],
        [passage.title for passage in passages],
        [encode_vector(vector) for vector in vectors],
        [encode_terms(each) for each in words],
        levels,
        strict=True,
    )
    bulk.write(s.nodes.name, _NODE_COLUMNS, nodes)
    contents = (
        (key, name, name, 0, "", len(each), p.text, json.dumps({"title": p.title}))
        for key, name, each, p in zip(keys, ids, words, passages, strict=True)
    )
    bulk.write(s.contents.name, _CONTENT_COLUMNS, contents)
    names = (
        (name, key)
        for key, passage in zip(keys, passages, strict=True)
        for name in list_mention_names(passage.title)
    )
    bulk.write(s.names.name, ("name", "node"), names)
    bulk.index_texts(zip(keys, words, strict=True))


def _edge_rows(corpus: Corpus) -> Iterator[tuple[Any, ...]]:
    priors = {kind.value: prior for kind, prior in Settings().links.priors.items()}
    assert EdgeKind.MENTION.value in priors  # noqa: S101
    for sources, targets, kinds in corpus.edges():
        rows = zip(
            (sources + FIRST_KEY).tolist(),
            (targets + FIRST_KEY).tolist(),
            kinds.tolist(),
            strict=True,
        )
        for source, target, kind in rows:
            yield source, target, kind, priors[kind], priors[kind], 0.0
