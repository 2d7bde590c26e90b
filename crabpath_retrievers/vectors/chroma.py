"""Vector index in Chroma: embedded in a directory, or through a client such as ``HttpClient``."""

import math
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial
from math import ceil, floor
from pathlib import Path
from shutil import disk_usage
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import numpy as np

from crabpath_retrievers.core.calls import track_waiting
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.metadata import (
    EVERYTHING,
    LISTS,
    NOTHING,
    OF_LISTS,
    ORDERS,
    Condition,
    Group,
    group_by_kind,
    is_fraction,
    make_test,
    parse_filter,
)
from crabpath_retrievers.core.processes import find_interruption, use_engine
from crabpath_retrievers.core.query import MetadataFilter
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import (
    CrabPathError,
    EmbeddingMismatchError,
    ForkedError,
    InvalidInputError,
    StoreError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage.database import build_disk_full_error, can_make_files
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.vectors.base import VectorIndex, is_same
from crabpath_retrievers.vectors.chroma_directory import (
    DEFAULT_COLLECTION,
    NEXT,
    ChromaDirectory,
    find_owner,
    is_next,
    is_panic,
)

if TYPE_CHECKING:
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection
    from chromadb.api.types import GetResult

T = TypeVar("T")
_Entry: TypeAlias = tuple[str, Vector, Mapping[str, Any]]
_EMBEDDED = "Chroma in "
_MIN_FREE = 2**20  # bytes that Chroma needs for writing
_DISK_FULL = ("disk is full", "No space left")
_NO_RIGHT = ("readonly database", "Permission denied")
# Rarely, Chroma fails to read an index that it is still building; a retry succeeds.
_NOT_READY = "Nothing found on disk"
_ATTEMPTS, _PAUSE = 5, 0.05  # seconds between them
_STAMP = "crabpath_stamp"  # key in the metadata of a collection
_MOST_COMPARED = 2_000  # vectors under a condition, of which HNSW reached fewer than wanted
_HNSW = {"space": "cosine", "ef_construction": 128, "max_neighbors": 16, "ef_search": 100}


class ChromaIndex(VectorIndex):
    """One Chroma collection in cosine space.

    If an embedded Chroma can no longer read its files, they are moved aside and an empty directory
    takes their place, which :attr:`refill` fills again, in the thread that met the failure.
    """

    reads_filters = has_collections = is_copied = True

    def __init__(self, collection: "Collection", *, batch: int = 5000, where: str = "") -> None:
        """Keep an existing collection.

        Args:
            batch: Most records in one write.
            where: Kind and place of the index, for messages.
        """
        self._collection: Collection | None = collection
        self._batch = batch
        self._where = where or f"Chroma collection {collection.name!r}"
        self._client: Any = None  # needed for other collections alone
        self._owns_client = False
        self._directory: ChromaDirectory | None = None
        self._generation = 0
        self._ready = -1  # generation in which an operation succeeded: the first one may write
        self._main, self._process = self, os.getpid()
        self._ahead: dict[tuple[bytes, int], list[str]] = {}  # ids by vector and number of hits

    @classmethod
    def open_directory(cls, path: Path, name: str = DEFAULT_COLLECTION) -> "ChromaIndex":
        """Open or create a collection in a directory that only this process uses."""
        with _translate_errors(str(path)):
            directory = ChromaDirectory.enter(path, name)
        where = f"{_EMBEDDED}{directory.path}"
        try:
            try:
                index = cls.from_client(directory.client, name, where=where)
            except StoreError as error:
                with _translate_errors(where):
                    if not directory.replace_damaged(error, name):
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
        cls, client: "ClientAPI", name: str = DEFAULT_COLLECTION, *, where: str = ""
    ) -> "ChromaIndex":
        """Open or create the collection ``name`` through a client (``HttpClient``, …)."""
        note_embedded(client)
        limit_requests(client)
        with _translate_errors(where or "the Chroma server"):
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
        """Open or create a collection on a Chroma server; see :mod:`~..parts.chroma_server`."""
        client, name = load_part("crabpath_retrievers.parts.chroma_server").create_client(url)
        index = cls.from_client(client, name, where=f"Chroma at {url}")
        index._owns_client = True  # noqa: SLF001  its own class
        return index

    def open_sibling(self, name: str) -> "ChromaIndex":
        """Open another collection in the same place; it is released with this one."""
        other = self._run(
            lambda own: ChromaIndex.from_client(
                self._client, f"{own.name}-{name}", where=self._where
            ),
            writes=True,
        )
        other._directory, other._generation = self._directory, self._generation  # noqa: SLF001
        other._main = self._main  # noqa: SLF001
        return other

    def list_siblings(self) -> list[str]:
        """List the names of the other collections, as :meth:`open_sibling` expects them."""
        main = self._records.name
        of_namespaces = [n for n in self._list_collections() if n != main and not is_next(n)]
        return [name.removeprefix(f"{main}-") for name in of_namespaces]

    def drop(self) -> None:
        """Delete the collection with all its vectors."""
        assert self._client is not None, "only a collection beside another one is dropped"  # noqa: S101
        self._delete(self._records.name)
        self._collection = None

    def open_next(self, *, anew: bool) -> "ChromaIndex":
        """Open the collection of another embedder."""
        if anew:
            self.drop_next()
        return self.open_sibling(NEXT)

    def drop_next(self) -> None:
        """Delete the collections of another embedder."""
        for name in self._list_collections():
            if is_next(name):
                self._delete(name)

    def use_next(self, following: VectorIndex) -> None:
        """Search the collection ``following`` from now on."""
        assert isinstance(following, ChromaIndex)  # noqa: S101
        self._collection = following._collection  # noqa: SLF001  its own class

    def take_next(self) -> None:
        """Give the collections of another embedder the names of the former ones."""
        main = self._records.name.removesuffix(f"-{NEXT}")
        following = f"{main}-{NEXT}"
        held = self._list_collections()
        if following not in held:
            return
        for name in held:
            if not is_next(name):
                self._delete(name)
        # The main one last: while it has its name, this is not done.
        for name in sorted(filter(is_next, held), reverse=True):
            self._rename(name, main + name.removeprefix(following))
        self._collection = self._run(lambda _: self._client.get_collection(main))

    def _list_collections(self) -> list[str]:
        """Names of all collections of this memory."""
        main = self._records.name.removesuffix(f"-{NEXT}")
        names = [held.name for held in self._run(lambda _: self._client.list_collections())]
        return [name for name in names if name == main or find_owner(name) == main]

    def _delete(self, name: str) -> None:
        from chromadb.errors import NotFoundError

        def delete(_: "Collection") -> None:
            with suppress(NotFoundError):  # another call has forgotten the same namespace
                self._client.delete_collection(name)

        self._run(delete, writes=True)

    def _rename(self, name: str, other: str) -> None:
        self._run(lambda _: self._client.get_collection(name).modify(name=other), writes=True)

    @property
    def local(self) -> bool:
        """Whether the index is embedded, with files of its own in a directory."""
        return self._directory is not None

    @property
    def generation(self) -> int:
        """Number of clients given up since this process opened an embedded index."""
        return 0 if self._directory is None else self._directory.generation

    @property
    def description(self) -> str:
        """Kind and place of the index, for messages."""
        return self._where

    @property
    def _records(self) -> "Collection":
        if self._process != os.getpid():
            raise ForkedError
        if self._collection is None:
            msg = f"{self._where} is closed: open the memory again"
            raise StoreError(msg)
        if self._directory is not None and self._generation != self._directory.generation:
            with _translate_errors(self._where):  # a client that was given up is made anew
                generation, client = self._directory.generation, self._directory.client
            again = ChromaIndex.from_client(client, self._collection.name, where=self._where)
            self._client, self._collection = client, again._collection  # noqa: SLF001
            self._generation = generation
            assert self._collection is not None  # noqa: S101
        return self._collection

    def _run(self, work: "Callable[[Collection], T]", *, writes: bool = False) -> T:
        """Return the result of ``work``, called with the collection.

        If damaged files made it fail, they are replaced, and it is called again. ``writes`` says
        whether it writes.
        """
        directory = self._directory
        if directory is None:
            return self._attempt(work)
        for is_last in (False, True):
            before = directory.generation
            may_write = writes or self._ready != before
            with directory.lock if may_write else nullcontext():
                try:
                    done = self._attempt(work)
                except StoreError as error:
                    if self._collection is None:
                        raise
                    with _translate_errors(self._where), directory.lock:
                        renewed = not may_write and directory.generation != before
                        if may_write:
                            directory.give_up_client()
                        name = self._collection.name
                        replaced = not renewed and directory.replace_damaged(error, name)
                    if is_last or not (renewed or replaced):
                        raise
                else:
                    self._ready = self._generation
                    return done
            if replaced and self._main.refill is not None:
                directory.is_refilling = True
                try:
                    self._main.refill()
                finally:
                    directory.is_refilling = False
        raise AssertionError  # the last attempt returns or raises

    def _attempt(self, work: "Callable[[Collection], T]") -> T:
        left = _ATTEMPTS
        while True:
            left -= 1
            used = nullcontext() if self._directory is None else self._directory.use()
            try:
                with used, _translate_errors(self._where):
                    return work(self._records)
            except StoreError as error:
                if not left or _NOT_READY not in str(error):
                    raise
            sleep(_PAUSE)

    def upsert(
        self,
        ids: Sequence[str],
        vectors: Sequence[Vector],
        texts: Sequence[str],  # noqa: ARG002  only the graph store keeps texts
        metadatas: Sequence[Mapping[str, Any]],
    ) -> None:
        """Add vectors, or replace those with the same id."""

        def write(records: "Collection", part: Sequence[_Entry]) -> None:
            if changed := list(_find_changed(records, part)):
                names, some, metadata = map(list, zip(*changed, strict=True))
                records.upsert(
                    ids=names,
                    embeddings=np.asarray(some, dtype=np.float32),
                    metadatas=cast("Any", metadata),
                )

        for part in split_batches(zip(ids, vectors, metadatas, strict=True), self._batch):
            self._require_room(part[0][1].nbytes * len(part))
            self._run(partial(write, part=part), writes=True)

    def _require_room(self, size: int) -> None:
        """Refuse to write so many bytes of vectors to a disk that is full."""
        place = None if self._directory is None else self._directory.path
        if place and place.is_dir() and disk_usage(place).free < _MIN_FREE + 2 * size:
            raise build_disk_full_error(self._where)

    def delete(self, ids: Sequence[str]) -> None:
        """Delete vectors; unknown ids are ignored."""
        for part in split_batches(ids, self._batch):
            try:
                self._run(lambda records, part=part: records.delete(ids=part), writes=True)  # type: ignore[misc]
            except StoreError as error:
                self._require_forgotten(error)

    def _require_forgotten(self, error: StoreError) -> None:
        """Raise an error, unless it is of a namespace that was forgotten meanwhile."""
        if self._main is self or not _IS_GONE.search(str(error)):
            raise error

    def search(self, vector: Vector, k: int, filter: MetadataFilter = None) -> list[str]:  # noqa: A002
        """Find the ids of the k nearest vectors that the filter allows, nearest first."""
        condition = _parse(filter) if filter else EVERYTHING
        if condition == NOTHING:
            return []
        where = None if condition == EVERYTHING else to_chroma(condition)
        known = self._ahead.get((vector.tobytes(), k)) if where is None else None
        try:
            return known or self._run(partial(_search, vector=vector, k=k, where=where))
        except StoreError as error:
            self._require_forgotten(error)
            return []

    @contextmanager
    def search_ahead(self, vectors: Sequence[Vector], k: int) -> Iterator[None]:
        """Search for several vectors in one call of Chroma, which takes little longer than one."""
        with suppress(StoreError):  # each search inside fails as well, and says so
            asked = [(vector.tobytes(), k) for vector in vectors]
            found = self._run(partial(_query, vectors=vectors, k=k)) if vectors else []
            self._ahead = dict(zip(asked, found, strict=True))
        try:
            yield
        finally:
            self._ahead = {}

    def filter_ids(self, ids: Sequence[str], vector: Vector, filter: MetadataFilter) -> set[str]:  # noqa: A002, ARG002
        """Select the ids whose metadata satisfies a filter; None selects all of them."""
        if not ids or not filter:
            return set(ids)
        satisfies = make_test(_parse(filter))
        allowed: set[str] = set()
        for part in split_batches(ids, self._batch):
            # With ids and a condition in one call, Chroma takes time quadratic in the ids.
            page = self._get(part, "metadatas")
            found = zip(page["ids"], page["metadatas"] or (), strict=True)
            allowed |= {node_id for node_id, metadata in found if satisfies(metadata or {})}
        return allowed

    def find_existing(self, ids: Sequence[str]) -> set[str]:
        """Select the ids that the collection contains."""
        parts = split_batches(ids, self._batch)
        return {found for part in parts for found in self._get(part)["ids"]}

    def read_vectors(self, ids: Sequence[str]) -> dict[str, Vector]:
        """Read the vectors ``[d]`` of the ids that the collection contains."""
        page = self._get(ids, "embeddings")
        vectors = page["embeddings"]
        return dict(zip(page["ids"], () if vectors is None else vectors, strict=True))

    def _get(self, ids: Sequence[str], *fields: str) -> "GetResult":
        """Read these ``fields`` of the records with these ids."""
        include = cast("Any", list(fields))
        return self._run(lambda records: records.get(ids=list(ids), include=include))

    def read_stamp(self) -> str | None:
        """Return the stamp that was stored when this collection was opened; None if none."""
        return cast("str | None", (self._records.metadata or {}).get(_STAMP))

    def write_stamp(self, stamp: str) -> None:
        """Store the stamp that ties the vectors to a state of the graph store."""
        self._run(
            lambda own: own.modify(metadata={**(own.metadata or {}), _STAMP: stamp}), writes=True
        )

    def inspect(self) -> None:
        """Read all files of an embedded index, and replace them if one is damaged."""
        if self._directory is not None:
            with _translate_errors(self._where):
                self._directory.inspect()

    def erase(self) -> None:
        """Erase deleted vectors from the files of an embedded index."""
        if self._directory is not None:
            with _translate_errors(self._where):
                self._directory.erase()

    def count_and_find(self, ids: Sequence[str]) -> tuple[int, set[str]]:
        """Count the vectors, and select the ids that exist, without loading the index."""
        if self._directory is None:
            return self.count(), self.find_existing(ids)
        part = load_part("crabpath_retrievers.parts.chroma_files")
        found: tuple[int, set[str]]
        found = part.peek_collection(self._directory.path, self._records.name, ids)
        return found

    def ids(self) -> Iterator[list[str]]:
        """Yield all ids in pages; nothing may be added or deleted until the end."""
        start = 0
        while page := self._run(
            lambda records, start=start: records.get(  # type: ignore[misc]
                limit=self._batch, offset=start, include=[]
            )["ids"]
        ):
            yield list(page)
            start += len(page)

    def count(self) -> int:
        """Number of vectors."""
        return self._run(lambda records: records.count())

    def close(self) -> None:
        """Release the directory or the client; a later open reads the files again."""
        if self._process != os.getpid():  # the parent's are not closed here
            return
        if self._directory is not None and self._main is self:
            self._directory.leave()
            self._directory = self._client = self._collection = None
        elif self._owns_client and self._client is not None:
            close_client(self._client)
            self._client = self._collection = None


