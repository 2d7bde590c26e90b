"""The vector index that a memory opens for ``vectors="pgvector"``.

Its own SQL on the connections of the graph store, so that vectors are written in the transaction
that publishes their documents. Queries run in the thread of the memory, as all its statements do.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from types import MappingProxyType
from typing import Any

from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.core.metadata import Condition as FilterCondition
from crabpath_retrievers.core.metadata import Group, parse_filter
from crabpath_retrievers.core.query import MetadataFilter
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import EmbeddingMismatchError, InvalidInputError
from crabpath_retrievers.parts.pgvector.changes import (
    VectorRow,
    build_vector_index,
    create_vector_tables,
    delete_queued_vectors,
    delete_vectors,
    drop_next_vectors,
    drop_vector_index,
    put_vectors,
    switch_vector_tables,
)
from crabpath_retrievers.parts.pgvector.queries import VectorQueries
from crabpath_retrievers.parts.pgvector.tables import DOCUMENTS, NEXT, Condition, VectorType
from crabpath_retrievers.storage import Reader, Store
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.opening import PGVECTOR


class PgVectorIndex(VectorIndex):
    """Vectors of documents in the table ``crabpath_vectors``, or those of one namespace.

    The table is created with the first vector, which sets the dimension.
    """

    reads_filters = has_collections = is_copied = True
    removal = (Write(delete_queued_vectors),)
    switch = (Write(switch_vector_tables),)
    deferral = (Write(drop_vector_index),)
    completion = (Write(build_vector_index),)
    place: Mapping[str, str] = MappingProxyType({"kind": PGVECTOR})

    def __init__(self, store: Store, collection: str | None = None) -> None:
        """Keep the store in whose database the vectors are, which stays open.

        ``collection`` is the name of a collection of a namespace; None for the documents.
        """
        self._store, self._collection = store, collection
        self._queries = VectorQueries(store, collection)
        self._type: VectorType | None = None
        if collection is None and self._queries.find_extension() is None:
            store.write(create_vector_tables)

    @property
    def description(self) -> str:
        """Kind and place of the index, for messages."""
        return f"pgvector in {self._store.name}"

    def open_sibling(self, name: str) -> "PgVectorIndex":
        """Open the collection of a namespace."""
        return PgVectorIndex(self._store, name)

    def list_siblings(self) -> list[str]:
        """Names of the collections of namespaces."""
        return [] if self._find_type() is None else self._queries.collections()

    def drop(self) -> None:
        """Delete all vectors of the collection of a namespace."""
        if self._find_type() is not None:
            self._store.write(delete_vectors, None, self._collection)

    def open_next(self, *, anew: bool) -> "PgVectorIndex":
        """Open an index for another embedder, in a table of its own.

        If ``anew``, the table begins empty; if not, vectors of an earlier attempt are kept.
        """
        if anew:
            self.drop_next()
        return PgVectorIndex(self._store, NEXT)

    def drop_next(self) -> None:
        """Delete the table of another embedder."""
        self._store.write(drop_next_vectors)

    def use_next(self, following: VectorIndex) -> None:  # noqa: ARG002  it has the same name now
        """Forget the type of the vectors, as the table has another dimension now."""
        self._type = None

    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add vectors, or replace those with the same id."""
        self._store.apply(self.prepare_upsert(ids, vectors, texts, metadatas))

    def prepare_upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> tuple[Change, ...]:
        """Return the change that adds vectors when their documents are published."""
        if not ids:
            return ()
        if self._find_type() is None:
            table = NEXT if self._collection == NEXT else DOCUMENTS
            self._store.write(create_vector_tables, vectors[0].size, table)
        for vector in vectors:
            self._require_type(vector)
        # The questions of users are in the tables of their namespaces, and need no copy.
        kept = texts if self._collection in {None, NEXT} else [""] * len(texts)
        rows = list(map(VectorRow, ids, vectors, kept, map(dict, metadatas)))
        return (Write(put_vectors, rows, self._collection),)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""
        if ids and self._find_type() is not None:
            self._store.write(delete_vectors, ids, self._collection)

    def on(self, read: Reader) -> "PgVectorIndex":
        """Return the index on the connection of a reader.

        If the reader is an open transaction, changes are part of it.
        """
        queries = VectorQueries(read, self._collection)
        self._type = self._type or queries.find_type()
        bound = copy(self)
        store = read if isinstance(read, Store) else self._store
        vars(bound).update(_store=store, _queries=queries)
        return bound

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Find the ids of the k nearest vectors, nearest first; k also with a filter."""
        condition = to_condition(filter) if filter else None
        kind = self._find_type()
        if kind is None:
            return []
        return self._queries.search(self._require_type(vector), vector, k, condition)

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002, ARG002
        """Select the ids whose metadata satisfies a filter; None selects all of them."""
        if not ids or not filter:
            return set(ids)
        condition = to_condition(filter)
        return set() if self._find_type() is None else self._queries.find_existing(ids, condition)

    def find_existing(self, ids: Sequence[str]) -> set[str]:
        """Select the ids that the index contains."""
        return set() if self._find_type() is None else self._queries.find_existing(ids)

    def count_and_find(self, ids: Sequence[str]) -> tuple[int, set[str]]:
        """Count the vectors, and select the ids that exist."""
        return self.count(), self.find_existing(ids)

    def ids(self) -> Iterable[list[str]]:
        """All ids in pages."""
        return () if self._find_type() is None else self._queries.ids()

    def count(self) -> int:
        """Number of vectors."""
        return 0 if self._find_type() is None else self._queries.count()

    def _find_type(self) -> VectorType | None:
        """Type of the stored vectors; None while there is no table."""
        if self._type is None:  # another process may have created it since
            self._type = self._queries.find_type()
        return self._type

    def _require_type(self, vector: Vector) -> VectorType:
        kind = self._find_type()
        assert kind is not None, "the table was created"  # noqa: S101
        if vector.size != kind.dimension:
            msg = (
                f"the table {DOCUMENTS} of {self._store.name} holds vectors of dimension "
                f"{kind.dimension}, not {vector.size}: use the embedder that they come from"
            )
            raise EmbeddingMismatchError(msg)
        return kind


_VALUE = "(langchain_metadata -> %s::text)"
_ORDERS = {"$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}
_JOINTS = {"$and": (" AND ", "true"), "$or": (" OR ", "false")}  # and what none of them is


def to_condition(given: object) -> Condition:
    """Translate a filter in the language of :mod:`~...core.metadata` to a condition of SQL."""
    if not isinstance(given, Mapping) or not given:
        msg = f"the filter must be a condition such as {{'topic': 'it'}}, not {format_value(given)}"
        raise InvalidInputError(msg)
    return _translate(parse_filter(given, "pgvector"))


def _translate(condition: FilterCondition) -> Condition:
    if isinstance(condition, Group):
        parts = [_translate(part) for part in condition.parts]
        values = tuple(value for part in parts for value in part.values)
        joint, none = _JOINTS[condition.operator]
        return Condition(joint.join(f"({part.sql})" for part in parts) or none, values)
    key, operator, value = condition
    if operator in _ORDERS:
        typed = f"jsonb_typeof({_VALUE}) = 'number'"
        sql = f"{typed} AND {_VALUE} {_ORDERS[operator]} %s::jsonb"
        return Condition(sql, (key, key, _encode(value)))
    if operator in ("$eq", "$ne"):
        sign = "=" if operator == "$eq" else "IS DISTINCT FROM"
        return Condition(f"{_VALUE} {sign} %s::jsonb", (key, _encode(value)))
    negated = "" if operator == "$in" else "NOT "
    # A subquery is hashed once; an array would be gone through for every row.
    sql = f"{negated}coalesce({_VALUE} IN (SELECT jsonb_array_elements(%s::jsonb)), false)"
    return Condition(sql, (key, _encode(value)))


def _encode(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
