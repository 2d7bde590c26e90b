"""Any LangChain ``VectorStore`` as vector index."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.core.query import MetadataFilter
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    StoreError,
)
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.vectors.base import VectorIndex
from crabpath_retrievers.vectors.chroma import keep_filterable

_BATCH = 256  # records in one write; hosted stores take a few hundred
_FILTER_HITS = 200  # hits requested to evaluate a filter of unknown syntax
_PAGE = 1000  # documents listed at a time

_log = logging.getLogger(__name__)
_Reader = TypeVar("_Reader", bound=Callable[..., Any])


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
        self._finds_ids: bool | None = None  # None before the first look-up
        self.unknown_reported = False

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
            # Some stores merge metadata of an existing id, others refuse it.
            self._delete(self._find_present(names) or ())
            try:
                self._store.add_documents(part, ids=names)
            except Exception as error:
                raise self._to_own_error(error) from error

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        present = self._find_present(ids)
        self._delete(ids if present is None else present)

    def _delete(self, ids: Sequence[str]) -> None:
        try:
            for part in split_batches(ids, _BATCH):
                self._store.delete(part)
        except NotImplementedError as error:
            msg = f"{self.description} cannot delete: updating and forgetting need a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._to_own_error(error) from error

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest documents, nearest first."""
        arguments: dict[str, Any] = {"filter": filter} if filter else {}
        try:
            documents = self._store.similarity_search_by_vector(vector.tolist(), k=k, **arguments)
        except NotImplementedError as error:
            msg = f"{self.description} cannot search by vector: CrabPath needs a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._to_own_error(error, filter) from error
        if any(document.id is None for document in documents):
            msg = f"{self.description} returns documents without ids: CrabPath needs them"
            raise ConfigurationError(msg)
        return [str(document.id) for document in documents]

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002
        """Those of the ids among the store's 200 nearest documents that satisfy the filter."""
        if not ids or not filter:
            return set(ids)
        return set(ids) & set(self.search(vector, _FILTER_HITS, filter))

    def find_existing(self, ids: Sequence[str]) -> set[str] | None:
        """Those of the ids that the store contains; None if it cannot look up ids.

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
        return _find_reader(self._store, _LISTINGS) is not None

    def documents(self) -> Iterator[Document]:
        """All documents of the store, with ids.

        Raises:
            ConfigurationError: The store cannot list its documents.
            StoreError: The store failed.
        """
        listing = _find_reader(self._store, _LISTINGS)
        if listing is None:
            msg = f"{self.description} cannot list its documents: pass them as documents="
            raise ConfigurationError(msg)
        try:
            yield from listing(self._store)
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
        """Those of the ids that the store contains; None if it cannot look up ids."""
        try:
            return self._look_up(ids)
        except Exception:  # not implemented, for example
            return None

    def _look_up(self, ids: Sequence[str]) -> list[str]:
        """Those of the ids that the store contains."""
        look_up = _find_reader(self._store, _LOOK_UPS) or _look_up_documents
        return [
            node_id for part in split_batches(ids, _BATCH) for node_id in look_up(self._store, part)
        ]

    def _to_own_error(self, error: Exception, condition: Any = None) -> CrabPathError:
        if isinstance(error, CrabPathError):
            return error
        if condition and isinstance(error, (TypeError, ValueError)):
            return InvalidInputError(
                f"the filter is not a condition that {self.description} reads ({error})"
            )
        return StoreError(f"{self.description} failed: {error}")


def _find_reader(store: VectorStore, readers: Mapping[str, _Reader]) -> _Reader | None:
    """The reader for a store by the names of its classes, which need not be installed."""
    return next(
        (readers[kind.__name__] for kind in type(store).__mro__ if kind.__name__ in readers), None
    )


def _list_chroma(store: Any) -> Iterator[Document]:
    offset = 0
    while True:
        page = store.get(limit=_PAGE, offset=offset, include=["documents", "metadatas"])
        for node_id, text, metadata in zip(
            page["ids"], page["documents"], page["metadatas"], strict=True
        ):
            yield Document(id=node_id, page_content=text or "", metadata=metadata or {})
        if len(page["ids"]) < _PAGE:
            return
        offset += _PAGE


def _list_in_memory(store: Any) -> Iterator[Document]:
    for node_id, record in list(store.store.items()):
        yield Document(id=node_id, page_content=record["text"], metadata=record["metadata"])


def _list_faiss(store: Any) -> Iterator[Document]:
    for node_id in list(store.index_to_docstore_id.values()):
        document = store.docstore.search(node_id)
        if isinstance(document, Document):
            yield document.model_copy(update={"id": node_id})


def _look_up_chroma(store: Any, ids: Sequence[str]) -> list[str]:
    # Its get_by_ids fails on documents without metadata.
    return list(store.get(ids=list(ids), include=[])["ids"])


def _look_up_faiss(store: Any, ids: Sequence[str]) -> list[str]:
    return [node_id for node_id in ids if isinstance(store.docstore.search(node_id), Document)]


def _look_up_documents(store: VectorStore, ids: Sequence[str]) -> list[str]:
    return [str(document.id) for document in store.get_by_ids(ids)]


_LISTINGS: Mapping[str, Callable[[Any], Iterable[Document]]] = {
    "Chroma": _list_chroma,
    "InMemoryVectorStore": _list_in_memory,
    "FAISS": _list_faiss,
}
_LOOK_UPS: Mapping[str, Callable[[Any, Sequence[str]], list[str]]] = {
    "Chroma": _look_up_chroma,
    "FAISS": _look_up_faiss,
}


def _simplify(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of metadata that every integration can store."""
    accepted = keep_filterable(metadata)
    return {key: value for key, value in accepted.items() if not isinstance(value, list)}
