"""Any LangChain ``VectorStore`` as vector index, and what each does differently.

What any ``VectorStore`` does is in :class:`StoreKind`; each other class has what one store needs
besides: ids, filters, look-ups, listing. It is chosen by the names of a store's classes, which need
not be installed. What a filter says is in :mod:`~..core.filters`.
"""

import json
import logging
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.core.filters import (
    EVERYTHING,
    LISTS,
    NOTHING,
    OF_LISTS,
    ORDERS,
    Condition,
    Group,
    KeyCondition,
    join,
    make_test,
    parse_filter,
)
from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.query import MetadataFilter
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import keep_filterable, note_embedded, to_chroma

_MILVUS_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MILVUS_WORDS = frozenset(
    {"and", "or", "not", "in", "like", "exists", "is", "null", "true", "false"}
)
_MILVUS_SIGNS = {"$eq": "==", "$ne": "!=", "$gt": ">", "$gte": ">=", "$lt": "<", "$lte": "<="}


def to_postgres(condition: Condition) -> dict[str, Any]:
    """The condition as ``PGVectorStore`` reads it.

    Raises:
        InvalidInputError: A key is no identifier.
    """
    if isinstance(condition, Group):
        return {condition.operator: [to_postgres(part) for part in condition.parts]}
    key, operator, value = condition
    if not (key.isascii() and key.isidentifier()):
        msg = f"PGVectorStore cannot filter by the key {key!r}: it needs letters, digits and _"
        raise InvalidInputError(msg)
    if operator in LISTS:
        if len({str if isinstance(v, str) else isinstance(v, bool) for v in value}) > 1:
            msg = f"PGVectorStore compares {key!r} with values of one kind: ask for each kind alone"
            raise InvalidInputError(msg)
        # Its lists have values of one type, which is never boolean.
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        parts = [KeyCondition(key, single, each) for each in value]
        return to_postgres(join(group, parts))
    # A cast to integer would fail where another record has a fraction.
    number = float(value) if isinstance(value, int) and not isinstance(value, bool) else value
    translated = {key: {operator: number}}
    if operator == "$ne":  # null in SQL is not unequal either
        return {"$or": [translated, {key: {"$exists": False}}]}
    return translated


def to_milvus(condition: Condition) -> str:
    """The condition as an expression of Milvus; values are literals that cannot end early.

    Raises:
        InvalidInputError: A key is no name of Milvus.
    """
    if isinstance(condition, Group):
        sign = " and " if condition.operator == "$and" else " or "
        return sign.join(f"({to_milvus(part)})" for part in condition.parts)
    key, operator, value = condition
    if not _MILVUS_KEY.fullmatch(key) or key.lower() in _MILVUS_WORDS:
        msg = f"Milvus cannot filter by the key {key!r}: it needs letters, digits and _"
        raise InvalidInputError(msg)
    if operator in LISTS:
        group, single = ("$or", "$eq") if operator == "$in" else ("$and", "$ne")
        return to_milvus(join(group, [KeyCondition(key, single, each) for each in value]))
    compared = f"{key} {_MILVUS_SIGNS[operator]} {quote_milvus(value)}"
    # A field that is absent is neither equal nor unequal.
    return f"({compared}) or ({key} is null)" if operator == "$ne" else compared


def quote_milvus(value: Any) -> str:
    """A value as literal of an expression of Milvus."""
    return json.dumps(value, ensure_ascii=False)


def to_qdrant(condition: Condition, prefix: str = "metadata") -> Any:
    """The condition as a ``models.Filter`` of Qdrant over the payload under ``prefix``.

    Raises:
        InvalidInputError: A key cannot be written as a path of Qdrant.
    """
    from qdrant_client import models

    if isinstance(condition, Group):
        parts = [to_qdrant(part, prefix) for part in condition.parts]
        if condition.operator == "$and":
            return models.Filter(must=parts)
        return models.Filter(should=parts)
    key, operator, value = condition
    if not key or '"' in key or "\\" in key:
        msg = f'Qdrant cannot filter by the key {key!r}: it needs one without " and \\'
        raise InvalidInputError(msg)
    path = f"{prefix}.{key}" if _MILVUS_KEY.fullmatch(key) else f'{prefix}."{key}"'
    if operator in ORDERS:
        bounds = models.Range(**{operator[1:]: value})
        return models.Filter(must=[models.FieldCondition(key=path, range=bounds)])

    def equal(each: Any) -> Any:
        if isinstance(each, float):
            return models.FieldCondition(key=path, range=models.Range(gte=each, lte=each))
        return models.FieldCondition(key=path, match=models.MatchValue(value=each))

    given = [equal(each) for each in (value if operator in LISTS else [value])]
    if operator in ("$eq", "$in"):
        return models.Filter(should=given)
    return models.Filter(must_not=given)


