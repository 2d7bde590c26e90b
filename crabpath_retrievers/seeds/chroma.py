"""Chroma as vector index: embedded in a directory, or any client such as ``HttpClient``."""

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.client import HTTPException
from pathlib import Path
from shutil import disk_usage
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar, cast
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np
from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_fixed

from crabpath_retrievers.errors import (
    CrabPathError,
    EmbeddingMismatchError,
    InvalidInputError,
    StoreError,
    StoreUnavailableError,
)
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.chroma_directory import COLLECTION, Directory, is_panic
from crabpath_retrievers.seeds.chroma_files import glance
from crabpath_retrievers.seeds.index import Filter
from crabpath_retrievers.storage.engine import full_disk
from crabpath_retrievers.time_limit import TIME_LIMIT, waiting

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

T = TypeVar("T")
_RESERVED = ("#", "$", "chroma:")  # metadata keys that Chroma refuses or hides
_PORTS = {"http": 8000, "https": 443}
_EMBEDDED = "Chroma in "
_LITTLE = 2**20  # bytes: Chroma cannot write with less
_FULL = ("disk is full", "No space left")
_LEAST = 0.001  # seconds: what has no time left fails at once
_UNREADY = "Nothing found on disk"
_BESIDE = re.compile(r"(episodes|notes)-\d+")
_HNSW = {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 100}

# Rarely, Chroma cannot read an index that it is about to build; a moment later it can.
_patient = Retrying(
    retry=retry_if_exception(lambda error: _UNREADY in str(error)),
    stop=stop_after_attempt(4),
    wait=wait_fixed(0.05),
    reraise=True,
)


