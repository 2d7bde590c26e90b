"""``python -m benchmarks serve-memory``: what a worker holds after long work and after a restart.

Clients ask, rate, list, search and call tools of a server of one namespace for thousands of
requests. Then the same store is opened by a new process, which answers the same questions.
"""

import multiprocessing
import random
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import httpx
import psutil

from benchmarks.serve import make_documents, make_question
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import CrabPath
from crabpath_server.app import create_app, run_app

_SPAWN = multiprocessing.get_context("spawn")
_CLIENTS = 4
_PARTS = 4  # of the requests, each with a figure
_RATED = 20  # feedbacks after the restart
_PATIENCE = 60.0  # seconds for one answer, and for a server to end
_OTHERS = (
    "/v1/turns?limit=5",
    "/v1/session",
    "/v1/documents?limit=5",
    "/v1/feedback?limit=5",
    "/v1/notes",
)


class Growth(NamedTuple):
    """Resident memory of a worker in MB: at first, after parts of the work, after a restart."""

    first: float
    parts: tuple[float, ...]
    restarted: float

    @property
    def ratio(self) -> float:
        """At the end of the work over after the restart."""
        return self.parts[-1] / self.restarted


def measure_growth(
    requests: int, feedbacks: int, *, documents: int = 500, report: Callable[[str], None] = print
) -> Growth:
    """Work on a server, start it again, and compare.

    Args:
        requests: Number of requests; half of them are questions.
        feedbacks: How many of them are feedback.
        documents: Documents of the memory.
        report: Is given lines of Markdown.
    """
    report(f"| {documents} documents, {_CLIENTS} clients | resident MB |")
    report("|---|---|")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "memory"
        with CrabPath.open(place, embeddings=Hashed()) as memory:
            memory.add_documents(make_documents(documents), split=False, progress=None)
        with _run_worker(place) as worker:
            first, parts = worker.measure(), []
            report(f"| at first | {first:.0f} |")
            for part in range(_PARTS):
                worker.work(requests // _PARTS, feedbacks // _PARTS, documents, seed=part)
                parts.append(worker.measure())
                done = requests // _PARTS * (part + 1)
                report(f"| after {done:,} requests | {parts[-1]:.0f} |")
        with _run_worker(place) as worker:
            worker.work(requests // (2 * _PARTS) + _RATED, _RATED, documents, seed=_PARTS - 1)
            restarted = worker.measure()
    growth = Growth(first, tuple(parts), restarted)
    report(f"| after a restart, with the last questions again | {restarted:.0f} |")
    report(f"| ratio | {growth.ratio:.2f} |")
    return growth


class _Worker(NamedTuple):
    """A server in a process of its own."""

    url: str
    process: psutil.Process

    def measure(self) -> float:
        """Its resident memory in MB."""
        return float(self.process.memory_info().rss) / 1e6

    def work(self, requests: int, feedbacks: int, documents: int, *, seed: int) -> None:
        """Send requests of all kinds; half of those that are no feedback are not questions."""
        with ThreadPoolExecutor(_CLIENTS) as pool:
            shares = [
                pool.submit(
                    _send, self.url, requests // _CLIENTS, feedbacks / requests, documents, name
                )
                for name in range(seed * _CLIENTS, (seed + 1) * _CLIENTS)
            ]
            for share in shares:
                share.result()


def _send(url: str, requests: int, rated: float, documents: int, seed: int) -> None:
    drawn = random.Random(seed)  # noqa: S311  a seeded run
    turns: list[tuple[str, list[str]]] = []
    with httpx.Client(base_url=url, timeout=_PATIENCE) as client:
        for number in range(requests):
            chance = drawn.random()
            if chance < rated and turns:
                turn, found = turns.pop()
                body = {"turn_id": turn, "outcome": drawn.choice((1, 1, -1)), "used": found[:1]}
                response = client.post("/v1/feedback", json=body)
            elif chance < rated + 0.5 or not turns:
                text = make_question(drawn.randrange(10**6), documents)
                response = client.post("/v1/query", json={"text": text, "k": 5})
                answer = response.raise_for_status().json()
                turns = [*turns[-9:], (answer["turn_id"], [d["id"] for d in answer["documents"]])]
            elif number % 3:
                response = client.get(drawn.choice(_OTHERS))
            else:
                response = _call_tool(client, make_question(number, documents))
            response.raise_for_status()


def _call_tool(client: httpx.Client, query: str) -> httpx.Response:
    params = {"name": "search", "arguments": {"query": query}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params}
    headers = {"Accept": "application/json, text/event-stream"}
    return client.post("/mcp", json=body, headers=headers)


@contextmanager
def _run_worker(place: Path) -> Iterator[_Worker]:
    with socket.create_server(("127.0.0.1", 0), backlog=1024) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        process = _SPAWN.Process(target=_serve, args=(str(place), listening))
        process.start()
    try:
        until = time.monotonic() + _PATIENCE
        while True:
            try:
                httpx.get(f"{url}/ready", timeout=_PATIENCE).raise_for_status()
                break
            except httpx.HTTPError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.1)
        yield _Worker(url, psutil.Process(process.pid))
    finally:
        process.terminate()
        process.join(_PATIENCE)
        process.kill()


def _serve(place: str, listening: socket.socket) -> None:
    with CrabPath.open(place, embeddings=Hashed()) as memory:
        run_app(create_app(memory), listening)