_PAGE = 1000  # documents listed at a time
_SPACE = uuid.UUID("5b1c4a2e-6d0f-5c7e-9a43-2f8d1e7b9c60")  # of ids that Qdrant does not accept
_NUMBER = re.compile(r"0|[1-9][0-9]{0,18}")


class StoreKind:
    """Any LangChain vector store whose documents carry their ids.

    Attributes:
        translates: Whether filters in the language of all stores are translated.
        operators: Operators of filters that it has besides.
        native_async: Whether its own methods are asynchronous, not run in threads.
        deletes_by_filter: Whether it can delete what satisfies a filter.
        scores: Whether a search by vector can give scores.
        lists: Whether its documents can be listed.
    """

    translates: ClassVar[bool] = False
    operators: ClassVar[tuple[str, ...]] = ()
    native_async: ClassVar[bool] = False
    deletes_by_filter: ClassVar[bool] = False
    scores: ClassVar[bool] = False
    lists: ClassVar[bool] = False

    def __init__(self, store: Any) -> None:
        """Use a store."""
        self.store = store

    @property
    def serial(self) -> bool:
        """Whether its calls must not overlap in threads."""
        return False

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        return None if document.id is None else str(document.id)

    def parse(self, condition: Any) -> Condition | None:
        """A filter in our language; None for one in the store's own."""
        if not self.translates or not isinstance(condition, Mapping):
            return None
        return parse_filter(condition, type(self.store).__name__, self.operators)

    def translate(self, condition: Condition) -> Any:
        """A filter as the store reads it."""
        raise NotImplementedError

    def search(self, vector: list[float], k: int, condition: Any) -> list[Document]:
        """The k nearest documents that satisfy a filter in either language."""
        arguments = self.filter_arguments(condition) if condition else {}
        found: list[Document] = self.store.similarity_search_by_vector(vector, k=k, **arguments)
        return found

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The arguments of a search that carry a filter."""
        parsed = self.parse(condition)
        return {"filter": condition if parsed is None else self.translate(parsed)}

    def add(self, documents: Sequence[Document], ids: Sequence[str]) -> None:
        """Add documents under new ids."""
        self.store.add_documents(list(documents), ids=list(ids))

    def delete(self, ids: Sequence[str]) -> Any:
        """Delete documents; False if the store says that it failed."""
        return self.store.delete(list(ids))

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains, with ids and metadata."""
        return list(self.store.get_by_ids(list(ids)))

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        return [str(self.get_id(document)) for document in self.fetch_documents(ids)]

    def select(self, ids: Sequence[str], condition: Condition) -> set[str]:
        """Select the ids whose metadata satisfies a filter."""
        satisfies = make_test(condition)
        return {str(self.get_id(d)) for d in self.fetch_documents(ids) if satisfies(d.metadata)}

    def documents(self) -> Iterator[Document]:
        """All documents, with ids."""
        raise NotImplementedError


