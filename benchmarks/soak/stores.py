"""Memories to be broken: a fast embedder, children that may be killed, servers, a proxy."""

import logging
import multiprocessing
import os
import re
import socket
import threading
import time
import traceback
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa
from langchain_core.embeddings import Embeddings

from benchmarks.soak.chroma_process import ChromaServer
from benchmarks.soak.figures import Skipped
from crabpath_retrievers import CrabPath, NotFoundError

POSTGRES = os.environ.get("CRABPATH_TEST_POSTGRES", "postgresql+psycopg://postgres@127.0.0.1/test")

_FORK = multiprocessing.get_context("forkserver")
_FORK.set_forkserver_preload(
    [
        "chromadb",
        "psycopg",
        "crabpath_retrievers.crabpath",
        "crabpath_retrievers.parts.operation.maintenance.doctor",
        "crabpath_retrievers.vectors.chroma",
        "crabpath_retrievers.storage.fulltext",
    ]
)


class Hashed(Embeddings):
    """A random vector for each text, the same in every process."""

    def __init__(self, size: int = 32) -> None:
        """Make vectors of this many dimensions."""
        self.size = size

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        seed = zlib.crc32(text.encode("utf-8", "surrogatepass"))
        made: list[float] = np.random.default_rng(seed).standard_normal(self.size).tolist()
        return made

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        return [self.embed_query(text) for text in texts]


class Words(Embeddings):
    """Sums of one random vector per word: texts that share words are near each other."""

    def __init__(self, size: int = 32) -> None:
        """Make vectors of this many dimensions."""
        self._one, self._words = Hashed(size), dict[str, np.ndarray]()

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        total = np.full(self._one.size, 1e-3)
        for word in re.findall(r"\w+", text.lower()):
            if word not in self._words:
                self._words[word] = np.asarray(self._one.embed_query(word))
            total = total + self._words[word]
        made: list[float] = total.tolist()
        return made

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        return [self.embed_query(text) for text in texts]


class Child:
    """A process of its own that runs a function and tells what it did; it can be killed.

    It is forked from a process that has imported everything and opened nothing.
    """

    def __init__(self, function: Any, *given: Any) -> None:
        """Start ``function(say, *given)``, a function of a module."""
        self._heard, told = _FORK.Pipe(duplex=False)
        self._process = _FORK.Process(target=_tell, args=(function, told, given), daemon=True)
        self._process.start()
        told.close()

    def hear(self, seconds: float) -> list[Any]:
        """What it says in the next seconds, or until it ends."""
        said, end = [], time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and self._heard.poll(left):
            try:
                said.append(self._heard.recv())
            except (EOFError, OSError):
                break
        return said

    def kill(self) -> list[Any]:
        """SIGKILL; what it had said until then and was not heard yet."""
        self._process.kill()
        self._process.join()
        return self.rest()

    def rest(self, seconds: float = 600) -> list[Any]:
        """What it says until it ends; it is killed when it takes longer than this."""
        said = self.hear(seconds)
        self._process.join(5)
        self._process.kill()
        self._process.join()
        self._heard.close()
        return said

    @property
    def ended(self) -> str:
        """How it ended."""
        code = self._process.exitcode
        return f"the process died of signal {-code}" if code and code < 0 else "it said nothing"


class Raised(str):
    """Traceback of what a child raised."""

    __slots__ = ()


def _tell(function: Any, told: Any, given: tuple[Any, ...]) -> None:
    logging.disable(logging.ERROR)
    try:
        function(told.send, *given)
    except BaseException:
        told.send(Raised(traceback.format_exc()))


def result(function: Any, *given: Any, seconds: float = 600) -> Any:
    """What a child says last; :class:`Raised` when it fails, says nothing or hangs."""
    child = Child(function, *given)
    said = child.rest(seconds)
    return said[-1] if said else Raised(child.ended)


def status_of(memory: CrabPath, feedback_id: str) -> str | None:
    """How a feedback stands; None when it is not kept."""
    try:
        return memory.store.learned.get_feedback(feedback_id).status
    except NotFoundError:
        return None


def last_line(text: str) -> str:
    """The sentence at the end of a traceback, and where in CrabPath it arose."""
    lines = [line for line in text.strip().splitlines() if line.strip()]
    at = [line.strip() for line in lines if "crabpath_retrievers" in line and "File" in line]
    return " ".join([lines[-1] if lines else "", *at[-1:]])


@contextmanager
def schema() -> Iterator[str]:
    """URL of a PostgreSQL schema of its own.

    Raises:
        Skipped: No server answers.
    """
    name, engine = f"soak_{uuid.uuid4().hex[:12]}", sa.create_engine(POSTGRES)
    try:
        with engine.begin() as connection:
            connection.execute(sa.text(f'CREATE SCHEMA "{name}"'))
    except (sa.exc.OperationalError, ImportError) as error:
        msg = "no PostgreSQL answers at CRABPATH_TEST_POSTGRES"
        raise Skipped(msg) from error
    try:
        yield f"{POSTGRES}?options=-csearch_path%3D{name}"
    finally:
        with engine.begin() as connection:
            connection.execute(sa.text("SET lock_timeout = '20s'"))
            connection.execute(sa.text(f'DROP SCHEMA "{name}" CASCADE'))
        engine.dispose()


@contextmanager
def chroma(path: Path) -> Iterator[ChromaServer]:
    """A Chroma server on this directory."""
    server = ChromaServer(path)
    try:
        yield server
    finally:
        server.disconnect()
        server.stop()


def server_url(server: ChromaServer) -> str:
    """Where a Chroma server is."""
    return f"http://127.0.0.1:{server.port}"


class Proxy:
    """Stands before a server on this machine: it can be slow, drop connections, or say nothing.

    Attributes:
        port: Where it listens.
        delay: Seconds that each piece of data takes.
        silent: Whether it accepts connections and passes nothing on.
    """

    def __init__(self, host: str, port: int) -> None:
        """Listen on a free port."""
        self._to, self.delay, self.silent = (host, port), 0.0, False
        self._sockets: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def drop(self) -> None:
        """End all connections."""
        for one in self._sockets:
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
        self._sockets = []

    def close(self) -> None:
        """Listen no more."""
        self.silent = False
        self.drop()
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            try:
                far = socket.create_connection(self._to, 10)
                far.settimeout(None)
            except OSError:
                near.close()
                continue
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(one, other), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket) -> None:
        try:
            while data := one.recv(65536):
                time.sleep(self.delay)
                while self.silent:
                    time.sleep(0.02)
                other.sendall(data)
        except OSError:
            pass
        for end in (one, other):
            end.close()
