"""Reads of these vectors: nearest ids, ids, counts."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.parts.pgvector.tables import (
    COMPANIONS,
    DOCUMENTS,
    NEXT,
    Condition,
    Extension,
    VectorType,
    find_dimension,
    find_extension,
    find_rows,
    format_vector,
)
from crabpath_retrievers.storage.sql_tools import Queries, open_driver_cursor, split_batches

_PAGE = 10_000
_PREPARED = "crabpath_hnsw"
_ASKED_AGAIN = 1000  # searches of a connection until it looks how large the table has become
# The more vectors, the more of them must be looked at for the same recall. Of the 20 nearest of
# 4,937 MiniLM vectors an ef_search of 64 finds .995; of the 10 nearest of 300,000 it finds .962,
# 100 finds .986, and 128 .995, which takes an eighth longer.
_WIDTH = (
    "least(400, greatest(64, round(64 * power(greatest(reltuples, 1) / 30000, 1 / 3.0))))"
    "::int::text"
)
# For the session where there is one, since SET LOCAL costs each search a transaction. Relaxed,
# because a strict order leaves out what is found late; the few hits are sorted here.
_PREPARE = (
    f"SELECT set_config('hnsw.ef_search', coalesce((SELECT {_WIDTH} FROM pg_class "
    f"WHERE oid = to_regclass('{DOCUMENTS}')), '64'), {{0}}), "
    "set_config('hnsw.iterative_scan', 'relaxed_order', {0})"
)


class VectorQueries(Queries):
    """Reads of one collection, or of the documents; the tables exist unless said otherwise."""

    def __init__(self, store: Any, collection: str | None = None) -> None:
        """Keep the store to read from; ``collection`` None reads the vectors of documents."""
        super().__init__(store)
        self._table, self._own = find_rows(collection)

    def find_type(self) -> VectorType | None:
        """Type of the stored vectors; None before there are tables."""
        with self._store.connect() as connection:
            extension = find_extension(connection)
            table = NEXT if self._table == NEXT else DOCUMENTS
            dimension = None if extension is None else find_dimension(connection, table)
        if extension is None or dimension is None:
            return None
        return VectorType.make(extension, dimension)

    def find_extension(self) -> Extension | None:
        """The installed extension; None without it."""
        with self._store.connect() as connection:
            return find_extension(connection)

    def search(
        self, kind: VectorType, vector: Vector, k: int, condition: Condition | None
    ) -> list[str]:
        """Find the ids of the k nearest vectors, of the type ``kind``, nearest first.

        ``condition`` on metadata must be satisfied; None for none.
        """
        where = self._where(condition)
        # A limit that the planner knows: for an unknown one it may sort the whole table.
        query = (
            f"SELECT langchain_id, {kind.distance} AS distance FROM {self._table} "
            f"WHERE {where.sql} ORDER BY distance LIMIT {int(k)}"
        )
        with self._store.connect() as connection:
            rows = _fetch_nearest(connection, query, [format_vector(vector), *where.values])
        return [name for name, _ in sorted(rows, key=lambda row: row[1])]

    def find_existing(self, ids: Sequence[str], condition: Condition | None = None) -> set[str]:
        """Select the ids that are stored and satisfy a condition; None selects the stored ones."""
        where = self._where(condition)
        query = (
            f"SELECT langchain_id FROM {self._table} "
            f"WHERE {where.sql} AND langchain_id = ANY(%s::text[])"
        )
        found: set[str] = set()
        with self._store.connect() as connection:
            for part in split_batches(ids):
                found |= {name for (name,) in _fetch(connection, query, [*where.values, part])}
        return found

    def count(self) -> int:
        """Number of vectors."""
        query = f"SELECT count(*) FROM {self._table} WHERE {self._own.sql}"
        with self._store.connect() as connection:
            ((number,),) = _fetch(connection, query, self._own.values)
        return int(number)

    def ids(self) -> Iterator[list[str]]:
        """All ids in pages."""
        query = (
            f"SELECT langchain_id FROM {self._table} WHERE {self._own.sql} "
            f"AND langchain_id > %s ORDER BY langchain_id LIMIT {_PAGE}"
        )
        last = ""
        while True:
            with self._store.connect() as connection:
                page = [name for (name,) in _fetch(connection, query, [*self._own.values, last])]
            if not page:
                return
            yield page
            last = page[-1]

    def collections(self) -> list[str]:
        """Names of the collections of namespaces that hold vectors."""
        query = f"SELECT DISTINCT collection FROM {COMPANIONS} ORDER BY collection"
        with self._store.connect() as connection:
            return [name for (name,) in _fetch(connection, query, ())]

    def _where(self, condition: Condition | None) -> Condition:
        if condition is None:
            return self._own
        values = (*self._own.values, *condition.values)
        return Condition(f"{self._own.sql} AND ({condition.sql})", values)


def _fetch_nearest(
    connection: sa.Connection, query: str, values: Sequence[Any]
) -> list[tuple[Any, ...]]:
    driver: Any = connection.connection.driver_connection
    if not driver.is_pooled:
        left = connection.info.get(_PREPARED, 0)
        if not left:
            connection.exec_driver_sql(_PREPARE.format("false"))
        connection.info[_PREPARED] = (left or _ASKED_AGAIN) - 1
        return _fetch(connection, query, values)
    with open_driver_cursor(connection) as settings, driver.pipeline():  # one transaction
        settings.execute(_PREPARE.format("true"))
        return _fetch(connection, query, values)


def _fetch(connection: sa.Connection, query: str, values: Iterable[Any]) -> list[tuple[Any, ...]]:
    with open_driver_cursor(connection) as cursor:
        cursor.execute(query, list(values))
        return cursor.fetchall()  # type: ignore[no-any-return]
