"""Any LangChain ``VectorStore`` as vector index."""

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_core.vectorstores import VectorStore

from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    StoreError,
)
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.chroma import filterable
from crabpath_retrievers.seeds.index import Filter

_BATCH = 256  # records in one write; hosted stores take a few hundred
_WIDE = 200  # hits among which a filter of unknown language is looked up


class VectorStoreIndex:
    """Searches a store that somebody else may own; ids are the store's own document ids.

    The store embeds what is added with its own embedder, so its text is the page content, and
    needs ``similarity_search_by_vector``, ids on the documents it returns, ``add_documents`` with
    ids and ``delete``: the surface that the well-kept integrations share.
    """

    foreign = True
    """Documents that others stand for stay in it: it is not ours to take them away."""

    def __init__(self, vectorstore: VectorStore) -> None:
        """Wrap a store."""
        self._store = vectorstore

    @property
    def description(self) -> str:
        """What it is, for people."""
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
            Document(id=node_id, page_content=text, metadata=_plain(metadata))
            for node_id, text, metadata in zip(ids, texts, metadatas, strict=True)
        ]
        for start in range(0, len(documents), _BATCH):
            part = documents[start : start + _BATCH]
            names = list(ids[start : start + _BATCH])
            # Adding a known id merges metadata in some stores and is refused by others.
            self._delete(self._present(names) or ())
            try:
                self._store.add_documents(part, ids=names)
            except Exception as error:
                raise self._failed(error) from error

    def delete(self, ids: Sequence[str]) -> None:
        """Delete documents; unknown ids are ignored."""
        present = self._present(ids)
        self._delete(ids if present is None else present)

    def _delete(self, ids: Sequence[str]) -> None:
        try:
            for start in range(0, len(ids), _BATCH):
                self._store.delete(list(ids[start : start + _BATCH]))
        except NotImplementedError as error:
            msg = f"{self.description} cannot delete: updating and forgetting need a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._failed(error) from error

    def search(self, vector: Vector, k: int, filter: Filter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest documents, nearest first."""
        arguments: dict[str, Any] = {"filter": filter} if filter else {}
        try:
            found = self._store.similarity_search_by_vector(vector.tolist(), k=k, **arguments)
        except NotImplementedError as error:
            msg = f"{self.description} cannot search by vector: CrabPath needs a store that can"
            raise ConfigurationError(msg) from error
        except Exception as error:
            raise self._failed(error, filter) from error
        if any(document.id is None for document in found):
            msg = f"{self.description} returns documents without ids: CrabPath needs them"
            raise ConfigurationError(msg)
        return [str(document.id) for document in found]

    def matching(self, ids: Sequence[str], vector: Vector, filter: Filter) -> set[str]:  # noqa: A002
        """Those of the ids that the store itself finds under the filter, among its nearest 200."""
        if not ids or not filter:
            return set(ids)
        return set(ids) & set(self.search(vector, _WIDE, filter))

    def held(self, ids: Sequence[str]) -> set[str] | None:
        """Those of the ids that the store holds; None when it cannot tell."""
        present = self._present(ids)
        return None if present is None else set(present)

    def count(self) -> int:
        """Unknown to the interface: -1."""
        return -1

    def close(self) -> None:
        """Nothing: the store belongs to the caller."""

    def _present(self, ids: Sequence[str]) -> list[str] | None:
        """Those of the ids that the store holds; None when it cannot tell."""
        found: list[str] = []
        try:
            for start in range(0, len(ids), _BATCH):
                held = self._store.get_by_ids(list(ids[start : start + _BATCH]))
                found += [str(document.id) for document in held]
        except Exception:  # not implemented, or documents without metadata in langchain-chroma
            return None
        return found

    def _failed(self, error: Exception, condition: Any = None) -> CrabPathError:
        if isinstance(error, CrabPathError):
            return error
        if condition and isinstance(error, (TypeError, ValueError)):
            return InvalidInputError(
                f"the filter is not a condition that {self.description} reads ({error})"
            )
        return StoreError(f"{self.description} failed: {error}")


def _plain(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of metadata that every integration can store."""
    accepted = filterable(metadata)
    return {key: value for key, value in accepted.items() if not isinstance(value, list)}