def _search(records: "Collection", vector: Vector, k: int, where: Any) -> list[str]:
    """Find the ids of the k nearest vectors that satisfy ``where``, nearest first.

    If most vectors are about equally far from each other, HNSW reaches few others: with a
    condition, those that it does not reach are compared one by one.
    """
    (near,) = _query(records, [vector], k, where)
    if where is None or len(near) >= k:
        return list(near)
    held = records.get(where=where, limit=_MOST_COMPARED, include=["embeddings"])
    vectors = held["embeddings"]
    if vectors is None or len(held["ids"]) <= len(near):
        return list(near)
    order = np.argsort(-(np.asarray(vectors) @ vector), kind="stable")
    return [held["ids"][place] for place in order[:k]]


def _query(
    records: "Collection", vectors: Sequence[Vector], k: int, where: Any = None
) -> list[list[str]]:
    """Find the ids of the k vectors nearest to each of some vectors, by HNSW."""
    asked = np.stack(vectors)
    return records.query(query_embeddings=asked, n_results=k, where=where, include=[])["ids"]


def _find_changed(
    records: "Collection", entries: "Sequence[_Entry]"
) -> "Iterator[tuple[str, Vector, dict[str, Any] | None]]":
    """Yield the entries that differ from those in the collection: replacing a vector takes long.

    Keys of metadata that an entry no longer has are None: Chroma merges metadata, and removes None
    values.
    """
    known = records.get(ids=[name for name, _, _ in entries], include=["metadatas", "embeddings"])
    vectors = () if known["embeddings"] is None else known["embeddings"]
    found = zip(known["ids"], vectors, known["metadatas"] or (), strict=True)
    former = {name: (vector, metadata or {}) for name, vector, metadata in found}
    for name, vector, given in entries:
        held, kept = former.get(name, (None, {}))
        metadata = keep_filterable(given)
        if held is None or metadata != kept or not is_same(held, vector):
            yield name, vector, {**dict.fromkeys(kept), **metadata} or None


