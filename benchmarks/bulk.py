"""``make bench-scale``, second table: documents a second of a bulk ingest, without embedding.

One process on SQLite with Chroma and on PostgreSQL with pgvector; then Ray with two workers, beside
one process on the same database. Vectors are given to all of them.
"""

import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.scale import open_pgvector
from crabpath_retrievers import CrabPath

_DIMENSIONS = 384
_SENTENCES = 4
_WORKERS = 2


class GivenVectors(Embeddings):
    """Vectors that are known already: 300 random directions, and noise around them."""

    def __init__(self, texts: Sequence[str]) -> None:
        """Make a vector for each text."""
        rng = np.random.default_rng(0)
        centres = rng.standard_normal((300, _DIMENSIONS))
        chosen = rng.integers(0, len(centres), len(texts))
        noise = rng.standard_normal((len(texts), _DIMENSIONS))
        self._vectors = (centres[chosen] + noise).astype(np.float32)
        self._rows = {text: row for row, text in enumerate(texts)}

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text; that of an unknown one is the first."""
        vector: list[float] = self._vectors[self._rows.get(text, 0)].tolist()
        return vector

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts."""
        return [self.embed_query(text) for text in texts]


def make_documents(given: Sequence[Document], count: int) -> list[Document]:
    """Documents of sentences drawn from those that are given, with a title and a number."""
    sentences = [part for page in given for part in page.page_content.split(". ") if part]
    titles = [str(page.metadata["title"]) for page in given]
    rng = np.random.default_rng(0)
    drawn = rng.integers(0, len(sentences), (count, _SENTENCES))
    return [
        Document(
            id=f"d{number}",
            page_content=". ".join(sentences[place] for place in row),
            metadata={"title": f"{titles[number % len(titles)]} {number}"},
        )
        for number, row in enumerate(drawn)
    ]


def measure_bulk(given: Sequence[Document], count: int, embedded: int) -> Iterator[str]:
    """Yield the lines of the table.

    Args:
        given: Where the texts come from.
        count: Number of documents that are made of them, with given vectors.
        embedded: Number of documents that are also added with the default embedder, which has one
            thread in each process; 0 leaves that out.
    """
    documents = make_documents(given, count)
    known = GivenVectors([f"{page.metadata['title']}\n{page.page_content}" for page in documents])
    yield f"| bulk ingest of {count:,} documents, vectors given | documents/s |"
    yield "|---|---|"
    with tempfile.TemporaryDirectory() as folder:
        rate = _measure({"path": folder}, known, _add, documents)
        yield f"| one process, SQLite and Chroma | {rate:.0f} |"
    yield from _compare(known, documents, "vectors given")
    if embedded:
        os.environ["OMP_NUM_THREADS"] = "1"
        yield from _compare(None, documents[:embedded], f"MiniLM, {embedded:,} documents")


def _compare(known: Embeddings | None, documents: Sequence[Document], what: str) -> Iterator[str]:
    """Yield rows of one process and of Ray over PostgreSQL, and of their ratio."""
    rates = list[float]()
    for name, add in ("one process", _add), (f"Ray, {_WORKERS} workers", _add_on_ray):
        with ExitStack() as opened:
            _, place, _ = opened.enter_context(open_pgvector())
            if add is _add_on_ray:
                opened.enter_context(_start_ray())
            database = {"path": place.database, "vectors": "pgvector"}
            rates.append(_measure(database, known, add, documents))
            yield f"| {name}, PostgreSQL with pgvector, {what} | {rates[-1]:.0f} |"
    yield f"| Ray / one process, {what} | {rates[1] / rates[0]:.2f} |"


def _measure(
    place: dict[str, Any],
    known: Embeddings | None,
    add: Callable[[CrabPath, Sequence[Document]], object],
    documents: Sequence[Document],
) -> float:
    """Documents a second, without opening."""
    with CrabPath.open(**place, embeddings=known) as memory:
        begun = time.perf_counter()
        add(memory, documents)
        return len(documents) / (time.perf_counter() - begun)


def _add(memory: CrabPath, documents: Sequence[Document]) -> object:
    return memory.add_documents(documents, split=False)


def _add_on_ray(memory: CrabPath, documents: Sequence[Document]) -> object:
    import ray

    rows = [
        {"text": page.page_content, "metadata": page.metadata, "id": page.id} for page in documents
    ]
    return memory.add_dataset(ray.data.from_items(rows), split=False)


def _start_ray() -> Any:
    import ray

    warnings.simplefilter("ignore")  # of Ray about itself
    path = os.pathsep.join([str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
    return ray.init(
        num_cpus=_WORKERS,
        include_dashboard=False,
        log_to_driver=False,
        logging_level=logging.ERROR,
        runtime_env={"env_vars": {"PYTHONPATH": path}},  # workers have one thread by Ray's rule
    )