class ChromaIndex:
    """One Chroma collection in cosine space.

    An embedded one that Chroma cannot read any more is set aside, and begun anew: what it shall
    hold is the business of :attr:`refill`.

    Attributes:
        refill: Called once after that, by the thread that has noticed; None leaves it empty.
    """

    def __init__(self, collection: "Collection", *, batch: int = 5000, where: str = "") -> None:
        """Use a collection that exists already.

        Args:
            collection: A Chroma collection.
            batch: Most records in one write.
            where: Shown to people in messages.
        """
        self._collection: Collection | None = collection
        self._batch = batch
        self._where = where or f"Chroma collection {collection.name!r}"
        self._client: ClientAPI | None = None
        self._owned = False
        self._directory: Directory | None = None
        self._generation = 0
        self._main = self
        self.refill: Callable[[], None] | None = None

    @classmethod
    def embedded(cls, path: Path, name: str = COLLECTION) -> "ChromaIndex":
        """Open or create a collection in a directory that this process alone uses.

        Raises:
            StoreLockedError: Another process uses the directory; it would read stale data.
            StoreError: It cannot be read, and holds collections of others.
        """
        with _translated(str(path)):
            directory = Directory.enter(path, name)
        where = f"{_EMBEDDED}{directory.path}"
        try:
            try:
                index = cls.from_client(directory.client, name, where=where)
            except StoreError as error:
                with _translated(where):
                    if not directory.begin_anew(directory.generation, error, name):
                        raise
                index = cls.from_client(directory.client, name, where=where)
        except BaseException:
            directory.leave()
            raise
        index._directory = directory  # noqa: SLF001  its own class
        index._generation = directory.generation  # noqa: SLF001
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
        _limit(client)
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
        index = cls(collection, batch=batch, where=where)
        index._client = client
        return index

    @classmethod
    def at_url(cls, url: str) -> "ChromaIndex":
        """Open or create a collection on a Chroma server.

        Args:
            url: ``http://host:port`` or ``https://host``; a path names another collection.

        Raises:
            InvalidInputError: It is no such URL.
            StoreUnavailableError: The server cannot be reached.
        """
        client, name = _client_of(url)
        index = cls.from_client(client, name, where=f"Chroma at {url}")
        index._owned = True  # noqa: SLF001  its own class
        return index

    def beside(self, name: str) -> "ChromaIndex":
        """Another collection in the same place; it is released with this one."""
        own = self._records.name  # or this one is closed
        assert self._client is not None  # noqa: S101
        other = ChromaIndex.from_client(self._client, f"{own}-{name}", where=self._where)
        other._directory, other._generation = self._directory, self._generation  # noqa: SLF001
        other._main = self._main  # noqa: SLF001
        return other

    def names_beside(self) -> list[str]:
        """Names of the collections beside this one, as :meth:`beside` takes them."""
        begin = f"{self._records.name}-"
        assert self._client is not None  # noqa: S101
        with _translated(self._where):
            found = [one.name for one in self._client.list_collections()]
        known = [name.removeprefix(begin) for name in found if name.startswith(begin)]
        return [name for name in known if _BESIDE.fullmatch(name)]

    def drop(self) -> None:
        """Delete the collection with all its vectors."""
        name = self._records.name
        assert self._client is not None, "only a collection beside another one is dropped"  # noqa: S101
        with _translated(self._where):
            self._client.delete_collection(name)
        self._collection = None

    @property
    def local(self) -> bool:
        """Whether its files are this memory's own, in a directory."""
        return self._directory is not None

    @property
    def generation(self) -> int:
        """How often the directory was set aside since this process opened it."""
        return 0 if self._directory is None else self._directory.generation

    @property
    def description(self) -> str:
        """What and where it is, for people."""
        return self._where

    @property
    def _records(self) -> "Collection":
        if self._collection is None:
            msg = f"{self._where} is closed: open the memory again"
            raise StoreError(msg)
        if self._generation != self.generation:
            assert self._directory is not None  # noqa: S101
            generation, client = self._directory.generation, self._directory.client
            again = ChromaIndex.from_client(client, self._collection.name, where=self._where)
            self._client, self._collection = client, again._collection  # noqa: SLF001
            self._generation = generation
            assert self._collection is not None  # noqa: S101
        return self._collection

    def _do(self, work: "Callable[[Collection], T]", condition: Any = None) -> T:
        """Have Chroma do something; in a directory that it cannot read any more, once again."""
        before = self.generation
        try:
            return self._try(work, condition)
        except StoreError as error:
            if self._directory is None or self._collection is None:
                raise
            with _translated(self._where):
                mine = self._directory.begin_anew(before, error, self._collection.name)
            if self.generation == before:
                raise
        if mine and self._main.refill is not None:
            with self._directory.while_refilling():
                self._main.refill()
        return self._try(work, condition)

    def _try(self, work: "Callable[[Collection], T]", condition: Any) -> T:
        def once() -> T:
            with _translated(self._where, condition):
                return work(self._records)

        return _patient(once)

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
            self._put(list(ids[part]), vectors[part], metadatas[part])

    def _put(
        self, ids: list[str], vectors: Sequence[Vector], metadatas: Sequence[Mapping[str, Any]]
    ) -> None:
        self._do(
            lambda records: records.upsert(
                ids=ids,
                embeddings=np.asarray(vectors, dtype=np.float32),
                metadatas=cast("Any", _replacing(records, ids, metadatas)),
            )
        )

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""
        for start in range(0, len(ids), self._batch):
            part = list(ids[start : start + self._batch])
            self._do(lambda records, part=part: records.delete(ids=part))  # type: ignore[misc]

    def search(self, vector: Vector, k: int, filter: Filter = None) -> list[str]:  # noqa: A002
        """Ids of the k nearest vectors, nearest first."""
        found = self._do(
            lambda records: records.query(
                query_embeddings=vector[None, :],
                n_results=k,
                where=dict(filter) if filter else None,
                include=[],
            ),
            filter,
        )
        return list(found["ids"][0])

    def matching(self, ids: Sequence[str], vector: Vector, filter: Filter) -> set[str]:  # noqa: A002, ARG002
        """Those of the ids that satisfy a filter."""
        if not ids or not filter:
            return set(ids)
        where = dict(filter)
        found = self._do(
            lambda records: records.get(ids=list(ids), where=where, include=[]), filter
        )
        return set(found["ids"])

    def held(self, ids: Sequence[str]) -> set[str]:
        """Those of the ids that it holds."""
        found: set[str] = set()
        for start in range(0, len(ids), self._batch):
            part = list(ids[start : start + self._batch])
            got = self._do(lambda records, part=part: records.get(ids=part, include=[]))  # type: ignore[misc]
            found |= set(got["ids"])
        return found

    def inspect(self) -> None:
        """Begin anew with nothing where a file of an embedded index is damaged; all are read."""
        if self._directory is not None:
            with _translated(self._where):
                self._directory.inspect()

    def glance(self, ids: Sequence[str]) -> tuple[int, set[str]]:
        """How many vectors it has, and those of the ids that it holds, without loading them."""
        if self._directory is None:
            return self.count(), self.held(ids)
        return glance(self._directory.path, self._records.name, ids)

    def ids(self) -> Iterator[list[str]]:
        """All ids, some at a time; nothing may be added or deleted meanwhile."""
        start = 0
        while found := self._do(
            lambda records, start=start: records.get(  # type: ignore[misc]
                limit=self._batch, offset=start, include=[]
            )["ids"]
        ):
            yield list(found)
            start += len(found)

    def count(self) -> int:
        """Number of vectors."""
        return self._do(lambda records: records.count())

    def close(self) -> None:
        """Release the directory; a later open reads it afresh."""
        if self._directory is not None and self._main is self:
            self._directory.leave()
            self._directory = self._client = self._collection = None
        elif self._owned and self._client is not None:
            _hang_up(self._client)
            self._client = self._collection = None