class ChromaKind(StoreKind):
    """``langchain_chroma.Chroma``."""

    translates = scores = lists = True
    operators = OF_LISTS

    def __init__(self, store: Any) -> None:
        """Use a store.

        Raises:
            ForkedError: Its embedded Chroma cannot work in this process, which was forked.
        """
        super().__init__(store)
        note_embedded(store._client)  # noqa: SLF001

    def translate(self, condition: Condition) -> Any:
        """A ``where``."""
        return to_chroma(condition)

    def look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        # Its get_by_ids fails on documents without metadata.
        return list(self.store.get(ids=list(ids), include=[])["ids"])

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains, without texts."""
        page = self.store.get(ids=list(ids), include=["metadatas"])
        return [
            Document(id=node_id, page_content="", metadata=metadata or {})
            for node_id, metadata in zip(page["ids"], page["metadatas"], strict=True)
        ]

    def documents(self) -> Iterator[Document]:
        """All documents, page by page."""
        offset = 0
        while True:
            page = self.store.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
            for node_id, text, metadata in zip(
                page["ids"], page["documents"], page["metadatas"], strict=True
            ):
                yield Document(id=node_id, page_content=text or "", metadata=metadata or {})
            if len(page["ids"]) < _PAGE:
                return
            offset += _PAGE


class InMemoryKind(StoreKind):
    """LangChain's ``InMemoryVectorStore``."""

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """True: it is a table in the process."""
        return True

    def translate(self, condition: Condition) -> Any:
        """A function of a document."""
        satisfies = make_test(condition)
        return lambda document: satisfies(document.metadata)

    def documents(self) -> Iterator[Document]:
        """All documents."""
        for node_id, record in list(self.store.store.items()):
            yield Document(id=node_id, page_content=record["text"], metadata=record["metadata"])


