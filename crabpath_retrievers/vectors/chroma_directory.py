"""The directory of an embedded Chroma: locked by one process; damaged files are moved aside.

Its files are also read directly, while another process uses them: Chroma's own client locks,
creates and writes files, loads the whole index, and crashes on damaged files. Its catalogue is an
SQLite file: writes are queued in ``embeddings_queue`` and applied to ``embeddings`` up to
``max_seq_id``, at the latest by the next search. Vectors are in HNSW files, one directory per
collection, which Chroma rewrites one by one: a process killed meanwhile leaves files of two
moments. ``header.bin`` has number and size of the elements; ``data_level0.bin`` has neighbours,
vector and label of each element, ``length.bin`` four bytes for each, ``link_lists.bin`` the
neighbours on higher levels, and ``index_metadata.pickle`` maps ids to labels.
"""

import io
import json
import logging
import pickle
import pickletools
import re
import shutil
import sqlite3
import stat
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NoReturn
from uuid import UUID

import numpy as np
from filelock import FileLock, Timeout

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, track_waiting
from crabpath_retrievers.core.processes import (
    call_in_child,
    keep_for_ever,
    raise_interruption,
    require_engine,
    use_engine,
)
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import CrabPathError, StoreError, StoreLockedError
from crabpath_retrievers.storage.database import ensure_private_directory
from crabpath_retrievers.storage.store import build_readonly_uri

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

DEFAULT_COLLECTION = "crabpath"
LOCK_FILE = "crabpath.lock"
NEXT = "reembedded"
"""Ending of the name of the collection of another embedder, while it is changed."""
_OWNED = re.compile(rf"(.+?)(-{NEXT})?(-(?:episodes|notes)-\d+)?")
_MIN_FREE = 2**20  # bytes; with less free space Chroma fails, sometimes without a reason
_PAUSE = 0.05  # seconds between looks at a directory that another process uses
_SPARSE = 2**30  # bytes; sparse files up to this size are kept
_MAX_REASON = 200  # characters of an error in messages
# Errors that damaged files do not cause: moving the files aside would not help.
_TRANSIENT = (
    " is full",
    "No space left",
    "readonly",
    "ead-only",
    "Permission denied",
    "Too many open files",
    "locked",
    "unable to open",
    "out of memory",
)
_WRITING = "apply logs"  # in errors of the writes that the first operation of a client finishes
_log = logging.getLogger(__name__)


