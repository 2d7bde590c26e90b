"""Any LangChain ``VectorStore`` as vector index.

:class:`StoreKind` is any of them; its subclasses in :mod:`~..parts.store_kinds` have what one needs
besides: ids, filters, look-ups, listing. What a filter says is in :mod:`~..core.metadata`.
"""

import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore
from pydantic import ValidationError

from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.metadata import (
    EVERYTHING,
    NOTHING,
    Condition,
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
from crabpath_retrievers.vectors.chroma import keep_filterable

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


_KINDS: "dict[str, type[StoreKind]]" = {}  # those of others


def find_kind(store: Any) -> "StoreKind":
    """Find the kind of a store by the names of its classes, which need not be installed."""
    kinds = {**load_part("crabpath_retrievers.parts.store_kinds").KINDS, **_KINDS}
    names = (each.__name__ for each in type(store).__mro__)
    kind: type[StoreKind] = next((kinds[name] for name in names if name in kinds), StoreKind)
    return kind(store)


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