def _replacing(
    records: "Collection", ids: Sequence[str], metadatas: Sequence[Mapping[str, Any]]
) -> list[dict[str, Any] | None]:
    """Metadata that replaces what records have: Chroma merges, and drops what is None."""
    known = records.get(ids=list(ids), include=["metadatas"])
    former = dict(zip(known["ids"], known["metadatas"] or (), strict=True))
    return [
        {**dict.fromkeys(former.get(node_id) or ()), **filterable(metadata)} or None
        for node_id, metadata in zip(ids, metadatas, strict=True)
    ]


@contextmanager
def visiting(url: str) -> "Iterator[tuple[ClientAPI, str]]":
    """A client of the server at a URL, and the name of the collection that is meant.

    Raises:
        InvalidInputError: It is no such URL.
        StoreUnavailableError: The server cannot be reached.
    """
    client, name = _client_of(url)
    try:
        yield client, name
    finally:
        _hang_up(client)


def _client_of(url: str) -> "tuple[ClientAPI, str]":
    """A client of the server at a URL, and the name of the collection that is meant."""
    import chromadb
    from chromadb.config import Settings

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in _PORTS or not parts.hostname:
        msg = f"{url!r} is no URL of a Chroma server: use a form such as http://localhost:8000"
        raise InvalidInputError(msg)
    settings = Settings(anonymized_telemetry=False)
    _require_answer(url, f"{parts.scheme}://{parts.hostname}:{port or _PORTS[parts.scheme]}")
    try:
        client = chromadb.HttpClient(
            parts.hostname,
            port or _PORTS[parts.scheme],
            ssl=parts.scheme == "https",
            settings=settings,
        )
    except ValueError as error:  # that is how chromadb says that nobody answers
        msg = f"Chroma at {url} cannot be reached ({error}): is the Chroma server running?"
        raise StoreUnavailableError(msg) from error
    return client, parts.path.strip("/") or COLLECTION