def _parse(given: MetadataFilter) -> Condition:
    """Parse a filter to a condition."""
    if not isinstance(given, Mapping):
        shown = format_value(given)
        msg = f"the filter must be a Chroma condition such as {{'topic': 'it'}}, not {shown}"
        raise InvalidInputError(msg)
    return parse_filter(given, "Chroma", OF_LISTS)


UNSTORED_KEYS = ("#", "$", "chroma:")
"""Keys of metadata that begin so are refused or hidden by Chroma."""


def to_chroma(condition: Condition) -> dict[str, Any]:
    """Translate a condition to Chroma's ``where``, with one operator for each key."""
    if isinstance(condition, Group):
        return {condition.operator: [to_chroma(part) for part in condition.parts]}
    key, operator, value = condition
    if not key or key.startswith(UNSTORED_KEYS):
        msg = f"Chroma cannot filter by the key {key!r}: it stores none that begins so"
        raise InvalidInputError(msg)
    kinds = group_by_kind(value) if operator in LISTS else [value]  # a list has values of one type
    parts = [_exclude_cut(key, operator, each) for each in kinds]
    return parts[0] if len(parts) == 1 else {"$or" if operator == "$in" else "$and": parts}


_OTHERS = {"$eq": ("$and", "$ne"), "$ne": ("$or", "$eq"), "$in": ("$and", "$nin")}
_OTHERS |= {"$nin": ("$or", "$in"), "$gt": ("$or", "$gte"), "$lt": ("$or", "$lte")}
_OTHERS |= {"$gte": ("$and", "$gt"), "$lte": ("$and", "$lt")}