class ChromaDirectory:
    """A directory of Chroma, shared by all memories of this process that use it.

    Chroma too keeps one system per directory. A second process would read stale segments.

    Attributes:
        generation: Number of clients that were given up since this process opened the directory.
        lock: Held by whatever may write. Chroma takes a transaction that SQLite ended by itself (a
            full disk, a fault of it) for an open one, leaves locks behind from then on, and waits
            for them for 1,000 s in its next write: so a client that failed is given up before.
        is_refilling: Whether the vectors are being indexed again: then nothing is replaced.
    """

    _known: ClassVar[dict[Path, "ChromaDirectory"]] = {}
    _guard: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, path: Path, name: str) -> None:
        """Keep the path of a directory, and the name of the collection of documents in it.

        Use :meth:`enter`, which shares a directory among memories.
        """
        self.path, self._name = path, name
        self.generation, self.is_refilling = 0, False
        self._users, self.lock = 0, threading.RLock()
        self._client: ClientAPI | None = None
        self._going, self._closed = 0, False  # operations, and whether none may begin
        self._changed = threading.Condition()
        self._lock = _acquire_lock(path)
        try:
            self._client = self._open()
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def enter(cls, path: Path, name: str) -> "ChromaDirectory":
        """Return the directory at a path, shared with one more memory.

        If another process is leaving the directory, it is waited for within the time limit.
        """
        # Chroma distinguishes systems by spelling; two of one directory would read stale segments.
        where = ensure_private_directory(path).resolve()
        use_engine("chroma")
        with track_waiting() as limit:
            deadline = limit or time.monotonic() + DEFAULT_TIME_LIMIT
            warn = _log.warning
            while True:
                try:
                    with cls._guard:  # not while it waits: other directories are left meanwhile
                        directory = cls._known.get(where) or cls(where, name)
                        directory._users += 1  # noqa: SLF001  its own class
                        return cls._known.setdefault(where, directory)
                except StoreLockedError:
                    if (left := deadline - time.monotonic()) <= 0:
                        raise
                warn("another process uses %s: waiting for it up to %.0f s", where, left)
                warn = _log.debug
                time.sleep(_PAUSE)

    @property
    def client(self) -> "ClientAPI":
        """Client of Chroma; a new one in each generation."""
        with self.lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def give_up_client(self) -> None:
        """Close the client, which frees its locks; the next operation makes a new one."""
        with self.lock:
            client, self._client = self._client, None
            if client is not None:
                _close(client)
            self.generation += 1

    def leave(self) -> None:
        """Release the directory if the caller is the last memory that uses it.

        A later open reads the files again.
        """
        with self._guard:
            self._users -= 1
            if self._users == 0:
                self._known.pop(self.path, None)
                try:
                    self.give_up_client()
                finally:
                    self._lock.release()

    def replace_damaged(self, error: StoreError, name: str) -> bool:
        """Move damaged files aside and continue with an empty directory; return whether it did.

        It does so if the collection ``name`` is damaged, as far as ``error`` and its files tell,
        and nobody is filling the directory.
        """
        with self.lock:
            if self.is_refilling or not self._is_damaged(error, name):
                return False
            self._renew(str(error))
            return True

    def inspect(self) -> None:
        """Read all files, and replace them if one is damaged.

        Chroma's engine reads past the ends of damaged files, which ends the process.
        """
        with self.lock:
            if why := find_damage(self.path, self._name, whole=True):
                self._renew(why)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Use the directory in a block; waits while its files are written anew."""
        with self._changed:
            self._changed.wait_for(lambda: not self._closed)
            self._going += 1
        try:
            yield
        finally:
            with self._changed:
                self._going -= 1
                self._changed.notify_all()

    def erase(self) -> None:
        """Erase deleted vectors from the files; operations wait meanwhile."""
        with self.lock, self._changed:
            self._closed = True
            try:
                self._changed.wait_for(lambda: not self._going)
                for name in find_unwritten(self.path, self._name):
                    records = self.client.get_collection(name, embedding_function=None)
                    # So many writes, of which none changes anything, make Chroma write its files.
                    many = (records.configuration_json.get("hnsw") or {}).get("sync_threshold")
                    records.delete(ids=[f"erased-{number}" for number in range(many or 1000)])
                self.give_up_client()
                rewrite_files(self.path, self._name)
                self._delete_set_aside()
            finally:
                self._closed = False
                self._changed.notify_all()

    def _renew(self, why: str) -> None:
        self.give_up_client()
        self._set_aside(why)

    def _open(self) -> "ClientAPI":
        why = find_damage(self.path, self._name)
        if why is None:
            try:
                return self._connect()
            except BaseException as error:
                why = str(error)
                if not _is_internal(error) or _is_transient(why):
                    raise
        self._set_aside(why)
        self.generation = 1
        return self._connect()

    def _connect(self) -> "ClientAPI":
        import chromadb
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        try:
            return chromadb.PersistentClient(path=str(self.path), settings=settings)
        except BaseException:
            _forget(str(self.path))
            raise

    def _is_damaged(self, error: StoreError, name: str) -> bool:
        if not (self.path / CATALOGUE_FILE).is_file():
            return True
        if _is_transient(str(error)) or shutil.disk_usage(self.path).free < _MIN_FREE:
            return False
        failure = self._try_search(name)
        if failure is not None and _WRITING not in failure:
            return True
        return find_damage(self.path, self._name, whole=True) is not None

    def _try_search(self, name: str) -> str | None:
        """Try a search in the collection ``name``; return its error, None if it succeeds."""
        try:
            held = {collection.name for collection in self.client.list_collections()}
            if name != self._name and name not in held:
                return None  # its namespace was just forgotten
            records = self.client.get_collection(name, embedding_function=None)
            sample = records.get(limit=1, include=["embeddings"])["embeddings"]
            if sample is not None and len(sample):
                records.query(query_embeddings=sample, n_results=1, include=[])
        except BaseException as failure:
            raise_interruption(failure)
            self.give_up_client()
            if isinstance(failure, Exception) or is_panic(failure):
                return str(failure)
            raise
        return None

    def _set_aside(self, why: str) -> None:
        reason = " ".join(why.split())[:_MAX_REASON]
        if others := self._list_others(self.path):
            msg = (
                f"the vectors in {self.path} cannot be read ({reason}), and others keep "
                f"collections there ({', '.join(others)}): leave them, and index the memory "
                "elsewhere with `crabpath reindex PATH --vectors DIRECTORY`"
            )
            raise StoreError(msg)
        ensure_private_directory(self.path)
        if not (self.path / LOCK_FILE).exists():  # the directory was deleted while it was open
            self._lock.release(force=True)
            self._lock = _acquire_lock(self.path)
        aside = self._move_files()
        _log.warning(
            "the vectors in %s cannot be read (%s)%s: they are indexed again from the graph store",
            self.path,
            reason,
            f", what is there is set aside in {aside}" if aside else "",
        )

    def _move_files(self) -> Path | None:
        """Move the files of Chroma into a new directory beside them; None without files."""
        own = [entry for entry in self.path.iterdir() if _is_of_chroma(entry)]
        if not own:
            return None
        self._delete_set_aside()
        aside = self.path / f"{QUARANTINE_PREFIX}{time.strftime('%Y%m%dT%H%M%S')}"
        aside.mkdir(mode=0o700, exist_ok=True)
        # The catalogue first: without it Chroma does not read the other files.
        for entry in sorted(own, key=lambda entry: entry.name != CATALOGUE_FILE):
            entry.rename(aside / entry.name)
        _delete_sparse(aside)
        return aside

    def _delete_set_aside(self) -> None:
        for former in self.path.glob(f"{QUARANTINE_PREFIX}*"):
            if not self._list_others(former):
                shutil.rmtree(former, ignore_errors=True)

    def _list_others(self, path: Path) -> list[str]:
        """List the collections that do not belong to the memory."""
        known = read_collection_names(path)
        return [one for one in known if one != self._name and find_owner(one) != self._name]


def _leave_to_parent() -> None:
    """Forget all directories in a forked process; another thread may have held the locks."""
    known = ChromaDirectory._known  # noqa: SLF001
    keep_for_ever(known)
    ChromaDirectory._known, ChromaDirectory._guard = {}, threading.RLock()  # noqa: SLF001
    if (chroma := sys.modules.get("chromadb.api.shared_system_client")) is not None:
        chroma.SharedSystemClient._refcount_lock = threading.Lock()  # noqa: SLF001


call_in_child(_leave_to_parent)


def find_owner(name: str) -> str | None:
    """Find the collection of documents to which a further collection belongs; None for others."""
    found = _OWNED.fullmatch(name)
    return found[1] if found and (found[2] or found[3]) else None


def is_next(name: str) -> bool:
    """Whether a collection is one of another embedder."""
    found = _OWNED.fullmatch(name)
    return bool(found and found[2])


def is_panic(error: BaseException) -> bool:
    """Whether an error is a panic of Chroma's engine, which is not an ``Exception``."""
    return type(error).__name__ == "PanicException"


