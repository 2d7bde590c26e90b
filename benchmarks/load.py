"""``python -m benchmarks load``: many clients who ask, rate and add for minutes, on one server.

PostgreSQL with pgvector; vectors are given, so that no embedder is measured. Afterwards everything
that was acknowledged is looked for.
"""

import multiprocessing
import queue
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from langchain_core.documents import Document

from benchmarks.postgres import serve_postgres
from benchmarks.soak.stores import Hashed, status_of
from benchmarks.speed.timing import K
from crabpath_retrievers import CrabPath, Feedback

_SPAWN = multiprocessing.get_context("spawn")
_DIMENSIONS = 384
_NAMESPACES = 16
_FEEDBACK, _ADDED = 0.09, 0.01  # shares of all calls; the others are queries
_PATIENCE = 120.0  # seconds that workers may take to end
_TICK, _STOP = 0.2, 3.0  # seconds between two looks, and between two after a stop
_PARTS = 10  # of the time, each with its percentiles

QUERY, FEEDBACK, ADD = "query", "feedback", "add"


class Clock:
    """Seconds that this process has run, without those in which it was stopped from outside.

    A laptop that sleeps, or whoever measures beside, stops processes: waiting for an answer
    meanwhile is not the server's.

    Attributes:
        stops: How often it was stopped.
        stopped: For how many seconds, in all.
    """

    def __init__(self) -> None:
        """Begin to look."""
        self.stops, self.stopped = 0, 0.0
        self._begun = self._seen = time.monotonic()
        self._end, self._lock = threading.Event(), threading.Lock()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._end.wait(_TICK):
            self.look()

    def look(self) -> None:
        """Take down a stop that has just ended."""
        with self._lock:
            now = time.monotonic()
            if now - self._seen > _STOP:
                self.stops += 1
                self.stopped += now - self._seen
            self._seen = now

    def read(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._begun - self.stopped

    def close(self) -> None:
        """Look no more."""
        self._end.set()
        self._thread.join()


class Call(NamedTuple):
    """One call: when it ended after the start, and how long it took, in seconds."""

    kind: str
    at: float
    seconds: float


class Result(NamedTuple):
    """What the clients of one process did.

    Attributes:
        calls: Calls that succeeded.
        errors: How often calls failed, by message.
        feedback: Ids of acknowledged feedback.
        documents: Ids of acknowledged documents.
        stopped: Seconds in which the process was stopped from outside; calls of then do not count.
    """

    calls: list[Call]
    errors: Counter[str]
    feedback: list[str]
    documents: list[str]
    stopped: float = 0.0


class Load(NamedTuple):
    """How much is asked.

    Attributes:
        seconds: How long the clients go on.
        clients: Number of threads in all processes together.
        processes: Number of processes.
        documents: Documents before the first call.
    """

    seconds: float = 600.0
    clients: int = 64
    processes: int = 4
    documents: int = 3000


class Figures(NamedTuple):
    """What came of it.

    Attributes:
        errors: How often calls failed, by message.
        lost: Number of acknowledged feedbacks that are not applied, and of documents not found.
        rates: Calls a second, by kind.
        parts: Percentiles 50 and 95 of a query in milliseconds, by part of the time.
        overall: The same of the calls of each kind.
        growth: Of the 95th percentile: last fifth of the time over the fifth after the first tenth.
        stopped: Seconds in which a process was stopped from outside, at most.
    """

    errors: Mapping[str, int]
    lost: tuple[int, int]
    rates: Mapping[str, float]
    parts: Sequence[tuple[float, float]]
    overall: Mapping[str, tuple[float, float]]
    growth: float
    stopped: float


def measure_load(load: Load) -> Iterator[str]:
    """The lines of the report."""
    figures = run_load(load)
    minutes, count = load.seconds / 60, len(figures.parts)
    yield (
        f"{load.clients} clients in {load.processes} processes for {minutes:.1f} minutes, "
        f"PostgreSQL with pgvector, {load.documents:,} documents at first, {_NAMESPACES} namespaces"
    )
    yield "| calls | a second | p50, ms | p95, ms |"
    yield "|---|---|---|---|"
    for kind, (middle, high) in figures.overall.items():
        yield f"| {kind} | {figures.rates[kind]:.1f} | {middle:.0f} | {high:.0f} |"
    yield ""
    yield "| minutes | query p50, ms | p95, ms |"
    yield "|---|---|---|"
    for place, (middle, high) in enumerate(figures.parts):
        until = minutes * (place + 1) / count
        yield f"| to {until:.1f} | {middle:.0f} | {high:.0f} |"
    yield ""
    yield f"errors: {sum(figures.errors.values())}"
    yield from (f"  {number} × {message}" for message, number in figures.errors.items())
    yield f"lost: {figures.lost[0]} feedbacks, {figures.lost[1]} documents"
    if figures.stopped:
        yield f"stopped from outside for {figures.stopped:.0f} s; calls of then are not counted"
    yield f"p95 of the last fifth / of the fifth after the first tenth: {figures.growth:.2f}"


def run_load(load: Load) -> Figures:
    """Start a server, let the clients loose on it, and look for what they were promised.

    Raises:
        Skipped: There is no such server here.
        RuntimeError: A process failed.
    """
    with serve_postgres() as url:
        filling = _SPAWN.Process(target=_fill, args=(url, load.documents))
        filling.start()
        filling.join()
        results = _run_processes(url, load)
        calls = [call for result in results for call in result.calls]
        errors = sum((result.errors for result in results), Counter[str]())
        with _open(url) as memory:
            memory.learning.learn_waiting()
            given = [name for result in results for name in result.feedback]
            unlearned = [name for name in given if status_of(memory, name) != "applied"]
            added = [name for result in results for name in result.documents]
            missing = set(added) - {found.id for found in memory.get_by_ids(added)}
            missing |= set(added) - (memory.index.find_existing(added) or set())
    stopped = max(result.stopped for result in results)
    return _summarise(load, calls, errors, (len(unlearned), len(missing)), stopped)


def _summarise(
    load: Load,
    calls: Sequence[Call],
    errors: Mapping[str, int],
    lost: tuple[int, int],
    stopped: float,
) -> Figures:
    parts = [
        _find_percentiles(
            [c for c in calls if c.kind == QUERY and int(c.at / load.seconds * _PARTS) == part]
        )
        for part in range(_PARTS)
    ]
    kinds = {kind: [c for c in calls if c.kind == kind] for kind in (QUERY, FEEDBACK, ADD)}
    early, late = (
        np.mean([high for _, high in parts[some]]) for some in (slice(1, 3), slice(-2, None))
    )
    return Figures(
        dict(errors),
        lost,
        {kind: len(found) / load.seconds for kind, found in kinds.items()},
        parts,
        {kind: _find_percentiles(found) for kind, found in kinds.items()},
        float(late / early),
        stopped,
    )


def _find_percentiles(calls: Sequence[Call]) -> tuple[float, float]:
    if not calls:
        return float("nan"), float("nan")
    middle, high = np.percentile([call.seconds * 1000 for call in calls], (50, 95))
    return float(middle), float(high)


def _open(url: str) -> CrabPath:
    return CrabPath.open(url, vectors="pgvector", embeddings=Hashed(_DIMENSIONS))


def _make_document(name: str, number: int, count: int) -> Document:
    text = (
        f"Passage {name} explains topic{number % 97} and mentions Chapter {number * 7 % count} "
        "among other things that a reader may look up. "
    )
    return Document(text * 2, id=name, metadata={"title": f"Chapter {name.lstrip('d')}"})


def _fill(url: str, count: int) -> None:
    with _open(url) as memory:
        documents = [_make_document(f"d{number}", number, count) for number in range(count)]
        memory.add_documents(documents, split=False, progress=None)


def _run_processes(url: str, load: Load) -> list[Result]:
    start, results = _SPAWN.Barrier(load.processes), _SPAWN.Queue()
    processes = [
        _SPAWN.Process(target=_work, args=(url, load, number, start, results))
        for number in range(load.processes)
    ]
    for process in processes:
        process.start()
    try:
        # Before they are joined: a process ends when its results were taken.
        return [_take_result(results, processes) for _ in processes]
    finally:
        for process in processes:
            process.join(_PATIENCE)
            process.kill()


def _take_result(results: Any, processes: Sequence[Any]) -> Result:
    while True:
        try:
            found: Result = results.get(timeout=1)
        except queue.Empty:
            if any(process.exitcode for process in processes):
                msg = "a process with clients failed"
                raise RuntimeError(msg) from None
        else:
            return found


def _work(url: str, load: Load, number: int, start: Any, results: Any) -> None:
    """The clients of one process, each in a thread of its own."""
    own = range(number, load.clients, load.processes)
    with _open(url) as memory:
        start.wait()
        clock = Clock()
        clients = [_Client(memory, load, which, clock) for which in own]
        threads = [threading.Thread(target=client.run) for client in clients]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        clock.close()
    done = [client.result for client in clients]
    results.put(
        Result(
            [call for result in done for call in result.calls],
            sum((result.errors for result in done), Counter[str]()),
            [name for result in done for name in result.feedback],
            [name for result in done for name in result.documents],
            clock.stopped,
        )
    )


class _Client:
    """Asks again and again; rates some of the answers, and adds a document now and then."""

    def __init__(self, memory: CrabPath, load: Load, which: int, clock: Clock) -> None:
        self._memory, self._load, self._which, self._clock = memory, load, which, clock
        self._random = random.Random(which)  # noqa: S311  not for secrets
        vectors = np.random.default_rng(which).standard_normal((200, _DIMENSIONS))
        self._vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        self._namespace = f"user {which % _NAMESPACES}"
        self._step = 0
        self.result = Result([], Counter(), [], [])

    def run(self) -> None:
        """Go on until the time is over."""
        while (now := self._clock.read()) < self._load.seconds:
            stops = self._clock.stops
            drawn = self._random.random()
            kind = FEEDBACK if drawn < _FEEDBACK else ADD if drawn < _FEEDBACK + _ADDED else QUERY
            self._step += 1
            failure = ""
            try:
                seconds = getattr(self, f"_{kind}")()
            except Exception as error:
                failure = f"{kind}: {type(error).__name__}: {error}"[:200]
            self._clock.look()
            if self._clock.stops != stops:
                continue
            if failure:
                self.result.errors[failure] += 1
            else:
                self.result.calls.append(Call(kind, now, seconds))

    def _ask(self) -> Any:
        number = self._random.randrange(self._load.documents)
        text = f"Which passage on topic{number % 97} mentions Chapter {number}?"
        vector = self._vectors[number % len(self._vectors)]
        return self._memory.retrieve(text, vector=vector, k=K, namespace=self._namespace)

    def _query(self) -> float:
        begun = time.perf_counter()
        self._ask()
        return time.perf_counter() - begun

    def _feedback(self) -> float:
        """Rate an answer; only the rating is timed."""
        answer = self._ask()
        name = f"f{self._which}-{self._step}"
        used = [answer.documents[0].node.id]
        begun = time.perf_counter()
        outcome, space = self._random.choice((1.0, -1.0)), self._namespace
        given = Feedback(answer.turn.id, outcome, used=used, feedback_id=name, namespace=space)
        self._memory.record(given)
        self.result.feedback.append(name)
        return time.perf_counter() - begun

    def _add(self) -> float:
        name = f"n{self._which}-{self._step}"
        document = _make_document(name, self._step, self._load.documents)
        begun = time.perf_counter()
        self._memory.add_documents([document], split=False, progress=None)
        self.result.documents.append(name)
        return time.perf_counter() - begun