def _exclude_cut(key: str, operator: str, value: Any) -> dict[str, Any]:
    """Write the condition ``operator`` and ``value`` on a key so that Chroma compares right.

    Chroma cuts 2.5 to 2 where metadata are whole numbers; a second condition excludes that.
    """
    one = {key: {operator: value}}
    if not is_fraction(value[0] if operator in LISTS else value) or operator in OF_LISTS:
        return one
    if operator in LISTS:
        near: Any = [int(each) for each in value]
    elif operator in ORDERS:
        near = (ceil if operator in ("$gt", "$lte") else floor)(value)
    else:
        near = int(value)
    joint, other = _OTHERS[operator]
    return {joint: [one, {key: {other: near}}]}


def keep_filterable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the metadata that Chroma accepts: strings, numbers, booleans, lists of one type."""
    return {
        key: value
        for key, value in metadata.items()
        if key and not key.startswith(UNSTORED_KEYS) and _is_accepted(value)
    }


def _is_accepted(value: object) -> bool:
    if not isinstance(value, list):
        return _is_scalar(value)
    kinds = {type(item) for item in value}
    return len(kinds) == 1 and all(map(_is_scalar, value))


def _is_scalar(value: object) -> bool:
    if isinstance(value, int):
        return -(2**63) <= value < 2**63
    if isinstance(value, float):
        # One list with NaN makes a whole Chroma collection unreadable.
        return math.isfinite(value)
    return isinstance(value, str)


@contextmanager
def _translate_errors(where: str) -> Iterator[None]:
    """Translate Chroma's errors in a block, and count its time as waiting."""
    known = sys.exc_info()[1]
    try:
        with track_waiting():
            yield
    except CrabPathError:
        raise
    except BaseException as error:
        if found := find_interruption(error, known):
            raise found from None
        if isinstance(error, Exception) or is_panic(error):
            raise _to_own_error(where, error) from error
        raise


