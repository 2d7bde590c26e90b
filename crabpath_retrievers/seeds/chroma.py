"""Chroma as vector index: embedded in a directory, or any client such as ``HttpClient``."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from filelock import FileLock, Timeout

from crabpath_retrievers.errors import (
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreLockedError,
    StoreUnavailableError,
)
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.index import Filter
from crabpath_retrievers.storage.engine import private_directory

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

COLLECTION = "crabpath"
_HNSW = {"space": "cosine", "ef_construction": 128, "max_neighbors": 24, "ef_search": 128}


class ChromaIndex:
    """One Chroma collection in cosine space."""

    def __init__(self, collection: "Collection", *, batch: int = 5000, where: str = "") -> None:
        """Use a collection that exists already.

        Args:
            collection: A Chroma collection.
            batch: Most records in one write.
            where: Shown to people in messages.

        Raises:
            ConfigurationError: The collection does not use cosine space.
        """
        self._collection = collection
        self._batch = batch
        self._where = where or f"Chroma collection {collection.name!r}"
        self._lock: FileLock | None = None

    @classmethod
    def embedded(cls, path: Path, name: str = COLLECTION) -> "ChromaIndex":
        """Open or create a collection in a directory that this process alone uses.

        Raises:
            StoreLockedError: Another process uses the directory; it would read stale data.
        """
        import chromadb
        from chromadb.config import Settings

        private_directory(path)
        lock = _exclusive(path)
        try:
            settings = Settings(anonymized_telemetry=False)
            with _translated(str(path)):
                client = chromadb.PersistentClient(path=str(path), settings=settings)
            index = cls.from_client(client, name, where=f"Chroma in {path}")
        except BaseException:
            lock.release()
            raise
        index._lock = lock  # noqa: SLF001  its own class
        return index

    @classmethod
    def from_client(
        cls, client: "ClientAPI", name: str = COLLECTION, *, where: str = ""
    ) -> "ChromaIndex":
        """Open or create a collection through a client (``HttpClient``, ``CloudClient``, …).

        Raises:
            InvalidInputError: The collection exists with another distance than cosine.
            StoreUnavailableError: The server cannot be reached.
        """
        with _translated(where or "the Chroma server"):
            collection = client.get_or_create_collection(
                name, configuration=cast("Any", {"hnsw": _HNSW}), embedding_function=None
            )
            # Chroma silently keeps the space of an existing collection.
            space = (collection.configuration_json.get("hnsw") or {}).get("space", "cosine")
            batch = client.get_max_batch_size()
        if space != "cosine":
            msg = (
                f"collection {name!r} uses distance {space!r}, CrabPath needs 'cosine': "
                "choose another collection name, or wrap the existing store with from_vectorstore"
            )
            raise InvalidInputError(msg)
        return cls(collection, batch=batch, where=where)

    @property
    def description(self) -> str:
        """What and where it is, for people."""
        return self._where

    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],  # noqa: ARG002  texts are kept in the graph store alone
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add vectors, or replace those with the same id."""
        for start in range(0, len(ids), self._batch):
            part = slice(start, start + self._batch)
            with _translated(self._where):
                self._collection.upsert(
                    ids=list(ids[part]),
                    embeddings=np.asarray(vectors[part], dtype=np.float32),
                    metadatas=cast("Any", [filterable(metadata) for metadata in metadatas[part]]),
                )

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""
        for start in range(0, len(ids), self._batch):
            with _translated(self._where):
                self._collection.delete(ids=list(ids[start : start + self._batch]))

    def search(self, vector: Vector, k: int, filter: Filter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest vectors, nearest first."""
        with _translated(self._where):
            found = self._collection.query(
                query_embeddings=vector[None, :],
                n_results=k,
                where=dict(filter) if filter else None,
                include=[],
            )
        return list(found["ids"][0])

    def matching(self, ids: Sequence[str], vector: Vector, filter: Filter) -> set[str]:  # noqa: A002, ARG002
        """Those of the ids that satisfy a filter."""
        if not ids or not filter:
            return set(ids)
        with _translated(self._where):
            found = self._collection.get(ids=list(ids), where=dict(filter), include=[])
        return set(found["ids"])

    def count(self) -> int:
        """Number of vectors."""
        with _translated(self._where):
            return self._collection.count()

    def close(self) -> None:
        """Release the directory."""
        if self._lock is not None:
            self._lock.release()
            if not self._lock.is_locked:
                from chromadb.api.shared_system_client import SharedSystemClient

                # Chroma caches systems by path; a later open would get this one's segments.
                SharedSystemClient.clear_system_cache()
            self._lock = None


def _exclusive(path: Path) -> FileLock:
    """One process per embedded directory: a second one would read stale segments.

    Within a process the lock is shared and counted, as Chroma shares its system by path.
    """
    lock = FileLock(
        path / "crabpath.lock", timeout=0, mode=0o600, thread_local=False, is_singleton=True
    )
    try:
        lock.acquire()
    except Timeout as error:
        msg = (
            f"{path} is in use by another process: close it there, or share the data through "
            "a Chroma server (vectors=chromadb.HttpClient(...))"
        )
        raise StoreLockedError(msg) from error
    return lock


def filterable(metadata: Mapping[str, Any]) -> dict[str, Any] | None:
    """The part of metadata that Chroma accepts: text, numbers and flags, and lists of one type."""
    kept = {key: value for key, value in metadata.items() if _accepted(value)}
    return kept or None


def _accepted(value: object) -> bool:
    if isinstance(value, (str, int, float)):
        return not isinstance(value, int) or -(2**63) <= value < 2**63
    if not isinstance(value, list) or not value:
        return False
    kinds = {type(item) for item in value}
    return len(kinds) == 1 and kinds <= {str, int, float, bool}


@contextmanager
def _translated(where: str) -> Iterator[None]:
    """Turn Chroma's errors into the project's own."""
    try:
        yield
    except CrabPathError:
        raise
    except Exception as error:  # Chroma raises bare ValueError and httpx errors too
        text = str(error).strip() or type(error).__name__
        if "dimension" in text:
            msg = f"{where} holds vectors of another dimension ({text}): use the same embedder"
            raise EmbeddingMismatchError(msg) from error
        if isinstance(error, (ConnectionError, OSError)) or "connect" in text.lower():
            msg = f"{where} cannot be reached ({text}): is the Chroma server running?"
            raise StoreUnavailableError(msg) from error
        if "where" in text.lower() and "expected" in text.lower():
            msg = f"the filter is not a Chroma condition ({text})"
            raise InvalidInputError(msg) from error
        msg = f"{where} failed: {text}"
        raise StoreError(msg) from error
