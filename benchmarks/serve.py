"""``python -m benchmarks serve``: what HTTP adds to a call, and many clients with tokens of theirs.

The clients ask, rate, teach and add; afterwards all that was acknowledged is looked for.

The server runs in a process of its own, over a copy of the memory that the library is called on.
Vectors are made up, so that no embedder is measured.
"""

import asyncio
import multiprocessing
import random
import shutil
import socket
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
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
_FEEDBACK, _TAUGHT, _ADDED = 0.09, 0.01, 0.01  # shares of all requests; the others are questions
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
        tokens = create_tokens(place / "tokens.json", load.clients)
        listening = socket.create_server(("127.0.0.1", 0), backlog=1024)
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        served = (str(place / "served"), str(place / "tokens.json"), listening)
        server = _SPAWN.Process(target=_serve, args=served)
        server.start()
        try:
            with CrabPath.open(place / "own", embeddings=Hashed()) as memory:
                yield from _compare(memory, url, next(iter(tokens.values())), load.documents)
            if load.seconds:
                yield from ask_together(url, tokens, load).render(load)
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


def create_tokens(file: Path, clients: int) -> dict[str, str]:
    """Tokens by the names of clients, each with a namespace of its own."""
    rights = ["read", "feedback", "teach", "write"]
    return {
        name: add_token(file, [name], rights) for name in (f"client-{n}" for n in range(clients))
    }


class Tally:
    """What the clients saw.

    Attributes:
        requests: Requests that were answered, by kind.
        errors: Those that failed, by what happened.
        wrong: Answers that belong to another namespace.
        lost: Acknowledged feedback, notes and documents that are not there at the end, by kind.
        seconds: How long each question took.
        answered: When each request was answered, by a monotonic clock.
    """

    def __init__(self) -> None:
        """Begin with nothing."""
        self.requests, self.errors, self.lost = Counter[str](), Counter[str](), Counter[str]()
        self.wrong = 0
        self.seconds: list[float] = []
        self.answered: list[float] = []

    def render(self, load: ServeLoad) -> Iterator[str]:
        """Lines of a table in Markdown."""
        total = sum(self.requests.values())
        middle, high = np.percentile(np.array(self.seconds) * 1000, (50, 99))
        kinds = ", ".join(f"{number} {kind}" for kind, number in self.requests.most_common())
        lasted = max(self.answered) - min(self.answered)
        yield f"| {load.clients} clients for {lasted / 60:.1f} minutes | |"
        yield "|---|---|"
        yield f"| requests | {total} ({kinds}) |"
        yield f"| a second | {total / lasted:.0f} |"
        yield f"| p50, p99 ms of a question | {middle:.0f}, {high:.0f} |"
        yield f"| errors | {self.errors.total()} {dict(self.errors) or ''} |"
        yield f"| answers of a wrong namespace | {self.wrong} |"
        yield f"| acknowledged and lost | {self.lost.total()} {dict(self.lost) or ''} |"


def ask_together(
    url: str, tokens: dict[str, str], load: ServeLoad, until: threading.Thread | None = None
) -> Tally:
    """Let clients ask for so long, and until a thread has ended; then look for what is lost."""
    return asyncio.run(_ask_together(url, tokens, load, until))


async def _ask_together(
    url: str, tokens: dict[str, str], load: ServeLoad, until: threading.Thread | None
) -> Tally:
    tally, end = Tally(), time.monotonic() + load.seconds
    clients = [_Client(f"{url}/v1", *item, load.documents, tally) for item in tokens.items()]

    async def run(client: _Client) -> None:
        while time.monotonic() < end or (until is not None and until.is_alive()):
            await client.step()

    await asyncio.gather(*map(run, clients))
    for client in clients:
        await client.look()
        await client.http.aclose()
    return tally


class _Client:
    """Asks, rates, teaches and adds, and looks for what belongs to others in every answer."""

    def __init__(self, url: str, name: str, token: str, documents: int, tally: Tally) -> None:
        self._name, self._documents, self._tally = name, documents, tally
        self._drawn = random.Random(name)  # noqa: S311  a seeded run
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=url, headers=headers, timeout=_PATIENCE)
        self._turns: list[str] = []
        self._kept: dict[str, list[str]] = {"feedback": [], "teach": [], "documents": []}
        self._number = 0

    def _make(self) -> tuple[str, dict[str, Any]]:
        """A request: its path and its body."""
        chance, self._number = self._drawn.random(), self._number + 1
        name = f"{self._name}-{self._number}"
        if chance < _FEEDBACK and self._turns:
            outcome = self._drawn.random() * 2 - 1
            return "feedback", {"turn_id": self._turns.pop(), "outcome": outcome}
        if chance < _FEEDBACK + _TAUGHT or not self._kept["teach"]:
            text = f"A note of {self._name}, number {self._number}, about page {self._number}."
            return "teach", {"text": text, "id": f"note-{name}"}
        if chance < _FEEDBACK + _TAUGHT + _ADDED:
            text = f"Page {name} is about topic {self._number % 97}."
            return "documents", {"documents": [{"id": f"page-{name}", "text": text}]}
        text = make_question(self._drawn.randrange(10**6), self._documents)
        return "query", {"text": f"{text} a note of a client?", "k": K}

    async def step(self) -> None:
        """One request."""
        kind, body = self._make()
        begun = time.monotonic()
        try:
            response = await self.http.post(f"/{kind}", json=body)
        except httpx.HTTPError as error:
            self._tally.errors[f"{kind} {type(error).__name__}"] += 1
            return
        self._tally.requests[kind] += 1
        if response.is_error:
            self._tally.errors[f"{kind} {response.status_code}"] += 1
            return
        self._tally.answered.append(time.monotonic())
        answer = response.json()
        if kind == "query":
            self._tally.seconds.append(time.monotonic() - begun)
            self._turns = [*self._turns[-9:], answer["turn_id"]]
            self._tally.wrong += _belongs_to_another(answer, self._name)
        else:
            name = {"feedback": "feedback_id", "teach": "id"}.get(kind)
            self._kept[kind].append(body["documents"][0]["id"] if name is None else answer[name])

    async def look(self) -> None:
        """Look for all that was acknowledged."""
        found = {
            "feedback": {one["feedback_id"] async for one in self._list("feedback")},
            "teach": {one["id"] async for one in self._list("notes")},
            "documents": {
                one
                for one in self._kept["documents"]
                if (await self.http.get(f"/documents/{one}")).is_success
            },
        }
        for kind, kept in self._kept.items():
            if missing := len(set(kept) - found[kind]):
                self._tally.lost[kind] += missing

    async def _list(self, what: str) -> AsyncIterator[dict[str, Any]]:
        after: str | None = ""
        while after is not None:
            where = {"limit": "1000", **({"after": after} if after else {})}
            page = (await self.http.get(f"/{what}", params=where)).raise_for_status().json()
            for one in page[what]:
                yield one
            after = page["next"]


def _belongs_to_another(answer: dict[str, Any], name: str) -> bool:
    notes = [item["id"] for item in answer["documents"] if item["id"].startswith("note-")]
    return answer["namespace"] != name or any(
        not note.startswith(f"note-{name}-") for note in notes
    )
