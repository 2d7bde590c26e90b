"""What LangChain vector stores do differently, one kind for each: ids, filters, look-ups, listing.

What a filter says is in :mod:`~..core.metadata`.
"""

import json
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from langchain_core.documents import Document

from crabpath_retrievers.core.metadata import (
    LISTS,
    OF_LISTS,
    ORDERS,
    Condition,
    Group,
    KeyCondition,
    join,
    make_test,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.vector_store import StoreKind
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.vectors.chroma import note_embedded, to_chroma

_BATCH = 256  # documents looked up at a time
_PAGE = 1000  # documents listed at a time


class ChromaKind(StoreKind):
    """``langchain_chroma.Chroma``."""

    operators = OF_LISTS

    def __init__(self, store: Any) -> None:
        """Keep the store."""
        super().__init__(store)
        note_embedded(store._client)  # noqa: SLF001

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to Chroma's ``where``."""
        return to_chroma(condition)

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        # Its get_by_ids fails on documents without metadata.
        return list(self.store.get(ids=list(ids), include=[])["ids"])

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains, without texts."""
        return self._read_page(ids=list(ids), include=["metadatas"])

    def documents(self) -> Iterator[Document]:
        """Yield all documents, page by page."""
        offset = 0
        while page := self._read_page(
            limit=_PAGE, offset=offset, include=["documents", "metadatas"]
        ):
            yield from page
            offset += _PAGE

    def _read_page(self, **asked: Any) -> list[Document]:
        page = self.store.get(**asked)
        texts = page["documents"] or [""] * len(page["ids"])
        return [
            Document(id=node_id, page_content=text or "", metadata=metadata or {})
            for node_id, text, metadata in zip(page["ids"], texts, page["metadatas"], strict=True)
        ]


class InMemoryKind(StoreKind):
    """LangChain's ``InMemoryVectorStore``: a table in the process."""

    is_single_threaded = True

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to a function of a document."""
        satisfies = make_test(condition)
        return lambda document: satisfies(document.metadata)

    def documents(self) -> Iterator[Document]:
        """Yield all documents."""
        for node_id, record in list(self.store.store.items()):
            yield Document(id=node_id, page_content=record["text"], metadata=record["metadata"])


class FaissKind(StoreKind):
    """``FAISS`` of langchain-community: a table in the process."""

    is_single_threaded = True

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to a function of metadata."""
        return make_test(condition)

    def make_arguments(self, condition: Any) -> dict[str, Any]:
        """Apply the filter to all documents: by default FAISS filters the 20 nearest."""
        return {"filter": condition, "fetch_k": max(1, self.store.index.ntotal)}

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        search = self.store.docstore.search
        numbers = ((each, int(each)) for each in ids if _NUMBER.fullmatch(each))
        found = ((name, search(each)) for name, each in (*zip(ids, ids, strict=True), *numbers))
        return [
            document.model_copy(update={"id": name})
            for name, document in found
            if isinstance(document, Document)
        ]

    def documents(self) -> Iterator[Document]:
        """Yield all documents."""
        yield from self.fetch_documents([*map(str, self.store.index_to_docstore_id.values())])


def _require_key(fits: object, key: str, store: str, needed: str) -> None:
    if not fits:
        msg = f"{store} cannot filter by the key {key!r}: it needs {needed}"
        raise InvalidInputError(msg)


def _spell_out(key: str, operator: str, values: Sequence[Any]) -> Condition:
    """Write ``$in`` or ``$nin`` on a key as comparisons with each of the values."""
    group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
    return join(group, [KeyCondition(key, single, each) for each in values])


_SPACE = uuid.UUID("5b1c4a2e-6d0f-5c7e-9a43-2f8d1e7b9c60")  # of ids that Qdrant does not accept
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")  # that filters write as it is
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")
_OWN_ID = "crabpath_id"


class QdrantKind(StoreKind):
    """``QdrantVectorStore``: its ids are numbers and UUIDs, and stand in the metadata.

    Other ids are kept in the metadata, under the UUID of their text.
    """

    def __init__(self, store: Any) -> None:
        """Keep the store; the local engine is one dictionary in the process."""
        super().__init__(store)
        options = store.client.init_options
        self.is_single_threaded = bool(options.get("path")) or options.get("location") == ":memory:"

    def get_id(self, document: Document) -> str | None:
        """Return the id of a document that the store returned; None if it has none."""
        own = document.metadata.get(_OWN_ID, document.metadata.get("_id"))
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to a ``models.Filter``."""
        return to_qdrant(condition, self.store.metadata_payload_key)

    def add(self, documents: Sequence[Document], ids: Sequence[str]) -> None:
        """Add documents under new ids."""
        named = [
            document.model_copy(update={"metadata": {**document.metadata, _OWN_ID: node_id}})
            for document, node_id in zip(documents, ids, strict=True)
        ]
        self.store.add_documents(named, ids=[_to_point(node_id) for node_id in ids])

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        return self.store.delete([_to_point(node_id) for node_id in ids])

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        points: Any = [_to_point(node_id) for node_id in ids]
        return super().fetch_documents(points)

    def documents(self) -> Iterator[Document]:
        """Yield all documents, page by page."""
        offset = None
        while True:
            points, offset = self.store.client.scroll(
                self.store.collection_name, limit=_PAGE, offset=offset, with_payload=True
            )
            for point in points:
                metadata = dict(point.payload.get(self.store.metadata_payload_key) or {})
                node_id = str(metadata.pop(_OWN_ID, point.id))
                text = point.payload.get(self.store.content_payload_key, "")
                yield Document(id=node_id, page_content=text, metadata=metadata)
            if offset is None:
                return


def _to_point(node_id: str) -> str | int:
    """Convert an id to that of a Qdrant point: numbers and UUIDs stay, others become UUIDs."""
    if _NUMBER.fullmatch(node_id):
        return int(node_id)
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(_SPACE, node_id))


def to_qdrant(condition: Condition, prefix: str = "metadata") -> Any:
    """Translate a condition to a ``models.Filter`` over the payload under ``prefix``."""
    from qdrant_client import models

    if isinstance(condition, Group):
        parts = [to_qdrant(part, prefix) for part in condition.parts]
        return models.Filter(**{"must" if condition.operator == "$and" else "should": parts})
    key, operator, value = condition
    fits = key and '"' not in key and "\\" not in key
    _require_key(fits, key, "Qdrant", 'one without " and \\')
    path = f"{prefix}.{key}" if _NAME.fullmatch(key) else f'{prefix}."{key}"'
    if operator in ORDERS:
        bounds = models.Range(**{operator[1:]: value})
        return models.Filter(must=[models.FieldCondition(key=path, range=bounds)])

    def equal(each: Any) -> Any:
        if isinstance(each, float):
            return models.FieldCondition(key=path, range=models.Range(gte=each, lte=each))
        return models.FieldCondition(key=path, match=models.MatchValue(value=each))

    given = [equal(each) for each in (value if operator in LISTS else [value])]
    return models.Filter(**{"should" if operator in ("$eq", "$in") else "must_not": given})


_MILVUS_WORDS = frozenset(
    {"and", "or", "not", "in", "like", "exists", "is", "null", "true", "false"}
)
_MILVUS_SIGNS = {"$eq": "==", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


class MilvusKind(StoreKind):
    """``langchain_milvus.Milvus``: ids stand in the metadata, filters are expressions."""

    is_single_threaded = (
        True  # Milvus Lite is a database in a file; a server is not told apart from it
    )

    def __init__(self, store: Any) -> None:
        """Keep the store."""
        super().__init__(store)
        self._key: str | None = None
        self._is_counted = False  # ids are integers, as with auto_id

    @property
    def _primary(self) -> str | None:
        """Name of the field with the ids; None before the first document."""
        if self._key is None and self.store.client.has_collection(self.store.collection_name):
            fields = self.store.client.describe_collection(self.store.collection_name)["fields"]
            for field in fields:
                if field.get("is_primary"):
                    self._key, self._is_counted = str(field["name"]), field["type"].name == "INT64"
        return self._key

    def get_id(self, document: Document) -> str | None:
        """Return the id of a document that the store returned; None if it has none."""
        own = document.metadata.get(self._primary or "")
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to an expression."""
        return to_milvus(condition)

    def make_arguments(self, condition: Any) -> dict[str, Any]:
        """Pass the expression to a search."""
        return {"expr": condition}

    def _name(self, ids: Sequence[str]) -> str:
        literals = filter(_NUMBER.fullmatch, ids) if self._is_counted else map(_quote, ids)
        return f"{self._primary} in [{', '.join(literals)}]"

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        # Given ids it writes them into an expression as Python shows them.
        return None if self._primary is None else self.store.delete(expr=self._name(ids))

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        if self._primary is None or not ids:
            return []
        return [str(each) for each in self.store.get_pks(self._name(ids)) or ()]

    def select(self, ids: Sequence[str], condition: Condition) -> set[str]:
        """Select the ids whose metadata satisfies a filter."""
        if self._primary is None:
            return set()
        both = f"({self._name(ids)}) and ({to_milvus(condition)})"
        return {str(each) for each in self.store.get_pks(both) or ()}

    def documents(self) -> Iterator[Document]:
        """Yield all documents, page by page."""
        key, after = self._primary, ""
        while key:
            # Its own iterator writes ids into expressions as they are, and hangs at some.
            page = self.store.client.query(
                self.store.collection_name,
                filter=after,
                output_fields=["*"],
                limit=_PAGE,
                iterator="True",  # in the order of ids
                reduce_stop_for_best="True",
            )
            if not page:
                return
            last = page[-1][key]
            after = f"{key} > {last if self._is_counted else _quote(last)}"
            for row in page:
                name = str(row[key])
                found = self.store._parse_document(dict(row))  # noqa: SLF001  as its searches do
                yield found.model_copy(update={"id": name})


def to_milvus(condition: Condition) -> str:
    """Translate a condition to an expression of Milvus; no value can end its literal early."""
    if isinstance(condition, Group):
        sign = " and " if condition.operator == "$and" else " or "
        return sign.join(f"({to_milvus(part)})" for part in condition.parts)
    key, operator, value = condition
    fits = _NAME.fullmatch(key) and key.lower() not in _MILVUS_WORDS
    _require_key(fits, key, "Milvus", "letters, digits and _")
    if operator in LISTS:
        return to_milvus(_spell_out(key, operator, value))
    compared = f"{key} {_MILVUS_SIGNS[operator]} {_quote(value)}"
    # A field that is absent is neither equal nor unequal.
    return f"({compared}) or ({key} is null)" if operator == "$ne" else compared


def _quote(value: Any) -> str:
    """Write a value as literal of an expression of Milvus."""
    return json.dumps(value, ensure_ascii=False)


class CollectionKind(StoreKind):
    """``PGVector`` of langchain-postgres: collections share one table."""

    @property
    def lists(self) -> bool:
        """Whether the store can list documents: the class of langchain-community has no ids."""
        return hasattr(self.store, "EmbeddingStore") and not self.store.async_mode

    def documents(self) -> Iterator[Document]:
        """Yield all documents of the collection with a text, page by page."""
        table = self.store.EmbeddingStore
        with self.store._make_sync_session() as session:  # noqa: SLF001
            collection = self.store.get_collection(session)
            own = sa.select(table.id, table.document, table.cmetadata).where(
                table.collection_id == (collection and collection.uuid),
                table.document.is_not(None),  # its searches fail at such rows
            )
            for node_id, text, metadata in session.execute(own.execution_options(yield_per=_PAGE)):
                yield Document(id=str(node_id), page_content=text, metadata=metadata or {})


class PostgresKind(StoreKind):
    """``PGVectorStore`` of langchain-postgres."""

    def __init__(self, store: Any) -> None:
        """Keep the store."""
        super().__init__(store)
        self._is_counted: bool | None = None  # ids are integers; None before the first row

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        if self._is_counted is None:
            for node_id in self._list_ids("LIMIT 1"):
                self._is_counted = isinstance(node_id, int)
        names: Any = map(int, filter(_NUMBER.fullmatch, ids)) if self._is_counted else ids
        return super().fetch_documents(list(names))

    def documents(self) -> Iterator[Document]:
        """Yield all documents with a text, page by page."""
        for part in split_batches([str(node_id) for node_id in self._list_ids()], _BATCH):
            yield from self.fetch_documents(part)

    def _list_ids(self, end: str = "") -> list[Any]:
        table = self.store._PGVectorStore__vs  # noqa: SLF001
        asked = sa.text(
            f'SELECT "{table.id_column}" FROM "{table.schema_name}"."{table.table_name}" '
            f'WHERE "{table.content_column}" IS NOT NULL {end}'
        )

        async def fetch_ids() -> list[Any]:
            async with table.engine.connect() as connection:
                return list(await connection.scalars(asked))

        found: list[Any] = self.store._engine._run_as_sync(fetch_ids())  # noqa: SLF001
        return found

    def translate(self, condition: Condition) -> Any:
        """Translate a condition to the dictionary of ``PGVectorStore``."""
        return to_postgres(condition)


def to_postgres(condition: Condition) -> dict[str, Any]:
    """Translate a condition to the dictionary of ``PGVectorStore``."""
    if isinstance(condition, Group):
        return {condition.operator: [to_postgres(part) for part in condition.parts]}
    key, operator, value = condition
    fits = key.isascii() and key.isidentifier()
    _require_key(fits, key, "PGVectorStore", "letters, digits and _")
    if operator in LISTS:
        if len({str if isinstance(v, str) else isinstance(v, bool) for v in value}) > 1:
            msg = f"PGVectorStore compares {key!r} with values of one kind: ask for each kind alone"
            raise InvalidInputError(msg)
        # Its lists have values of one type, which is never boolean.
        return to_postgres(_spell_out(key, operator, value))
    # A cast to integer would fail where another record has a fraction.
    number = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    translated = {key: {operator: number}}
    if operator == "$ne":  # null in SQL is not unequal either
        return {"$or": [translated, {key: {"$exists": False}}]}
    return translated


KINDS: Mapping[str, type[StoreKind]] = {
    "Chroma": ChromaKind,
    "FAISS": FaissKind,
    "InMemoryVectorStore": InMemoryKind,
    "Milvus": MilvusKind,
    "PGVector": CollectionKind,
    "PGVectorStore": PostgresKind,
    "QdrantVectorStore": QdrantKind,
}
"""Kinds by the name of the store's class."""
