"""Servers that are slow, drop connections, or say nothing, while four threads ask and record."""

import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import Hashed, Proxy, chroma, schema, status_of
from crabpath_retrievers import CrabPath, CrabPathError, Feedback, Settings, StoreUnavailableError

_SLACK = 3.0  # seconds above the limit: the machine may be busy
_PAGES = 80


class Stream:
    """Threads that ask and record until they are told to stop."""

    def __init__(self, memory: CrabPath, row: Row, number: int = 4) -> None:
        """Start them."""
        self._memory, self._row, self._stop = memory, row, threading.Event()
        self.acknowledged: list[str] = []
        self.slowest = 0.0
        self._threads = [
            threading.Thread(target=self._run, args=(one,), daemon=True) for one in range(number)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self, seconds: float) -> int:
        """How many of them still wait for an answer so much later."""
        self._stop.set()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return sum(thread.is_alive() for thread in self._threads)

    def _run(self, which: int) -> None:
        step = 0
        while not self._stop.is_set():
            step += 1
            started = time.monotonic()
            try:
                answer = self._memory.retrieve(f"word{step % 20}", k=4)
                self.slowest = max(self.slowest, time.monotonic() - started)
                started, name = time.monotonic(), f"{id(self)}-{which}-{step}"
                used = [answer.documents[0].node.id]
                self._memory.record(Feedback(answer.turn.id, 1.0, used=used, feedback_id=name))
                self.acknowledged.append(name)
            except CrabPathError:
                time.sleep(0.05)
            except Exception as error:
                self._row.blame("foreign", f"asking and recording: {error!r}")
                time.sleep(0.05)
            self.slowest = max(self.slowest, time.monotonic() - started)


def check_servers(budget: Budget, seed: int, limit: float = 10.0) -> Row:
    """Slow, dropping and silent servers; how long calls take then, against the time limit."""
    row = Row("server faults: slow, dropped, silent")
    waits: list[tuple[float, str]] = []
    with TemporaryDirectory(prefix="soak-") as base, schema() as url:
        parts = sa.make_url(url)
        database = Proxy(parts.host or "127.0.0.1", parts.port or 5432)
        with chroma(Path(base)) as server:
            vectors = Proxy("127.0.0.1", server.port)
            far = parts.set(host="127.0.0.1", port=database.port)
            at = f"http://127.0.0.1:{vectors.port}"
            try:
                address = far.render_as_string(hide_password=False)
                _play(row, budget, _Far(address, at, limit), (database, vectors), waits)
            finally:
                for proxy in (database, vectors):
                    proxy.close()
    longest, what = max(waits, default=(0.0, "none"))
    row.remark = f"time limit {limit:g} s; longest wait {longest:.1f} s ({what})"
    return row


class _Far:
    """A memory on servers behind proxies."""

    def __init__(self, url: str, vectors: str, limit: float) -> None:
        self.url, self.vectors, self.limit = url, vectors, limit

    def open(self) -> CrabPath:
        settings = limited(self.limit)
        return CrabPath.open(self.url, embeddings=Hashed(), vectors=self.vectors, settings=settings)

    def try_to_open(self) -> None:
        self.open().close()


def limited(seconds: float) -> Settings:
    """Settings with this time limit towards servers."""
    return Settings(time_limit=seconds)


def _play(
    row: Row,
    budget: Budget,
    far: _Far,
    proxies: tuple[Proxy, Proxy],
    waits: list[tuple[float, str]],
) -> None:
    memory = far.open()
    pages = [
        Document(f"Passage {n} mentions Title {n // 3} and word{n % 20}", id=f"d{n}")
        for n in range(_PAGES)
    ]
    memory.add_documents(pages, progress=None)
    acknowledged: list[str] = []
    for run in budget:
        proxy, name = proxies[run % 2], ("PostgreSQL", "Chroma")[run % 2]
        row.runs += 1
        stream = Stream(memory, row)
        time.sleep(1)
        proxy.delay = 0.1
        time.sleep(1.5)
        proxy.delay = 0.0
        proxy.drop()
        time.sleep(1)
        if stream.stop(far.limit + _SLACK):
            row.blame("other", f"{name} dropped its connections: calls still wait")
        acknowledged += stream.acknowledged
        given = Feedback(memory.retrieve("word3").turn.id, 1.0)
        proxy.silent = True
        waits += [
            _waited(
                row, f"{name} is silent: retrieve", partial(memory.retrieve, "word4"), far.limit
            ),
            _waited(row, f"{name} is silent: record", partial(memory.record, given), far.limit),
            _waited(row, f"{name} is silent: open", far.try_to_open, far.limit),
        ]
        proxy.silent = False
        proxy.drop()
        waits.append(_waited(row, f"{name} is back: retrieve", _until_answered(memory), far.limit))
        # A memory whose server has gone silent is closed within the limit, too.
        proxy.silent = True
        waits.append(_waited(row, f"{name} is silent: close", memory.close, far.limit))
        proxy.silent = False
        proxy.drop()
        memory = far.open()
    _compare(row, memory, acknowledged)
    memory.close()


def _until_answered(memory: CrabPath) -> Callable[[], Any]:
    def ask() -> None:
        while True:
            try:
                memory.retrieve("word5")
            except StoreUnavailableError:
                time.sleep(0.05)
            else:
                return

    return ask


def _waited(row: Row, what: str, call: Callable[[], Any], limit: float) -> tuple[float, str]:
    """How long a call takes, and which; one that exceeds its limit is left behind."""

    def made() -> None:
        try:
            call()
        except CrabPathError:
            pass
        except Exception as error:
            row.blame("foreign", f"{what}: {error!r}")

    started = time.monotonic()
    thread = threading.Thread(target=made, daemon=True)
    thread.start()
    thread.join(limit + _SLACK)
    if thread.is_alive():
        row.blame("other", f"{what} still waits after {limit + _SLACK:.0f} s")
    return time.monotonic() - started, what


def _compare(row: Row, memory: CrabPath, acknowledged: list[str]) -> None:
    row.acknowledged += len(acknowledged)
    memory.learning.learn_waiting()
    for name in acknowledged:
        status = status_of(memory, name)
        if status is None:
            row.blame("lost", f"feedback {name}")
        elif status != "applied":
            row.blame("other", f"feedback is {status} after the server is back")
