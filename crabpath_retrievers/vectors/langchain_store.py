"""Any LangChain ``VectorStore`` as vector index."""

import logging
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.core.filters import EVERYTHING, NOTHING
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
from crabpath_retrievers.vectors.chroma import keep_filterable
from crabpath_retrievers.vectors.store_kinds import find_kind, require_success

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
