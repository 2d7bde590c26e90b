"""``make bench-scale``: queries and feedback a second of several workers on servers.

Beside plain LangChain stores on the same servers, in the same run: Chroma's server, and PostgreSQL
with pgvector. Vectors are given, so that no embedder is measured.
"""

import multiprocessing
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import chromadb
import numpy as np
from langchain_chroma import Chroma
from langchain_core.documents import Document

from benchmarks.postgres import index_plain_pgvector, serve_postgres
from benchmarks.soak.stores import Hashed, chroma, schema, server_url
from benchmarks.speed.timing import K
from crabpath_retrievers import CrabPath, Feedback

_DIMENSIONS = 384
_SPAWN = multiprocessing.get_context("spawn")
_PATIENCE = 300.0  # seconds that workers may take to start

Work = Callable[[int], object]
"""Answers question ``number``."""


class Place(NamedTuple):
    """A kind of retriever, and where its data are."""

    kind: str
    database: str
    vectors: str = "pgvector"


def measure_scale(
    *, documents: int = 3000, seconds: float = 8.0, workers: Sequence[int] = (1, 4)
) -> Iterator[str]:
    """The lines of the table, by servers and number of workers.

    Args:
        documents: Number of synthetic documents.
        seconds: How long each rate is measured, > 0.
        workers: Numbers of processes.
    """
    yield "| servers | workers | CrabPath, queries/s | plain, queries/s | ratio | feedback/s |"
    yield "|---|---|---|---|---|---|"
    for servers in (_open_chroma_server, open_pgvector):
        with servers() as (name, own, plain):
            for place in (own, plain):  # in processes whose end closes all connections
                _run(_SPAWN.Process(target=_fill, args=(place, documents)))
            for count in workers:
                queries, simple, feedback = (
                    measure_rate(place, count, documents, seconds)
                    for place in (own, plain, own._replace(kind="feedback"))
                )
                yield (
                    f"| {name} | {count} | {queries:.0f} | {simple:.0f} | "
                    f"{queries / simple:.2f} | {feedback:.0f} |"
                )


Servers = Iterator[tuple[str, Place, Place]]


@contextmanager
def _open_chroma_server() -> Servers:
    with ExitStack() as opened:
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        url = opened.enter_context(schema())
        vectors = server_url(opened.enter_context(chroma(Path(folder))))
        own = Place("crabpath", url, vectors)
        yield "PostgreSQL, Chroma server", own, Place("chroma", "", vectors)


@contextmanager
def open_pgvector() -> Servers:
    """Start a PostgreSQL with pgvector, and stop it at the end.

    Raises:
        Skipped: It is not installed.
    """
    with serve_postgres() as url:
        yield "PostgreSQL with pgvector", Place("crabpath", url), Place("pgvector", url)


def make_documents(count: int) -> list[Document]:
    """Documents of a paragraph, with titles; each mentions the title of another one."""
    return [
        Document(
            id=f"d{number}",
            page_content=(
                f"Passage {number} explains topic{number % 97} and mentions "
                f"Chapter {number * 7 % count} among other things that a reader may look up. "
            )
            * 2,
            metadata={"title": f"Chapter {number}"},
        )
        for number in range(count)
    ]


def _fill(place: Place, count: int) -> None:
    documents = make_documents(count)
    if place.kind == "crabpath":
        with CrabPath.open(
            place.database, vectors=place.vectors, embeddings=Hashed(_DIMENSIONS)
        ) as memory:
            memory.add_documents(documents, split=False)
        return
    if place.kind == "pgvector":
        index_plain_pgvector(documents, Hashed(_DIMENSIONS), place.database)
        return
    store = _open_plain(place)
    for start in range(0, count, 500):
        store.add_documents(documents[start : start + 500])


def _open_plain(place: Place) -> Any:
    if place.kind == "chroma":
        port = int(place.vectors.rpartition(":")[2])
        client = chromadb.HttpClient(host="127.0.0.1", port=port)
        return Chroma("plain", Hashed(_DIMENSIONS), client=client)
    from langchain_postgres import PGEngine, PGVectorStore

    engine = PGEngine.from_connection_string(place.database)
    return PGVectorStore.create_sync(engine, Hashed(_DIMENSIONS), "plain")


@contextmanager
def _open_work(place: Place, worker: int, documents: int) -> Iterator[Work]:
    """What a worker does again and again."""
    vectors = np.random.default_rng(worker).standard_normal((200, _DIMENSIONS))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    if place.kind in ("chroma", "pgvector"):
        store = _open_plain(place)
        given = vectors.tolist()
        yield lambda n: store.similarity_search_by_vector(given[n % 200], k=K)
        return
    with CrabPath.open(
        place.database, vectors=place.vectors, embeddings=Hashed(_DIMENSIONS)
    ) as memory:

        def ask(number: int) -> Any:
            text = (
                f"Which passage on topic{number % 97} mentions Chapter {number * 13 % documents}?"
            )
            return memory.retrieve(
                text, vector=vectors[number % 200], k=K, namespace=f"worker {worker}"
            )

        def ask_and_record(number: int) -> None:
            answer = ask(number)
            used = [answer.documents[0].node.id]
            memory.record(Feedback(answer.turn.id, 1.0, used=used, namespace=f"worker {worker}"))

        yield ask_and_record if place.kind == "feedback" else ask


def _work(place: Place, worker: int, documents: int, seconds: float, ends: Any) -> None:
    """Repeat the work for some seconds, once all workers are ready; say how often it was done."""
    start, rates = ends
    with _open_work(place, worker, documents) as work:
        for number in range(20):
            work(number)
        start.wait(_PATIENCE)
        begun, done = time.perf_counter(), 0
        while time.perf_counter() - begun < seconds:
            work(20 + done)
            done += 1
        rates.put(done / (time.perf_counter() - begun))


def _run(*processes: Any) -> None:
    """Start processes, and wait until all have ended.

    Raises:
        RuntimeError: One failed, or took too long.
    """
    for process in processes:
        process.start()
    for process in processes:
        process.join(_PATIENCE)
    if any(process.exitcode != 0 for process in processes):
        for process in processes:
            process.kill()
        msg = "a worker failed"
        raise RuntimeError(msg)


def measure_rate(place: Place, workers: int, documents: int, seconds: float) -> float:
    """Calls a second of some processes together.

    Raises:
        RuntimeError: A worker failed.
    """
    start, rates = _SPAWN.Barrier(workers), _SPAWN.Queue()
    processes = [
        _SPAWN.Process(target=_work, args=(place, number, documents, seconds, (start, rates)))
        for number in range(workers)
    ]
    _run(*processes)
    return float(sum(rates.get(timeout=10) for _ in processes))