def _require_answer(url: str, address: str) -> None:
    """Ask a server for anything: chromadb would wait for ever for one that says nothing.

    Raises:
        StoreUnavailableError: It says nothing within the time limit.
    """
    with waiting() as until:
        left = TIME_LIMIT if until is None else max(_LEAST, until - monotonic())
        try:
            urlopen(f"{address}/api/v2/heartbeat", timeout=left).close()  # noqa: S310  http or https
        except OSError as error:
            if isinstance(error, HTTPError):
                error.close()
            if isinstance(getattr(error, "reason", error), TimeoutError):
                msg = f"Chroma at {url} did not answer within {left:.1f} s: is the server running?"
                raise StoreUnavailableError(msg) from error
        except HTTPException:  # what is wrong with the answer is for chromadb to say
            return


def _sessions(client: "ClientAPI") -> Iterator[Any]:
    """The HTTP sessions of a client; none where it is embedded."""
    for own in (client, getattr(client, "_admin_client", None)):
        session = getattr(getattr(own, "_server", None), "_session", None)
        if session is not None:
            yield session


def _limit(client: "ClientAPI") -> None:
    """Let no request wait longer than the call that it serves; limits of its own stay."""
    for session in _sessions(client):
        hooks = getattr(session, "event_hooks", {}).get("request")
        if hooks is not None and _shorten not in hooks:
            hooks.append(_shorten)


def _shorten(request: Any) -> None:
    """Give a request of httpx what is left of the limit."""
    with waiting() as until:
        if until is None:
            return
        left = max(_LEAST, until - monotonic())
    given = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        what: left if given.get(what) is None else min(given[what], left)
        for what in ("connect", "read", "write", "pool")
    }


def _hang_up(client: "ClientAPI") -> None:
    """Close a client with its connections, which chromadb 1.5 leaves open in its own close."""
    for session in _sessions(client):
        session.close()
    close = getattr(client, "close", None)
    if close is not None:
        close()


def filterable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """The part of metadata that Chroma accepts: text, numbers and flags, and lists of one type."""
    return {
        key: value
        for key, value in metadata.items()
        if key and not key.startswith(_RESERVED) and _accepted(value)
    }


def _accepted(value: object) -> bool:
    if not isinstance(value, list):
        return _scalar(value)
    kinds = {type(item) for item in value}
    return len(kinds) == 1 and all(map(_scalar, value))


def _scalar(value: object) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        # One list with a NaN makes a whole Chroma collection unreadable.
        return math.isfinite(value)
    return isinstance(value, str)


@contextmanager
def _translated(where: str, condition: Any = None) -> Iterator[None]:
    """Turn Chroma's errors into the project's own; what passes counts as waiting."""
    try:
        with waiting():
            yield
    except CrabPathError:
        raise
    except BaseException as error:
        if isinstance(error, Exception) or is_panic(error):
            raise _own(where, error, condition) from error
        raise


def _is_full(where: str, text: str) -> bool:
    """Whether an error comes from a full disk; an embedded Chroma does not always say so."""
    place = Path(where.removeprefix(_EMBEDDED))
    return any(sign in text for sign in _FULL) or (
        place.is_dir() and disk_usage(place).free < _LITTLE
    )


def _own(where: str, error: BaseException, condition: Any) -> CrabPathError:
    text = str(error).strip() or type(error).__name__
    if "embedding with dimension" in text:
        return EmbeddingMismatchError(
            f"{where} holds vectors of another dimension ({text}): use the same embedder"
        )
    if _is_full(where, text):
        return full_disk(where)
    # Chroma lets errors of httpx through.
    unreachable = isinstance(error, (ConnectionError, TimeoutError))
    if unreachable or type(error).__module__.startswith("httpx"):
        return StoreUnavailableError(
            f"{where} cannot be reached ({text}): is the Chroma server running?"
        )
    # It checks conditions before it sends them, with bare built-in errors.
    if condition and (isinstance(error, (ValueError, TypeError)) or "where" in text.lower()):
        return InvalidInputError(f"the filter is not a Chroma condition ({text})")
    return StoreError(f"{where} failed: {text}")
