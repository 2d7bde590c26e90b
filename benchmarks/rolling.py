"""``python -m benchmarks serve --rolling``: restarts of two workers while clients ask.

The workers share PostgreSQL with pgvector. A balancer before them passes connections on to a worker
that is ready. Half of the clients are plain ones that connect once more where a connection is
refused or reset; the others are those of CrabPath.
"""

import asyncio
import http.client
import json
import multiprocessing
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx

from benchmarks.postgres import serve_postgres
from benchmarks.serve import make_documents, make_question
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import CrabPath
from crabpath_server.access import Access
from crabpath_server.app import create_app, run_app
from crabpath_server.client import CrabPathRetriever
from crabpath_server.tokens import add_token

_SPAWN = multiprocessing.get_context("spawn")
_DOCUMENTS = 200
_PROBE_SECONDS = 0.2
_PATIENCE = 60.0  # seconds for an answer, and for a worker to start or end
_TRIES = 2  # of a plain client


class Restarts(NamedTuple):
    """What the clients saw.

    Attributes:
        restarts: How often a worker was replaced.
        requests: Requests that were answered.
        failed: Those that were not, by error.
        gap: Longest time in seconds in which no client got an answer.
    """

    restarts: int
    requests: int
    failed: dict[str, int]
    gap: float


class _Slow(Hashed):
    """An embedder that takes seconds to load, as a local model does."""

    _loaded = False

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        if not self._loaded:
            time.sleep(2)
            self._loaded = True
        return super().embed_query(text)


def measure_restarts(seconds: float, clients: int = 10) -> Restarts:
    """Restart two workers in turns for so long.

    Raises:
        Skipped: There is no PostgreSQL with pgvector here.
    """
    with serve_postgres() as url, TemporaryDirectory() as folder:
        with CrabPath.open(url, vectors="pgvector", embeddings=Hashed()) as memory:
            memory.add_documents(make_documents(_DOCUMENTS), split=False, progress=None)
        file = Path(folder) / "tokens.json"
        tokens = [add_token(file, [f"client-{n}"], ["read", "feedback"]) for n in range(clients)]
        workers = [_Worker(url, str(file)) for _ in range(2)]
        try:
            for worker in workers:
                worker.start()
            with _balance(workers) as address:
                return _restart_under_load(workers, address, tokens, seconds)
        finally:
            for worker in workers:
                worker.kill()


class _Worker:
    """A server that can be replaced by another one at the same port."""

    def __init__(self, store: str, tokens: str) -> None:
        self._arguments = (store, tokens)
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port: int = free.getsockname()[1]

    def start(self) -> None:
        """Start it, and wait until it is ready."""
        arguments = (*self._arguments, self.port)
        self._process = _SPAWN.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        end = time.monotonic() + _PATIENCE
        while not self.is_ready():
            if time.monotonic() > end:
                msg = "a worker did not become ready"
                raise RuntimeError(msg)
            time.sleep(_PROBE_SECONDS)

    def replace(self) -> None:
        """End it as a deployment does, and start another one."""
        self._process.terminate()
        self._process.join(_PATIENCE)
        self.start()

    def is_ready(self) -> bool:
        """What ``/ready`` answers."""
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}/ready", timeout=1).is_success
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        """End it at once."""
        if hasattr(self, "_process"):
            self._process.kill()


def _serve(store: str, tokens: str, port: int) -> None:
    with (
        CrabPath.open(store, embeddings=_Slow()) as memory,
        socket.create_server(("127.0.0.1", port), backlog=1024) as listening,
    ):
        run_app(create_app(memory, access=Access.from_file(tokens)), listening)


@contextmanager
def _balance(workers: list[_Worker]) -> Iterator[str]:
    """Address of a balancer in a thread of its own."""
    started, end = threading.Event(), threading.Event()
    ready = {worker.port: True for worker in workers}
    ports: list[int] = []

    def probe(worker: _Worker) -> None:
        while not end.wait(_PROBE_SECONDS):
            ready[worker.port] = worker.is_ready()

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        order = sorted(ready, key=lambda port: (not ready[port], random.random()))  # noqa: S311
        for port in order:
            with suppress(OSError, asyncio.CancelledError):  # the latter at the end
                there, back = await asyncio.open_connection("127.0.0.1", port)
                await asyncio.gather(_copy(reader, back), _copy(there, writer))
                return
        writer.transport.abort()

    async def run() -> None:
        server = await asyncio.start_server(pass_on, "127.0.0.1", 0)
        ports.append(server.sockets[0].getsockname()[1])
        started.set()
        await asyncio.to_thread(end.wait)
        server.close()

    threads = [threading.Thread(target=probe, args=(worker,)) for worker in workers]
    threads.append(threading.Thread(target=lambda: asyncio.run(run())))
    for thread in threads:
        thread.start()
    started.wait()
    try:
        yield f"http://127.0.0.1:{ports[0]}"
    finally:
        end.set()
        for thread in threads:
            thread.join()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
    except OSError:
        writer.transport.abort()
    finally:
        writer.close()


class _Tally:
    """What all clients saw."""

    def __init__(self) -> None:
        self.failed = Counter[str]()
        self.answered: list[float] = []
        self.end = threading.Event()


def _restart_under_load(
    workers: list[_Worker], address: str, tokens: list[str], seconds: float
) -> Restarts:
    tally, restarts = _Tally(), 0
    kinds = (_ask_plainly, _ask_as_ours)
    threads = [
        threading.Thread(target=_ask, args=(kinds[n % 2](address, token), tally))
        for n, token in enumerate(tokens)
    ]
    begun = time.monotonic()
    for thread in threads:
        thread.start()
    try:
        while time.monotonic() < begun + seconds or restarts < len(workers):
            workers[restarts % len(workers)].replace()
            restarts += 1
    finally:
        tally.end.set()
        for thread in threads:
            thread.join()
    times = sorted(tally.answered)
    gap = max(after - before for before, after in pairwise(times))
    return Restarts(restarts, len(times), dict(tally.failed), gap)


_Client = AbstractContextManager[Callable[[str], None]]


def _ask(client: _Client, tally: _Tally) -> None:
    number = 0
    with client as send:
        while not tally.end.is_set():
            number += 1
            try:
                send(make_question(number, _DOCUMENTS))
            except Exception as error:
                tally.failed[f"{type(error).__name__}: {error}"] += 1
            else:
                tally.answered.append(time.monotonic())


@contextmanager
def _ask_as_ours(address: str, token: str) -> Iterator[Callable[[str], None]]:
    retriever = CrabPathRetriever.connect(address, token=token, timeout=_PATIENCE)

    def send(question: str) -> None:
        found = retriever.invoke(question)
        retriever.record(found, "up", used=[str(document.id) for document in found[:1]])

    with retriever.memory:
        yield send


@contextmanager
def _ask_plainly(address: str, token: str) -> Iterator[Callable[[str], None]]:
    opened = http.client.HTTPConnection(address.removeprefix("http://"), timeout=_PATIENCE)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def send(question: str) -> None:
        for attempt in range(_TRIES):
            try:
                opened.request("POST", "/v1/query", json.dumps({"text": question}), headers)
                response = opened.getresponse()
                response.read()
                break
            except (OSError, http.client.HTTPException):
                opened.close()
                if attempt + 1 == _TRIES:
                    raise
        if response.status >= HTTPStatus.BAD_REQUEST:
            msg = f"status {response.status}"
            raise RuntimeError(msg)

    with closing(opened):
        yield send