def _is_internal(error: BaseException) -> bool:
    return type(error).__name__ == "InternalError" or is_panic(error)


def _is_transient(text: str) -> bool:
    return any(sign in text for sign in _TRANSIENT)


def _delete_sparse(directory: Path) -> None:
    """Delete large sparse files.

    A killed process can leave an index file with a length of terabytes, and copying it fills a
    disk.
    """
    for file in directory.rglob("*"):
        status = file.lstat()
        allocated = 512 * getattr(status, "st_blocks", status.st_size)  # missing on Windows
        if stat.S_ISREG(status.st_mode) and status.st_size > max(_SPARSE, 100 * allocated):
            file.unlink()


def _is_of_chroma(entry: Path) -> bool:
    """Whether a file or directory belongs to Chroma."""
    if entry.name.startswith(CATALOGUE_FILE):
        return True
    try:
        UUID(entry.name)
    except ValueError:
        return False
    return entry.is_dir()


def _acquire_lock(path: Path) -> FileLock:
    lock = FileLock(path / LOCK_FILE, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        msg = (
            f"{path} is in use by another process{_describe_lock_holder(path / LOCK_FILE)}: "
            "close it there, or share the data through a Chroma server "
            "(vectors=chromadb.HttpClient(...), or its URL as --vectors in the shell)"
        )
        raise StoreLockedError(msg) from error
    return lock


def _describe_lock_holder(lock: Path) -> str:
    """Return the number of the process that holds a lock, where Linux tells it."""
    with suppress(OSError, ValueError):
        end = f":{lock.stat().st_ino}"
        for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
            _, kind, _, _, process, place, *_ = line.split()
            if kind == "FLOCK" and place.endswith(end) and process != "0":
                return f" ({process})"
    return ""


def _close(client: "ClientAPI") -> None:
    close = getattr(client, "close", None)
    try:
        if close is not None:
            close()
    except (AttributeError, CrabPathError):  # stopped already
        pass
    _forget(client._identifier)  # type: ignore[attr-defined]  # noqa: SLF001


def _forget(identifier: str) -> None:
    """Remove the system with this identifier from Chroma's cache.

    The system never started, or is no longer used. Chroma never removes systems that did not start,
    and older releases remove none at all.
    """
    from chromadb.api.shared_system_client import SharedSystemClient

    if not getattr(SharedSystemClient, "_identifier_to_refcount", {}).get(identifier):
        SharedSystemClient._identifier_to_system.pop(identifier, None)  # noqa: SLF001


CATALOGUE_FILE = "chroma.sqlite3"
QUARANTINE_PREFIX = "broken-"
"""Prefix of the directories into which unreadable files are moved."""

_FILES = (
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
)
_HEADER = np.dtype(
    [
        ("version", "<i4"),
        *((name, "<i8") for name in ("level0", "most", "count", "size", "label", "vector")),
        *(("levels", "<i4"), ("entry", "<u4")),
        *((name, "<u8") for name in ("links", "links0", "own_links")),
    ]
)
_FORMAT = 1  # the only one so far
_SAMPLE = 64  # elements read if not all are
_CHUNK = 4096  # elements read at a time if all are
_MAX_LEVELS = 64
_TOLERANCE = 0.05  # deviation of the length of a vector from 1
_MAX_OPERATIONS = 64  # operations of the pickle within which the number of labels occurs

# What a collection holds, with the writes that wait in the queue; operation 3 deletes.
_HELD = """
WITH queued AS (
    SELECT id, operation, max(seq_id) FROM embeddings_queue
    WHERE topic LIKE '%/' || :key AND seq_id > COALESCE(
        (SELECT m.seq_id FROM max_seq_id m JOIN segments s ON s.id = m.segment_id
         WHERE s.collection = :key AND s.scope = 'METADATA'), -1)
    GROUP BY id
), held(id) AS (
    SELECT embedding_id FROM embeddings
    WHERE segment_id = (SELECT id FROM segments WHERE collection = :key AND scope = 'METADATA')
    AND embedding_id NOT IN (SELECT id FROM queued)
    UNION ALL SELECT id FROM queued WHERE operation <> 3
)
"""
# Vectors that Chroma has yet to add to the HNSW files, which it does in batches, are left out.
_INDEXED = """
SELECT embedding_id FROM embeddings
WHERE segment_id = (SELECT id FROM segments WHERE collection = :key AND scope = 'METADATA')
AND embedding_id NOT IN (
    SELECT id FROM embeddings_queue WHERE topic LIKE '%/' || :key AND seq_id > :last)
"""
_SEGMENT = """
SELECT s.id, s.collection, COALESCE(m.seq_id, -1) FROM segments s
JOIN collections c ON c.id = s.collection LEFT JOIN max_seq_id m ON m.segment_id = s.id
WHERE s.scope = 'VECTOR' AND c.name = ?
"""
_QUEUED_VECTORS = """
SELECT id, vector FROM embeddings_queue
WHERE topic LIKE '%/' || :key AND seq_id > :last ORDER BY seq_id
"""
# Collections with a queue in which something was replaced or deleted, or after which HNSW files are
# older than the queue.
_UNWRITTEN = """
SELECT c.name FROM embeddings_queue q JOIN collections c ON c.id = substr(q.topic, -36)
JOIN segments s ON s.collection = c.id AND s.scope = 'VECTOR'
LEFT JOIN max_seq_id m ON m.segment_id = s.id
WHERE q.seq_id > COALESCE(m.seq_id, -1) AND (c.name = :name OR c.name LIKE :name || '-%')
GROUP BY c.name
HAVING max(q.operation) = 3 OR count(*) > count(DISTINCT q.id) OR max(m.seq_id) IS NOT NULL
"""
_SEARCHED = """
SELECT s.id, s.collection, m.seq_id FROM segments s JOIN max_seq_id m ON m.segment_id = s.id
JOIN collections c ON c.id = s.collection
WHERE s.scope = 'VECTOR' AND (c.name = ? OR c.name LIKE ? || '-%')
"""


def read_collections(path: Path) -> dict[str, set[str]]:
    """Read the ids of the vectors in a directory of Chroma, by collection."""
    if not (path / CATALOGUE_FILE).is_file():
        msg = f"there are no vectors at {path}"
        raise StoreError(msg)
    with _read_catalogue(path) as connection:
        known = connection.execute("SELECT name, id FROM collections").fetchall()
        return {
            name: _read_column(connection, f"{_HELD} SELECT id FROM held", key=key)
            for name, key in known
        }


def read_collection_names(path: Path) -> list[str]:
    """Read the names of the collections in a directory of Chroma; none if unreadable."""
    try:
        with _read_catalogue(path) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM collections")]
    except StoreError:
        return []


def peek_collection(path: Path, name: str, ids: Sequence[str]) -> tuple[int, set[str]]:
    """Count the vectors in the collection ``name``, and select the ids that exist.

    The files are read: Chroma itself would load the whole index first.
    """
    with _read_catalogue(path) as connection:
        row = connection.execute("SELECT id FROM collections WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0, set()
        (count,) = _read_column(connection, f"{_HELD} SELECT count(*) FROM held", key=row[0])
        some = f"{_HELD} SELECT id FROM held WHERE id IN (SELECT value FROM json_each(:ids))"
        return count, _read_column(connection, some, key=row[0], ids=json.dumps(list(ids)))


def open_vectors(path: Path, name: str) -> "Callable[[Sequence[str]], dict[str, Vector]]":
    """Return a function that reads vectors of a collection by id, from the files."""
    queued, labels, rows = dict[str, Vector](), dict[str, int](), dict[int, int]()
    elements: Any = ()
    with _read_catalogue(path) as connection:
        found = connection.execute(_SEGMENT, (name,)).fetchone()
        segment, key, last = found or ("", "", -1)
        for one, vector in connection.execute(_QUEUED_VECTORS, {"key": key, "last": last}):
            if vector is not None:
                queued[one] = np.frombuffer(vector, dtype="<f4")
    directory = path / segment
    if found and (directory / "index_metadata.pickle").is_file():  # else all of them are queued
        header = _read_header(directory)
        elements = _open_elements(directory, header, "r")[: header["count"]]
        labels = _read_labels(directory)
        rows = {label: row for row, label in enumerate(elements["label"].tolist())}

    def read_some(ids: Sequence[str]) -> dict[str, Vector]:
        known = {one: rows.get(labels[one]) for one in ids if one in labels}
        stored = {one: elements["vector"][row] for one, row in known.items() if row is not None}
        return {**stored, **{one: queued[one] for one in ids if one in queued}}

    return read_some


def find_unwritten(path: Path, name: str) -> set[str]:
    """Find the collections with deletions that wait in the queue: ``name`` and its siblings."""
    with _read_catalogue(path) as connection:
        return _read_column(connection, _UNWRITTEN, name=name)


def rewrite_files(path: Path, name: str) -> None:
    """Erase deleted vectors from the files of the collection ``name`` and of its siblings.

    Deleted data stay in free pages of SQLite, and in HNSW, whose searches lead through deleted
    elements: each gets the vector of its nearest neighbour that is left. Nobody may use the
    directory meanwhile, and no deletion may wait in the queue.
    """
    try:
        with _open_writable(path / CATALOGUE_FILE) as connection:
            connection.execute("VACUUM")
            segments = connection.execute(_SEARCHED, (name, name)).fetchall()
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be written anew ({error}): try again"
        raise StoreError(msg) from error
    for segment, *_ in segments:
        _overwrite_deleted(path / segment)


def _overwrite_deleted(directory: Path) -> None:
    header = _read_header(directory)
    if header.get("version") != _FORMAT:
        msg = (
            f"vectors of deleted documents stay in {directory}, whose format is not known: index "
            "the memory in an empty directory with `crabpath reindex PATH --vectors DIRECTORY`, "
            "and delete this one"
        )
        raise StoreError(msg)
    if not (directory / "data_level0.bin").stat().st_size:
        return
    every = _open_elements(directory, header, "r+")
    every[header["count"] :] = 0  # whatever was in the memory of which it is a copy
    elements = every[: header["count"]]
    gone = (elements["flags"] & 1).astype(bool)
    left = np.flatnonzero(~gone)
    anything = np.eye(1, elements["vector"].shape[1], dtype=np.float32)[0]
    if len(left):
        anything = elements["vector"][left[0]]
    for place in np.flatnonzero(gone):
        element = elements[place]
        near = element["near"][: element["many"]]
        near = near[~gone[near]]
        elements["vector"][place] = elements["vector"][near[0]] if len(near) else anything
    every.flush()


def _read_column(connection: sqlite3.Connection, query: str, **values: object) -> set[Any]:
    return {value for (value,) in connection.execute(query, values)}


@contextmanager
def _read_catalogue(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with _open_read_only(path / CATALOGUE_FILE) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error


@contextmanager
def _open_read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that writes nothing, and does not see interrupted writes."""
    journal = file.with_name(f"{file.name}-journal")
    if not journal.exists() or not journal.stat().st_size:
        with _connect(build_readonly_uri(file)) as connection:
            yield connection
        return
    with _connect(f"{file.resolve().as_uri()}?mode=ro") as connection:
        try:
            connection.execute("SELECT 1 FROM collections").close()
        except sqlite3.OperationalError:  # an interrupted write, which only a writer may roll back
            pass
        else:
            yield connection
            return
    with tempfile.TemporaryDirectory() as copies:
        for source in (file, journal):
            shutil.copy(source, copies)
        with _open_writable(Path(copies) / file.name) as connection:
            yield connection


def _open_writable(file: Path) -> closing[sqlite3.Connection]:
    return _connect(f"{file.resolve().as_uri()}?mode=rw")


def _connect(uri: str) -> closing[sqlite3.Connection]:
    require_engine("sqlite")
    return closing(sqlite3.connect(uri, uri=True, timeout=1.0))


def find_damage(path: Path, name: str, *, whole: bool = False) -> str | None:
    """Find damage in the files of a collection and of its siblings; None without damage.

    Args:
        name: Name of the collection; names that begin with it and a dash belong to it.
        whole: Read everything and write nothing. Otherwise only samples are read, and SQLite may
            roll back an interrupted write, so no other process may use the directory.
    """
    file = path / CATALOGUE_FILE
    if not file.is_file() or not file.stat().st_size:
        # Without HNSW files no vectors can be lost.
        lost = any(path.glob("*/header.bin"))
        return f"{CATALOGUE_FILE} is {'empty' if file.is_file() else 'missing'}" if lost else None
    try:
        with _open_read_only(file) if whole else _open_writable(file) as connection:
            return next(_find_damages(connection, path, name, whole=whole), None)
    except sqlite3.OperationalError:  # locked, or without tables: Chroma reports it itself
        return None
    except sqlite3.DatabaseError as error:
        return f"{CATALOGUE_FILE} is damaged ({error})"


def _find_damages(
    connection: sqlite3.Connection, path: Path, name: str, *, whole: bool
) -> Iterator[str]:
    if whole:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            yield f"{CATALOGUE_FILE} is damaged ({' '.join(str(result).split())})"
    for segment, key, last in connection.execute(_SEARCHED, (name, name)).fetchall():
        ids, query = None, _INDEXED if whole else f"SELECT count(*) FROM ({_INDEXED})"
        found = _read_column(connection, query, key=key, last=last)
        if whole:
            ids, count = found, len(found)
        else:
            (count,) = found
        for problem in _find_hnsw_damages(path / segment, count, ids):
            yield f"{segment}/{problem}"


def _find_hnsw_damages(directory: Path, applied: int, ids: set[str] | None) -> Iterator[str]:
    """Yield damage in the HNSW files of a collection, and contradictions between them.

    The files must hold at least ``applied`` vectors. ``ids`` are those of all vectors, so that
    everything is read; None reads a sample.
    """
    yield from (f"{name} is missing" for name in _FILES if not (directory / name).is_file())
    if not (header := _read_header(directory)):
        yield "header.bin is cut off"
        return
    if header["version"] != _FORMAT:
        if not 0 <= header["version"] < 100:  # noqa: PLR2004  a later format cannot be checked
            yield "header.bin is damaged"
        return
    yield from _find_contradictions(directory, header, applied)
    if count := header["count"]:
        if not _are_elements_valid(directory, header, whole=ids is not None):
            yield "data_level0.bin is damaged"
        if not _are_links_valid(directory, count, header["links"], whole=ids is not None):
            yield "link_lists.bin is damaged"
    if ids is not None and (problem := _check_labels(directory, count, ids)):
        yield f"index_metadata.pickle {problem}"


def _read_header(directory: Path) -> dict[str, int]:
    """Read the fields of ``header.bin``; none if the file is cut off."""
    raw = (directory / "header.bin").read_bytes()
    if len(raw) < _HEADER.itemsize:
        return {}
    fields = np.frombuffer(raw, _HEADER, 1)[0].tolist()
    return dict(zip(_HEADER.names or (), fields, strict=True))


def _open_elements(directory: Path, header: dict[str, int], mode: Literal["r", "r+"]) -> Any:
    """Open the elements of ``data_level0.bin``, laid out as ``header`` says, as a file map."""
    dimension = (header["label"] - header["vector"]) // 4
    layout = [("many", "<u2"), ("flags", "<u2"), ("near", "<u4", header["links0"])]
    element = np.dtype([*layout, ("vector", "<f4", dimension), ("label", "<u8")])
    return np.memmap(directory / "data_level0.bin", dtype=element, mode=mode)


def _find_contradictions(directory: Path, header: dict[str, int], applied: int) -> Iterator[str]:
    count, rest = header["count"], header["label"] - header["vector"]
    offsets = (header["vector"], header["label"])
    if (
        count < 0
        or rest <= 0
        or rest % 4
        or offsets != (4 + 4 * header["links0"], header["size"] - 8)
    ):
        yield "header.bin is damaged"
    sizes = {name: (directory / name).stat().st_size for name in _FILES}
    higher = sizes["link_lists.bin"] - 4 * count
    places = (count, header["most"])  # Chroma also writes places that are not taken yet
    agreements = {
        "data_level0.bin": sizes["data_level0.bin"] in {header["size"] * n for n in places},
        "length.bin": sizes["length.bin"] in {4 * n for n in places},
        "link_lists.bin": higher >= 0 and higher % (4 * header["links"] + 4) == 0,
        "index_metadata.pickle": _count_labels(directory) in {None, count},
    }
    for name, agrees in agreements.items():
        if not agrees:
            yield f"{name} is not of the same moment as header.bin"
    if count < applied:
        yield f"data_level0.bin holds {count} of {applied} vectors"


def _are_elements_valid(directory: Path, header: dict[str, int], *, whole: bool) -> bool:
    """Whether vectors have length 1, and their labels and neighbours exist.

    ``header`` has the layout. All elements are read if ``whole``, else a sample.
    """
    count, links = header["count"], header["links0"]
    elements = _open_elements(directory, header, "r")[:count]
    parts: Iterator[Any] = (elements[at : at + _CHUNK] for at in range(0, count, _CHUNK))
    if not whole:
        sample = np.random.default_rng().integers(0, count, _SAMPLE)
        parts = iter([elements[np.sort(sample)]])
    return all(_are_rows_valid(rows, count, links) for rows in parts)


def _are_rows_valid(rows: Any, count: int, links: int) -> bool:
    with np.errstate(all="ignore"):  # damaged bytes may decode to any number
        lengths = np.linalg.norm(rows["vector"].astype(np.float64), axis=1)
    used = np.arange(links) < rows["many"][:, None]
    return bool(
        np.all(np.abs(lengths - 1.0) < _TOLERANCE)
        and np.all(rows["label"] <= count)
        and np.all(rows["many"] <= links)
        and np.all(rows["near"][used] < count)
    )


def _are_links_valid(directory: Path, count: int, links: int, *, whole: bool) -> bool:
    """Whether neighbours on higher levels exist: of all elements if ``whole``, else of a few."""
    words = np.memmap(directory / "link_lists.bin", dtype="<u4", mode="r")
    at, step = 0, links + 1
    for _ in range(count if whole else min(count, _SAMPLE)):
        levels, rest = divmod(int(words[at]), 4 * step) if at < len(words) else (0, 1)
        end = at + 1 + levels * step
        if rest or levels > _MAX_LEVELS or end > len(words):
            return False
        rows = words[at + 1 : end].reshape(-1, step)
        many = rows[:, :1] & 0xFFFF
        if np.any(many > links) or np.any(rows[:, 1:][np.arange(links) < many] >= count):
            return False
        at = end
    return not whole or at == len(words)


def _count_labels(directory: Path) -> int | None:
    """Count the labels at the beginning of the pickle; None if missing, -1 if unreadable."""
    with (directory / "index_metadata.pickle").open("rb") as file:
        found = False
        try:
            for operation, argument, _ in islice(pickletools.genops(file), _MAX_OPERATIONS):
                if found and isinstance(argument, int) and "INT" in operation.name:
                    return argument
                found = found or argument == "total_elements_added"
        except Exception as error:  # truncated, or not a pickle
            raise_interruption(error)
            return -1
    return None


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings and containers; refuses all classes, so no code can run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse any class."""
        msg = f"{module}.{name}"
        raise pickle.UnpicklingError(msg)


def _read_labels(directory: Path) -> dict[str, int]:
    """Read the labels by id from the pickle; raises any error if it is damaged."""
    raw = (directory / "index_metadata.pickle").read_bytes()
    labels: dict[str, int] = _PlainUnpickler(io.BytesIO(raw)).load()["id_to_label"]
    return labels


def _check_labels(directory: Path, count: int, ids: set[str]) -> str | None:
    """Check the map from ids to labels; return its problem, None without one.

    There must be ``count`` labels, and one for each of ``ids``.
    """
    try:
        labels = _read_labels(directory)
        known = all(0 < label <= count for label in labels.values())
    except Exception as error:  # a damaged pickle may raise anything
        raise_interruption(error)
        return "is damaged"
    if not known or len(set(labels.values())) != len(labels):
        return "is damaged"
    lost = len(ids - labels.keys())
    return f"lacks {lost} vectors" if lost else None
