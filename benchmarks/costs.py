"""``python -m benchmarks costs``: bytes, processor time and money per passage and per query.

CrabPath beside plain Chroma and LangChain's PGVectorStore, with the same vectors, each in a process
of its own. Processor time is that of the process and of its database server. Vectors are given: the
embedder has a row of its own.
"""

import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import psutil
import psycopg
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.peer_sizes import KnownVectors, write_texts
from benchmarks.postgres import index_plain_pgvector, serve_postgres
from benchmarks.speed.table import index_plain_chroma
from crabpath_lab.datasets import Dataset
from crabpath_retrievers import CrabPath

CENTS_PER_CORE_HOUR = 5.0
"""Of a general-purpose machine with 2 cores and 8 GiB at 10 cents an hour; memory is in it."""
CENTS_PER_GIGABYTE = 8.0
"""A month on a network disk."""

HEADER = (
    "| system | disk, bytes a passage | memory, bytes a passage | indexing, ms a passage | query, "
    "ms | cents: index a million passages | keep them a month | a million queries |\n"
    "|---|---|---|---|---|---|---|---|"
)
_SPAWN = multiprocessing.get_context("spawn")
_K = 5
Ask = Callable[[str, list[float]], object]


class Cost(NamedTuple):
    """What one system takes: bytes for each passage, and seconds of processor time."""

    disk: float
    memory: float
    indexing: float
    query: float

    def render(self, name: str) -> str:
        """Write a row of Markdown."""
        hours = self.indexing / 3600, self.query / 3600
        cents = [1e6 * hours[0] * CENTS_PER_CORE_HOUR, 1e6 * self.disk / 1e9 * CENTS_PER_GIGABYTE]
        cents.append(1e6 * hours[1] * CENTS_PER_CORE_HOUR)
        return (
            f"| {name} | {self.disk:,.0f} | {self.memory:,.0f} | {self.indexing * 1e3:.2f} | "
            f"{self.query * 1e3:.2f} | {' | '.join(f'{cent:,.1f}' for cent in cents)} |"
        )


def _open_crabpath(
    place: str, documents: Sequence[Document], known: Embeddings, stack: ExitStack
) -> Ask:
    vectors = "pgvector" if "://" in place else None
    memory = stack.enter_context(CrabPath.open(place, embeddings=known, vectors=vectors))
    memory.add_documents(documents, split=False, progress=None)
    return lambda text, vector: memory.retrieve(text, vector=vector, k=_K)


def _open_chroma(place: str, documents: Sequence[Document], known: Embeddings, _: ExitStack) -> Ask:
    store = index_plain_chroma(documents, known, Path(place))
    return lambda _, vector: store.similarity_search_by_vector(vector, k=_K)


def _open_pgvector(
    place: str, documents: Sequence[Document], known: Embeddings, _: ExitStack
) -> Ask:
    store = index_plain_pgvector(documents, known, place)
    return lambda _, vector: store.similarity_search_by_vector(vector, k=_K)


Open = Callable[[str, Sequence[Document], Embeddings, ExitStack], Ask]
SYSTEMS: Mapping[str, tuple[Open, bool]] = {
    "CrabPath, SQLite and Chroma": (_open_crabpath, False),
    "Chroma": (_open_chroma, False),
    "CrabPath, PostgreSQL with pgvector": (_open_crabpath, True),
    "PGVectorStore": (_open_pgvector, True),
}
"""How each is opened and filled, and whether its data are in PostgreSQL."""


def measure_costs(dataset: Dataset, embeddings: Embeddings, limit: int) -> Iterator[str]:
    """Yield a row of Markdown for each system, and one for the embedder.

    Args:
        dataset: Its passages are indexed.
        embeddings: Embeds them and the questions.
        limit: Number of questions, the first ones; each is asked twice.
    """
    yield HEADER
    documents = [one.model_copy(update={"id": str(one.id)}) for one in dataset.documents]
    questions, texts = [*dataset.queries.values()][:limit], write_texts(documents)
    begun = time.process_time()
    vectors = embeddings.embed_documents(texts)
    indexing = (time.process_time() - begun) / len(texts)
    begun = time.process_time()
    vectors += [embeddings.embed_query(question) for question in questions]
    query = (time.process_time() - begun) / len(questions)
    known = np.array(vectors, dtype=np.float32)
    for name in SYSTEMS:
        with _SPAWN.Pool(1) as pool:
            yield pool.apply(_measure, (name, documents, texts, questions, known)).render(name)
    yield Cost(0.0, 0.0, indexing, query).render("the embedder, beside each of them")


def _measure(
    name: str,
    documents: Sequence[Document],
    texts: Sequence[str],
    questions: Sequence[str],
    vectors: np.ndarray,
) -> Cost:
    """Index and ask, in a process of its own."""
    open_store, in_postgres = SYSTEMS[name]
    if open_store is not _open_crabpath:  # others know the title as a part of the text
        for document, text in zip(documents, texts, strict=True):
            document.page_content = text
    places = {text: place for place, text in enumerate([*texts, *questions])}
    known, rows = KnownVectors(places, vectors), vectors[len(texts) :].tolist()
    known.embed_documents(["The model is loaded."])
    own = psutil.Process()
    with ExitStack() as stack:
        if in_postgres:
            place = stack.enter_context(serve_postgres())
            url = place.replace("+psycopg", "")
            connection = stack.enter_context(psycopg.connect(url, autocommit=True))
            server = psutil.Process(connection.info.backend_pid).parent()
        else:
            folder = TemporaryDirectory(ignore_cleanup_errors=True)
            place, connection, server = stack.enter_context(folder), None, None

        def read_size() -> int:
            if connection is None:
                return sum(file.stat().st_size for file in Path(place).rglob("*") if file.is_file())
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
            return int(row[0]) if row else 0

        def read_time() -> float:
            processes = [own] if server is None else [own, server, *server.children()]
            return sum(_read_seconds(process) for process in processes)

        size, memory, begun = read_size(), own.memory_info().rss, read_time()
        ask = open_store(place, documents, known, stack)
        indexed = read_time()
        for _ in range(2):
            for question, vector in zip(questions, rows, strict=True):
                ask(question, vector)
        count = len(documents)
        return Cost(
            (read_size() - size) / count,
            max(0, own.memory_info().rss - memory) / count,
            (indexed - begun) / count,
            (read_time() - indexed) / (2 * len(questions)),
        )


def _read_seconds(process: psutil.Process) -> float:
    """Processor time of a process, and of those of its children that have ended."""
    try:
        return float(sum(process.cpu_times()[:4]))
    except psutil.NoSuchProcess:
        return 0.0