def _is_full(where: str, text: str) -> bool:
    """Whether a full disk caused the error ``text``; an embedded Chroma does not always say so."""
    directory = Path(where.removeprefix(_EMBEDDED))
    if not os.path.isdir(directory):  # noqa: PTH112  False also without the right to look
        return any(sign in text for sign in _DISK_FULL)
    full = not can_make_files(directory) or disk_usage(directory).free < _MIN_FREE
    return full or any(sign in text for sign in _DISK_FULL)


def _to_own_error(where: str, error: BaseException) -> CrabPathError:
    text = str(error).strip() or type(error).__name__
    if "embedding with dimension" in text:
        return EmbeddingMismatchError(
            f"{where} holds vectors of another dimension ({text}): use the same embedder"
        )
    if _is_full(where, text):
        return build_disk_full_error(where)
    if isinstance(error, PermissionError) or any(sign in text for sign in _NO_RIGHT):
        return StoreReadOnlyError(f"{where} cannot be used ({text}): change its permissions")
    # Chroma does not wrap errors of httpx.
    unreachable = isinstance(error, (ConnectionError, TimeoutError))
    if unreachable or type(error).__module__.startswith("httpx"):
        return StoreUnavailableError(
            f"{where} cannot be reached ({text}): is the Chroma server running?"
        )
    return StoreError(f"{where} failed: {text}")