class FaissKind(StoreKind):
    """``FAISS`` of langchain-community."""

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """True: it is a table in the process."""
        return True

    def translate(self, condition: Condition) -> Any:
        """A function of metadata."""
        return make_test(condition)

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The filter, applied to all documents: by default it sees the 20 nearest."""
        return {**super().filter_arguments(condition), "fetch_k": max(1, self.store.index.ntotal)}

    def fetch_documents(self, ids: Sequence[str]) -> list[Document]:
        """Fetch the documents that the store contains."""
        found = ((each, self.store.docstore.search(each)) for each in ids)
        return [
            document.model_copy(update={"id": each})
            for each, document in found
            if isinstance(document, Document)
        ]

    def documents(self) -> Iterator[Document]:
        """All documents."""
        yield from self.fetch_documents(list(self.store.index_to_docstore_id.values()))


class QdrantKind(StoreKind):
    """``QdrantVectorStore``: its ids are numbers and UUIDs, and stand in the metadata.

    Other ids are kept in the metadata, under the UUID of their text.
    """

    translates = scores = lists = True

    @property
    def serial(self) -> bool:
        """Whether it is the local engine, which is one dictionary in the process."""
        options = self.store.client.init_options
        return bool(options.get("path")) or options.get("location") == ":memory:"

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        own = document.metadata.get(_OWN_ID, document.metadata.get("_id"))
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """A ``models.Filter``."""
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
        """All documents, page by page."""
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


_OWN_ID = "crabpath_id"


def _to_point(node_id: str) -> str | int:
    """The id of a point of Qdrant: numbers and UUIDs are what they are."""
    if _NUMBER.fullmatch(node_id):
        return int(node_id)
    try:
        if str(uuid.UUID(node_id)) == node_id:
            return node_id
    except ValueError:
        pass
    return str(uuid.uuid5(_SPACE, node_id))


class MilvusKind(StoreKind):
    """``langchain_milvus.Milvus``: ids stand in the metadata, filters are expressions."""

    translates = scores = native_async = deletes_by_filter = True

    @property
    def serial(self) -> bool:
        """Milvus Lite is a database in a file; a server is not told apart from it."""
        return True

    def __init__(self, store: Any) -> None:
        """Use a store."""
        super().__init__(store)
        self._key: str | None = None

    @property
    def _primary(self) -> str | None:
        """Name of the field with the ids; None before the first document."""
        if self._key is None and self.store.client.has_collection(self.store.collection_name):
            facts = self.store.client.describe_collection(self.store.collection_name)
            keys = [str(field["name"]) for field in facts["fields"] if field.get("is_primary")]
            self._key = keys[0] if keys else None
        return self._key

    def get_id(self, document: Document) -> str | None:
        """Id of a document that the store returned; None if it has none."""
        own = document.metadata.get(self._primary or "")
        return None if own is None else str(own)

    def translate(self, condition: Condition) -> Any:
        """An expression."""
        return to_milvus(condition)

    def filter_arguments(self, condition: Any) -> dict[str, Any]:
        """The filter, or the expression that was given as text."""
        return {"expr": super().filter_arguments(condition)["filter"]}

    def _name(self, ids: Sequence[str]) -> str:
        return f"{self._primary} in [{', '.join(map(quote_milvus, ids))}]"

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


class PostgresKind(StoreKind):
    """``PGVectorStore`` of langchain-postgres."""

    translates = scores = native_async = deletes_by_filter = True

    def translate(self, condition: Condition) -> Any:
        """Its own dictionary."""
        return to_postgres(condition)


_KINDS: Mapping[str, type[StoreKind]] = {
    "Chroma": ChromaKind,
    "InMemoryVectorStore": InMemoryKind,
    "FAISS": FaissKind,
    "QdrantVectorStore": QdrantKind,
    "Milvus": MilvusKind,
    "PGVectorStore": PostgresKind,
}


def find_kind(store: Any) -> StoreKind:
    """Kind of a store, by the names of its classes."""
    names = (each.__name__ for each in type(store).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), StoreKind)(store)


def require_success(result: Any, description: str) -> None:
    """Refuse the answer of a store that only tells of a failure.

    Raises:
        StoreError: It did.
    """
    if result is False:
        msg = f"{description} failed to delete, and does not say why: see its log"
        raise StoreError(msg)


_BATCH = 256  # records in one write; hosted stores take a few hundred
_FILTER_HITS = 200  # hits requested to evaluate a filter of unknown syntax

_DIMENSION = re.compile(r"dimension|Number of columns|vector dim", re.IGNORECASE)
_NO_CONNECTION = ("ConnectError", "ResponseHandlingException", "InterfaceError")

_log = logging.getLogger(__name__)


class VectorStoreIndex(VectorIndex):
    """Searches a LangChain vector store that others may own; ids are its document ids.

    The store embeds documents with its own embedder. It needs ``similarity_search_by_vector``, ids
    on the documents that it returns, ``add_documents`` with ids, and ``delete``.
    """

    foreign = True
    """Documents that are deleted stay in the store: it belongs to its owner."""

    def __init__(self, vectorstore: VectorStore) -> None:
        """Wrap a store."""
        self._store = vectorstore
        self._kind = find_kind(vectorstore)
        self._turns: AbstractContextManager[Any] = (
            threading.RLock() if self._kind.serial else nullcontext()
        )
        self._finds_ids: bool | None = None  # None before the first look-up
        self.unknown_reported = False
        self.place = {"kind": "wrapped", "store": self.description}

    @property
    def description(self) -> str:
        """Class of the store, for messages."""
        return f"LangChain {type(self._store).__name__}"

    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],  # noqa: ARG002  the store embeds by itself
        texts: Sequence[str],
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add documents under their node ids, or replace them."""
        documents = [
            Document(id=node_id, page_content=text, metadata=_simplify(metadata))
            for node_id, text, metadata in zip(ids, texts, metadatas, strict=True)
        ]
        for part in split_batches(documents, _BATCH):
            names = [str(document.id) for document in part]
            with self._turns:
                # Some stores merge metadata of an existing id, others refuse it.
                self._delete(self._find_present(names) or ())
                try:
                    self._kind.add(part, names)
                except Exception as error:
                    raise self._to_own_error(error) from error

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        with self._turns:
            present = self._find_present(ids)
            self._delete(ids if present is None else present)

    def _delete(self, ids: Sequence[str]) -> None:
        try:
            for part in split_batches(ids, _BATCH):
                require_success(self._kind.delete(part), self.description)
        except NotImplementedError as error:
            msg = f"{self.description} cannot delete: updating and forgetting need a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._to_own_error(error) from error

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest documents, nearest first."""
        condition = self._kind.parse(filter) if filter else None
        if condition == NOTHING:
            return []
        try:
            with self._turns:
                given = None if condition == EVERYTHING else filter
                documents = self._kind.search(vector.tolist(), k, given)
        except NotImplementedError as error:
            msg = f"{self.description} cannot search by vector: CrabPath needs a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._to_own_error(error, filter) from error
        ids = [self._kind.get_id(document) for document in documents]
        if None in ids:
            msg = f"{self.description} returns documents without ids: CrabPath needs them"
            raise ConfigurationError(msg)
        return [str(node_id) for node_id in ids]

    def get_id(self, document: Document) -> str | None:
        """Id of a document that a search of the store returned; None if it carries none."""
        return self._kind.get_id(document)

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002
        """Select the ids whose metadata satisfies the filter.

        With a filter of the store's own kind: those among its 200 nearest that satisfy it.
        """
        if not ids or not filter:
            return set(ids)
        condition = self._kind.parse(filter)
        if condition is None:
            return set(ids) & set(self.search(vector, _FILTER_HITS, filter))
        if condition == EVERYTHING:
            return set(ids) if (existing := self.find_existing(ids)) is None else existing
        if condition == NOTHING:
            return set()
        try:
            with self._turns:
                parts = [self._kind.select(part, condition) for part in split_batches(ids, _BATCH)]
        except Exception as error:
            raise self._to_own_error(error, filter) from error
        return set().union(*parts)

    def find_existing(self, ids: Sequence[str]) -> set[str] | None:
        """Select the ids that the store contains; None if it cannot look up ids.

        Raises:
            StoreError: A look-up fails after an earlier one succeeded.
        """
        if self._finds_ids is False:
            return None
        if not ids:
            return set()
        try:
            existing = set(self._look_up(ids))
        except Exception as error:
            raise_interruption(error)
            if self._finds_ids:
                raise self._to_own_error(error) from error
            self._finds_ids = False
            _log.warning(
                "%s cannot look up documents by id (%s): what is deleted from it is still returned "
                "until you call refresh()",
                self.description,
                error,
            )
            return None
        self._finds_ids = True
        return existing

    @property
    def lists(self) -> bool:
        """Whether the store can list its documents."""
        return self._kind.lists

    def documents(self) -> Iterator[Document]:
        """All documents of the store, with ids.

        Raises:
            ConfigurationError: The store cannot list its documents.
            StoreError: The store failed.
        """
        if not self._kind.lists:
            msg = f"{self.description} cannot list its documents: pass them as documents="
            raise ConfigurationError(msg)
        try:
            yield from self._kind.documents()
        except Exception as error:
            raise self._to_own_error(error) from error

    def report_unknown(self, ids: Sequence[str]) -> None:
        """Log that the store contains documents that the graph does not know."""
        self.unknown_reported = True
        _log.warning(
            "%s found documents that the memory does not know, such as %r: "
            "call refresh() to take over what is new in the store",
            self.description,
            ids[0],
        )

    def _find_present(self, ids: Sequence[str]) -> list[str] | None:
        """Select the ids that the store contains; None if it cannot look up ids."""
        try:
            return self._look_up(ids)
        except Exception as error:  # not implemented, for example
            raise_interruption(error)
            return None

    def _look_up(self, ids: Sequence[str]) -> list[str]:
        """Select the ids that the store contains."""
        with self._turns:
            return [
                node_id
                for part in split_batches(ids, _BATCH)
                for node_id in self._kind.look_up(part)
            ]

    def _to_own_error(self, error: Exception, condition: Any = None) -> CrabPathError:
        raise_interruption(error)
        if isinstance(error, CrabPathError):
            return error
        if isinstance(error, AssertionError) or _DIMENSION.search(str(error)):
            return EmbeddingMismatchError(
                f"{self.description} holds vectors of another dimension "
                f"({error or 'it does not say which'}): pass the embedder that it was filled with"
            )
        if _is_unreachable(error):
            return StoreUnavailableError(
                f"{self.description} cannot be reached ({error}): is its server running?"
            )
        if condition and isinstance(error, (TypeError, ValueError)):
            return InvalidInputError(
                f"the filter is not a condition that {self.description} reads ({error})"
            )
        return StoreError(f"{self.description} failed: {error}")


def _is_unreachable(error: BaseException | None) -> bool:
    """Whether a connection failed, here or in what caused the error."""
    while error is not None:
        if isinstance(error, (ConnectionError, TimeoutError)):
            return True
        if type(error).__name__ in _NO_CONNECTION:
            return True
        error = error.__cause__ or error.__context__
    return False


def _simplify(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of metadata that every integration can store."""
    accepted = keep_filterable(metadata)
    return {key: value for key, value in accepted.items() if not isinstance(value, list)}
