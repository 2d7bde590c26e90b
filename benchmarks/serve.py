"""``python -m benchmarks serve``: what HTTP adds to a call, and many clients with tokens of theirs.

The server runs in a process of its own, over a copy of the memory that the library is called on.
Vectors are made up, so that no embedder is measured.
"""

import asyncio
import multiprocessing
import random
import shutil
import socket
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import httpx
import numpy as np
from langchain_core.documents import Document

from benchmarks.soak.stores import Hashed
from benchmarks.speed.timing import K, time_call
from crabpath_retrievers import CrabPath
from crabpath_server.access import Access
from crabpath_server.app import create_app, run_app
from crabpath_server.tokens import add_token

_SPAWN = multiprocessing.get_context("spawn")
_FEEDBACK, _TAUGHT = 0.09, 0.01  # shares of all requests; the others are questions
_PATIENCE = 60.0  # seconds for one answer, and for the server to end
_FIRST, _QUESTIONS = 20, 300  # questions before the timed ones, and those


class ServeLoad(NamedTuple):
    """How much is asked.

    Attributes:
        seconds: How long the clients ask.
        clients: Clients, each with a token and a namespace of its own.
        documents: Documents of the memory.
    """

    seconds: float
    clients: int
    documents: int


def measure_serving(load: ServeLoad) -> Iterator[str]:
    """Time questions by the library and over HTTP in turns, then let many clients ask.

    Yields:
        Lines of Markdown.
    """
    with TemporaryDirectory() as folder:
        place = Path(folder)
        with CrabPath.open(place / "own", embeddings=Hashed()) as memory:
            memory.add_documents(make_documents(load.documents), split=False, progress=None)
        shutil.copytree(place / "own", place / "served")
        tokens = {
            name: add_token(place / "tokens.json", [name], ["read", "feedback", "teach", "write"])
            for name in (f"client-{n}" for n in range(load.clients))
        }
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        served = (str(place / "served"), str(place / "tokens.json"), listening)
        server = _SPAWN.Process(target=_serve, args=served)
        server.start()
        try:
            with CrabPath.open(place / "own", embeddings=Hashed()) as memory:
                yield from _compare(memory, url, next(iter(tokens.values())), load.documents)
            yield from asyncio.run(_ask_together(url, tokens, load))
        finally:
            server.terminate()
            server.join(_PATIENCE)
            server.kill()
            listening.close()


def _serve(place: str, tokens: str, listening: socket.socket) -> None:
    with CrabPath.open(place, embeddings=Hashed()) as memory:
        run_app(create_app(memory, access=Access.from_file(tokens)), listening)


def make_documents(number: int) -> list[Document]:
    """Pages that name each other."""
    return [
        Document(
            f"Page {n} is about topic {n % 97} and mentions [[Page {n * 7 % number}]].",
            id=f"page-{n}",
            metadata={"title": f"Page {n}"},
        )
        for n in range(number)
    ]


def make_question(n: int, documents: int) -> str:
    """The n-th question about so many pages."""
    return f"what does page {n * 31 % documents} say about topic {n % 97}?"


def _compare(memory: CrabPath, url: str, token: str, documents: int) -> Iterator[str]:
    headers = {"Authorization": f"Bearer {token}"}
    own: list[float] = []
    over_http: list[float] = []
    with httpx.Client(base_url=url, headers=headers, timeout=_PATIENCE) as client:
        for n in range(_FIRST + _QUESTIONS):
            text = make_question(n, documents)

            def call(text: str = text) -> Any:
                return memory.retrieve(text, k=K)

            def send(text: str = text) -> Any:
                return client.post("/v1/query", json={"text": text, "k": K}).raise_for_status()

            pairs = [(own, call), (over_http, send)]
            for times, action in pairs if n % 2 else pairs[::-1]:
                seconds, _ = time_call(action)
                if n >= _FIRST:
                    times.append(seconds * 1000)
    added = np.median(over_http) - np.median(own)
    yield f"| {_QUESTIONS} questions in turns, {documents} documents | p50 ms | p95 ms |"
    yield "|---|---|---|"
    for name, found in (("the library", own), ("over HTTP", over_http)):
        middle, high = np.percentile(found, (50, 95))
        yield f"| {name} | {middle:.2f} | {high:.2f} |"
    yield f"| HTTP adds | {added:+.2f} | |"
    yield ""


class _Tally:
    """What the clients saw."""

    def __init__(self) -> None:
        self.requests, self.errors = Counter[str](), Counter[str]()
        self.wrong = 0
        self.seconds: list[float] = []


async def _ask_together(url: str, tokens: dict[str, str], load: ServeLoad) -> list[str]:
    tally, end = _Tally(), time.monotonic() + load.seconds
    asking = (_ask_alone(url, *item, load, tally, end) for item in tokens.items())
    await asyncio.gather(*asking)
    total = sum(tally.requests.values())
    middle, high = np.percentile(np.array(tally.seconds) * 1000, (50, 99))
    kinds = ", ".join(f"{number} {kind}" for kind, number in tally.requests.most_common())
    return [
        f"| {load.clients} clients for {load.seconds / 60:g} minutes | |",
        "|---|---|",
        f"| requests | {total} ({kinds}) |",
        f"| a second | {total / load.seconds:.0f} |",
        f"| p50, p99 ms of a question | {middle:.0f}, {high:.0f} |",
        f"| errors | {sum(tally.errors.values())} {dict(tally.errors) or ''} |",
        f"| answers of a wrong namespace | {tally.wrong} |",
    ]


async def _ask_alone(
    url: str, name: str, token: str, load: ServeLoad, tally: _Tally, end: float
) -> None:
    """Ask, rate and teach as one client, and look for what belongs to others in every answer."""
    drawn = random.Random(name)  # noqa: S311  a seeded run
    headers = {"Authorization": f"Bearer {token}"}
    turns: list[str] = []
    taught = 0
    async with httpx.AsyncClient(base_url=url, headers=headers, timeout=_PATIENCE) as client:
        while time.monotonic() < end:
            chance = drawn.random()
            if chance < _FEEDBACK and turns:
                kind, body = "feedback", {"turn_id": turns.pop(), "outcome": drawn.random() * 2 - 1}
            elif chance < _FEEDBACK + _TAUGHT or not taught:
                taught += 1
                text = f"A note of {name}, number {taught}, about page {taught}."
                kind, body = "teach", {"text": text, "id": f"note-{name}-{taught}"}
            else:
                kind = "query"
                text = (
                    f"{make_question(drawn.randrange(10**6), load.documents)} a note of a client?"
                )
                body = {"text": text, "k": K}
            begun = time.monotonic()
            try:
                response = await client.post(f"/{kind}", json=body)
            except httpx.HTTPError as error:
                tally.errors[type(error).__name__] += 1
                continue
            tally.requests[kind] += 1
            if response.is_error:
                tally.errors[f"{kind} {response.status_code}"] += 1
            elif kind == "query":
                tally.seconds.append(time.monotonic() - begun)
                answer = response.json()
                turns = [*turns[-9:], answer["turn_id"]]
                tally.wrong += _belongs_to_another(answer, name)


def _belongs_to_another(answer: dict[str, Any], name: str) -> bool:
    notes = [item["id"] for item in answer["documents"] if item["id"].startswith("note-")]
    return answer["namespace"] != name or any(
        not note.startswith(f"note-{name}-") for note in notes
    )
