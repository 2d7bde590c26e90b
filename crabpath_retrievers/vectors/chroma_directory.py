"""The directory of an embedded Chroma: locked by one process; damaged files are moved aside.

What is in its files, :mod:`~..parts.chroma_files` reads.
"""

import logging
import re
import shutil
import stat
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from filelock import FileLock, Timeout

from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT, track_waiting
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.processes import (
    call_in_child,
    keep_for_ever,
    raise_interruption,
    use_engine,
)
from crabpath_retrievers.errors import CrabPathError, StoreError, StoreLockedError
from crabpath_retrievers.storage.database import ensure_private_directory

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

CATALOGUE_FILE = "chroma.sqlite3"
QUARANTINE_PREFIX = "broken-"
"""Prefix of the directories into which unreadable files are moved."""
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
_FILES = "crabpath_retrievers.parts.chroma_files"
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
            if why := load_part(_FILES).find_damage(self.path, self._name, whole=True):
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
                for name in load_part(_FILES).find_unwritten(self.path, self._name):
                    records = self.client.get_collection(name, embedding_function=None)
                    # So many writes, of which none changes anything, make Chroma write its files.
                    many = (records.configuration_json.get("hnsw") or {}).get("sync_threshold")
                    records.delete(ids=[f"erased-{number}" for number in range(many or 1000)])
                self.give_up_client()
                load_part(_FILES).rewrite_files(self.path, self._name)
                self._delete_set_aside()
            finally:
                self._closed = False
                self._changed.notify_all()

    def _renew(self, why: str) -> None:
        self.give_up_client()
        self._set_aside(why)

    def _open(self) -> "ClientAPI":
        why = load_part(_FILES).find_damage(self.path, self._name)
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
        return load_part(_FILES).find_damage(self.path, self._name, whole=True) is not None

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
        known = load_part(_FILES).read_collection_names(path)
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