_IS_GONE = re.compile(r"Collection \[[^]]*\] does not exist")
MIN_TIMEOUT = 0.001  # seconds; makes a request without time left fail at once


def _sessions(client: Any) -> Iterator[Any]:
    """Yield the HTTP sessions of a client; none for an embedded one."""
    for own in (client, getattr(client, "_admin_client", None)):
        session = getattr(getattr(own, "_server", None), "_session", None)
        if session is not None:
            yield session


def note_embedded(client: Any) -> None:
    """Note that this process uses Chroma's engine, unless a client asks a server.

    Raises:
        ForkedError: The engine was in use when this process was forked, and would wait for ever.
    """
    if next(_sessions(client), None) is None:
        use_engine("chroma")


def limit_requests(client: "ClientAPI") -> None:
    """Limit requests to the time left of the current call; shorter timeouts stay."""
    for session in _sessions(client):
        hooks = getattr(session, "event_hooks", {}).get("request")
        if hooks is not None and _shorten_timeout not in hooks:
            hooks.append(_shorten_timeout)


def _shorten_timeout(request: Any) -> None:
    """Set the timeouts of an httpx request to the time left of the current call."""
    with track_waiting() as until:
        if until is None:
            return
        left = max(MIN_TIMEOUT, until - monotonic())
    given = request.extensions.get("timeout") or {}
    request.extensions["timeout"] = {
        what: left if given.get(what) is None else min(given[what], left)
        for what in ("connect", "read", "write", "pool")
    }


def close_client(client: "ClientAPI") -> None:
    """Close a client and its connections, which ``close`` of chromadb 1.5 leaves open."""
    for session in _sessions(client):
        session.close()
    close = getattr(client, "close", None)
    if close is not None:
        close()
