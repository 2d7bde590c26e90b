"""Any LangChain ``VectorStore`` as vector index, and what each does differently.

:class:`StoreKind` is any of them; its subclasses have what one needs besides: ids, filters,
look-ups, listing. What a filter says is in :mod:`~..core.metadata`.
"""

import json
import logging
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from pydantic import ValidationError

from crabpath_retrievers.core.metadata import (
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
from crabpath_retrievers.vectors.base import VectorIndex, find_leaked, is_ours
from crabpath_retrievers.vectors.chroma import keep_filterable, note_embedded, to_chroma

_BATCH = 256  # records in one write; hosted stores take a few hundred
_FILTER_HITS = 200  # hits requested to evaluate a filter of unknown syntax
_PAGE = 1000  # documents listed at a time
_DIMENSION = re.compile(r"dimension|Number of columns|vector dim", re.IGNORECASE)
_NO_CONNECTION = ("ConnectError", "ResponseHandlingException", "InterfaceError")
_log = logging.getLogger(__name__)


class VectorStoreIndex(VectorIndex):
    """Searches a LangChain vector store that others may own; ids are its document ids.

    The store embeds documents with its own embedder. It needs ``similarity_search_by_vector``, ids
    on the documents that it returns, ``add_documents`` with ids, and ``delete``.
    """

    reads_filters = True
    foreign = True
    """Documents that are deleted stay in the store: it belongs to its owner."""

    def __init__(self, vectorstore: VectorStore, *, deletes: bool = True) -> None:
        """Keep a vector store; ``deletes`` says whether documents may be deleted from it."""
        self._store, self.deletes = vectorstore, deletes
        self._kind = find_kind(vectorstore)
        self._turns: AbstractContextManager[Any] = (
            threading.RLock() if self._kind.is_single_threaded else nullcontext()
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
        """Add documents under their node ids; those with the same id are replaced."""
        documents = [
            Document(id=node_id, page_content=text, metadata=_simplify(metadata))
            for node_id, text, metadata in zip(ids, texts, metadatas, strict=True)
        ]
        for part in split_batches(documents, _BATCH):
            names = [str(document.id) for document in part]
            with self._turns:
                # Some stores merge metadata of an existing id, others refuse it.
                self._delete(self._find_present(names) or ())
                with self._use_store():
                    self._kind.add(part, names)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        with self._turns:
            present = self._find_present(ids)
            self._delete(ids if present is None else present)

    def _delete(self, ids: Sequence[str]) -> None:
        for part in split_batches(ids, _BATCH):
            cannot = "delete: updating and forgetting need a store that can"
            with self._use_store(cannot=cannot):
                done = self._kind.delete(part)
            if done is False:
                msg = f"{self.description} failed to delete, and does not say why: see its log"
                raise StoreError(msg)

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Find the ids of the k nearest documents that the filter allows, nearest first."""
        condition = self._parse(filter)
        if condition == NOTHING:
            return []
        given: dict[str, Any] = {}
        with self._use_store(filter, "search by vector: CrabPath needs a store that can"):
            if filter and condition != EVERYTHING:
                own = filter if condition is None else self._kind.translate(condition)
                given = self._kind.make_arguments(own)
            found = self._store.similarity_search_by_vector(vector.tolist(), k=k, **given)
        ids = [self._kind.get_id(document) for document in found]
        if None in ids:
            msg = f"{self.description} returns documents without ids: CrabPath needs them"
            raise ConfigurationError(msg)
        translates = self._kind.translates
        if isinstance(filter, Mapping) and filter and not (translates and is_ours(self._kind)):
            # Stores of others may take any argument, and ignore it.
            metadata = {
                str(own): document.metadata for own, document in zip(ids, found, strict=True)
            }
            leaked = find_leaked(self._store, filter, metadata, is_our_language=translates)
            ids = [own for own in ids if own not in leaked]
        return [str(own) for own in ids]

    def _parse(self, filter: MetadataFilter) -> Condition | None:  # noqa: A002
        """Parse a filter in our language; None for no filter, or one in the store's language."""
        if not filter or not self._kind.translates or not isinstance(filter, Mapping):
            return None
        return parse_filter(filter, type(self._store).__name__, self._kind.operators)

    def get_id(self, document: Document) -> str | None:
        """Return the id of a document that a search returned; None if it carries none."""
        return self._kind.get_id(document)

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002
        """Select the ids whose metadata satisfies the filter; None selects all of them.

        With a filter in the store's own language, only ids among the 200 nearest to ``vector`` can
        be selected.
        """
        if not ids or not filter:
            return set(ids)
        condition = self._parse(filter)
        if condition is None:
            return set(ids) & set(self.search(vector, _FILTER_HITS, filter))
        if condition == EVERYTHING:
            return set(ids) if (existing := self.find_existing(ids)) is None else existing
        if condition == NOTHING:
            return set()
        with self._use_store(filter):
            parts = [self._kind.select(part, condition) for part in split_batches(ids, _BATCH)]
        return set().union(*parts)

    def find_existing(self, ids: Sequence[str]) -> set[str] | None:
        """Select the ids that the store contains; None if it cannot look up ids."""
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
        """Yield all documents of the store, with ids."""
        if not self.lists:
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
        """Select the ids that the store contains; errors of the store are raised."""
        with self._turns:
            return [
                node_id
                for part in split_batches(ids, _BATCH)
                for node_id in self._kind.look_up(part)
            ]

    @contextmanager
    def _use_store(self, filter: MetadataFilter = None, cannot: str = "") -> Iterator[None]:  # noqa: A002
        """Use the store in a block, whose errors become CrabPath's.

        ``filter`` is that of the search, for messages; ``cannot`` completes the message about a
        store that has not implemented the operation.
        """
        try:
            with self._turns:
                yield
        except Exception as error:
            if cannot and isinstance(error, NotImplementedError):
                msg = f"{self.description} cannot {cannot}"
                raise ConfigurationError(msg) from error
            raise self._to_own_error(error, filter) from error

    def _to_own_error(self, error: Exception, condition: Any = None) -> CrabPathError:
        raise_interruption(error)
        if isinstance(error, CrabPathError):
            return error
        if isinstance(error, ValidationError):
            return StoreError(
                f"{self.description} holds a document that its own searches fail at, such as one "
                f"without a text: fill or delete it ({error})"
            )
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
    """Keep the part of metadata that every integration can store."""
    accepted = keep_filterable(metadata)
    return {key: value for key, value in accepted.items() if not isinstance(value, list)}


_KINDS: "dict[str, type[StoreKind]]" = {}


def find_kind(store: Any) -> "StoreKind":
    """Find the kind of a store by the names of its classes, which need not be installed."""
    names = (each.__name__ for each in type(store).__mro__)
    return next((_KINDS[name] for name in names if name in _KINDS), StoreKind)(store)


class StoreKind:
    """Any LangChain vector store whose documents carry their ids; see docs/how-to/extend.md.

    A subclass overrides what one store does differently, and names that store's class::

        class ShelfKind(StoreKind, of="ShelfVectorStore"): ...

    Attributes:
        store: The store.
        operators: Operators that its filters have besides those of all stores.
        serial: Whether its calls must not overlap in threads.
    """

    operators: ClassVar[tuple[str, ...]] = ()
    is_single_threaded: bool = False

    def __init_subclass__(cls, *, of: str = "", **options: Any) -> None:
        """Use this kind for stores of the class with the name ``of``, and of its subclasses."""
        super().__init_subclass__(**options)
        if of:
            _KINDS[of] = cls

    def __init__(self, store: Any) -> None:
        """Keep the store."""
        self.store = store

    @property
    def translates(self) -> bool:
        """Whether filters in the language of all stores are translated."""
        return type(self).translate is not StoreKind.translate

    @property
    def lists(self) -> bool:
        """Whether the store can list its documents."""
        return type(self).documents is not StoreKind.documents

    def get_id(self, document: Document) -> str | None:
        """Return the id of a document that the store returned; None if it has none."""
        return None if document.id is None else str(document.id)

    def translate(self, condition: Condition) -> Any:
        """Translate a filter for the store; without this method filters are in its own language."""
        raise NotImplementedError

    def make_arguments(self, condition: Any) -> dict[str, Any]:
        """Make the arguments of a search with a translated filter."""
        return {"filter": condition}

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
        """Yield all documents, with ids; a kind without this method cannot list them."""
        raise NotImplementedError


class ChromaKind(StoreKind, of="Chroma"):
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


class InMemoryKind(StoreKind, of="InMemoryVectorStore"):
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


class FaissKind(StoreKind, of="FAISS"):
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


class QdrantKind(StoreKind, of="QdrantVectorStore"):
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


class MilvusKind(StoreKind, of="Milvus"):
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


class CollectionKind(StoreKind, of="PGVector"):
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


class PostgresKind(StoreKind, of="PGVectorStore"):
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
