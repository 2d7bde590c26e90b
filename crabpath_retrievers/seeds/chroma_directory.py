"""An embedded Chroma in its directory: one process has it, and what is damaged is set aside."""

import logging
import os
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar
from uuid import UUID

from filelock import FileLock, Timeout

from crabpath_retrievers.errors import CrabPathError, StoreError, StoreLockedError
from crabpath_retrievers.seeds.chroma_files import ASIDE, FILE, collection_names, damage
from crabpath_retrievers.storage.engine import private_directory

if TYPE_CHECKING:
    from chromadb.api import ClientAPI

COLLECTION = "crabpath"
LOCK = "crabpath.lock"
_LITTLE = 2**20  # bytes free: with less Chroma fails, and does not always say why
_SPARSE = 2**30  # bytes: smaller files may have holes
_SHOWN = 200  # characters of an error that people are shown
# What is no fault of the files: moved away they would be lost for nothing.
_PASSING = (
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
_log = logging.getLogger(__name__)


class Directory:
    """A directory of Chroma, shared by the memories of this process that use it.

    Chroma keeps one system per directory, too. A second process would read stale segments.

    Attributes:
        path: Where it is.
        client: Of Chroma; another one whenever the generation is.
        generation: How often it was set aside since, and when, this process opened it.
        refilling: Whether it is filled after that; then it is not set aside again.
    """

    _known: ClassVar[dict[tuple[int, Path], "Directory"]] = {}
    _guard: ClassVar[threading.RLock] = threading.RLock()

    def __init__(self, path: Path, name: str) -> None:
        """Open a directory; :meth:`enter` shares it.

        Args:
            path: Where.
            name: Of the collection; those that begin with it and a dash belong to it.
        """
        self.path, self._name = path, name
        self.generation, self.refilling = 0, False
        self._users, self._mutex = 0, threading.RLock()
        self._lock = _locked(path)
        try:
            self.client = self._opened()
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def enter(cls, path: Path, name: str) -> "Directory":
        """The directory at a path, for one more memory.

        Raises:
            StoreLockedError: Another process uses it.
            StoreError: It cannot be read, and holds collections of others.
        """
        # Chroma tells systems apart by spelling; two on one directory would read stale segments.
        where = private_directory(path).resolve()
        key = (os.getpid(), where)  # a process that was forked off has opened nothing yet
        with cls._guard:
            found = cls._known.get(key) or cls._known.setdefault(key, cls(where, name))
            found._users += 1  # noqa: SLF001  its own class
            return found

    def leave(self) -> None:
        """Let another process in, once all memories have left it; a later open reads it afresh."""
        with self._guard:
            self._users -= 1
            if self._users == 0:
                self._known.pop((os.getpid(), self.path), None)
                try:
                    _close(self.client)
                finally:
                    self._lock.release()

    def begin_anew(self, before: int, error: StoreError, name: str) -> bool:
        """Set aside what is there when it is damaged, and begin with nothing.

        Args:
            before: The generation in which something failed; nothing is done in a later one.
            error: How it failed.
            name: Of the collection with which it failed.

        Returns:
            Whether this call has done so.

        Raises:
            StoreError: There are collections of others.
        """
        with self._mutex:
            if self.generation != before or self.refilling or not self._damaged(error, name):
                return False
            self._renew(str(error))
            return True

    def inspect(self) -> None:
        """Read all files, and begin with nothing where one of them is damaged.

        Chroma's engine reads past the ends of such files, and ends the process.

        Raises:
            StoreError: There are collections of others.
        """
        with self._mutex:
            if why := damage(self.path, self._name, whole=True):
                self._renew(why)

    def _renew(self, why: str) -> None:
        _close(self.client)
        self._set_aside(why)
        self.client = self._connect()
        self.generation += 1  # at last: who sees it uses the new client

    @contextmanager
    def while_refilling(self) -> Iterator[None]:
        """Have nothing be set aside for a while."""
        self.refilling = True
        try:
            yield
        finally:
            self.refilling = False

    def _opened(self) -> "ClientAPI":
        if why := damage(self.path, self._name):
            self._set_aside(why)
            self.generation = 1
        try:
            return self._connect()
        except BaseException as error:
            if not _is_internal(error) or _passes(str(error)):
                raise
            self._set_aside(str(error))
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

    def _damaged(self, error: StoreError, name: str) -> bool:
        if not (self.path / FILE).is_file():
            return True
        if _passes(str(error)) or shutil.disk_usage(self.path).free < _LITTLE:
            return False
        return not self._answers(name) or damage(self.path, self._name, whole=True) is not None

    def _answers(self, name: str) -> bool:
        try:
            records = self.client.get_collection(name, embedding_function=None)
            some = records.get(limit=1, include=["embeddings"])["embeddings"]
            if some is not None and len(some):
                records.query(query_embeddings=some, n_results=1, include=[])
        except BaseException as failure:
            if isinstance(failure, Exception) or is_panic(failure):
                return False
            raise
        return True

    def _set_aside(self, why: str) -> None:
        reason = " ".join(why.split())[:_SHOWN]
        if others := self._others(self.path):
            msg = (
                f"the vectors in {self.path} cannot be read ({reason}), and others keep "
                f"collections there ({', '.join(others)}): leave them, and index the memory "
                "elsewhere with `crabpath reindex PATH --vectors DIRECTORY`"
            )
            raise StoreError(msg)
        private_directory(self.path)
        if not (self.path / LOCK).exists():  # the directory was deleted while it was open
            self._lock.release(force=True)
            self._lock = _locked(self.path)
        own = [entry for entry in self.path.iterdir() if _is_of_chroma(entry)]
        if own:
            aside = self.path / f"{ASIDE}{time.strftime('%Y%m%dT%H%M%S')}"
            for former in self.path.glob(f"{ASIDE}*"):
                if not self._others(former):
                    shutil.rmtree(former, ignore_errors=True)
            aside.mkdir(mode=0o700, exist_ok=True)
            # The catalogue first: without it the rest is nothing that Chroma would read.
            for entry in sorted(own, key=lambda entry: entry.name != FILE):
                entry.rename(aside / entry.name)
            _delete_sparse(aside)
            kept = f", what is there is set aside in {aside}"
        else:
            kept = ""
        _log.warning(
            "the vectors in %s cannot be read (%s)%s: they are indexed again from the graph store",
            self.path,
            reason,
            kept,
        )

    def _others(self, path: Path) -> list[str]:
        """Names of collections that are not of the memory."""
        own = (self._name, f"{self._name}-")
        return [n for n in collection_names(path) or () if n != own[0] and not n.startswith(own[1])]


def is_panic(error: BaseException) -> bool:
    """Whether Chroma's engine has failed in a way that is no ``Exception``."""
    return type(error).__name__ == "PanicException"


def _is_internal(error: BaseException) -> bool:
    return type(error).__name__ == "InternalError" or is_panic(error)


def _passes(text: str) -> bool:
    return any(sign in text for sign in _PASSING)


def _delete_sparse(directory: Path) -> None:
    """Delete files that consist of holes.

    A kill can leave an index file that claims terabytes: whoever copies it fills a disk.
    """
    for file in directory.rglob("*"):
        status = file.lstat()
        allocated = 512 * getattr(status, "st_blocks", status.st_size)  # Windows does not tell
        if stat.S_ISREG(status.st_mode) and status.st_size > max(_SPARSE, 100 * allocated):
            file.unlink()


def _is_of_chroma(entry: Path) -> bool:
    """Whether a file or directory is Chroma's own."""
    if entry.name.startswith(FILE):
        return True
    try:
        UUID(entry.name)
    except ValueError:
        return False
    return entry.is_dir()


def _locked(path: Path) -> FileLock:
    lock = FileLock(path / LOCK, timeout=0, mode=0o600, thread_local=False)
    try:
        lock.acquire()
    except Timeout as error:
        msg = (
            f"{path} is in use by another process: close it there, or share the data through "
            "a Chroma server (vectors=chromadb.HttpClient(...))"
        )
        raise StoreLockedError(msg) from error
    return lock


def _close(client: "ClientAPI") -> None:
    close = getattr(client, "close", None)
    try:
        if close is not None:
            close()
    except (AttributeError, CrabPathError):  # it was stopped before
        pass
    _forget(client._identifier)  # type: ignore[attr-defined]  # noqa: SLF001


def _forget(identifier: str) -> None:
    """Have Chroma not hand out a system that never started, or that nobody uses any more.

    It keeps the former kind for ever, and older releases both.
    """
    from chromadb.api.shared_system_client import SharedSystemClient

    if not getattr(SharedSystemClient, "_identifier_to_refcount", {}).get(identifier):
        SharedSystemClient._identifier_to_system.pop(identifier, None)  # noqa: SLF001
