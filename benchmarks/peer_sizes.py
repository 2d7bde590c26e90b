"""CrabPath beside what a user would pick, on 3,000 passages and on many more.

The questions of a data set, and its passages; beyond these, passages of a Markov chain of second
order over their words. The vector of such a passage is that of the passage that its words began
with, plus noise: their cosine is .75, as of two passages of one article. Vectors are given, so that
no embedder is timed. Each system runs in a process of its own.
"""

import multiprocessing
import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
import psutil
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.retrievers import BaseRetriever
from pydantic import TypeAdapter

from benchmarks.peer_packages import (
    COLD,
    Corpus,
    Package,
    Peer,
    Unteachable,
    list_ready,
    require_known,
)
from benchmarks.speed.table import index_plain_chroma
from crabpath_lab.datasets import Dataset
from crabpath_lab.scoring.measures import score_rankings
from crabpath_retrievers import Settings
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.ingest.chunking import Chunking, make_embedding_text
from crabpath_retrievers.vectors.embedder import load_default_embeddings

HEADER = (
    "| passages | system | indexed in | p50 of a question | p95 | memory | recall@5 |\n"
    "|---|---|---|---|---|---|---|"
)
_SPAWN = multiprocessing.get_context("spawn")
_K, _WARM = 5, 20
_COSINE = 0.75  # of a made passage and the one that it began with
_WORDS = 80  # of a made passage, at most


class Asked(NamedTuple):
    """What one system needed, and found."""

    indexed: float
    """Seconds."""
    milliseconds: list[float]
    mebibytes: float
    """By which its process grew."""
    found: dict[str, list[str]]


class KnownVectors(Embeddings):
    """Vectors by text; other texts are embedded."""

    def __init__(self, places: Mapping[str, int], vectors: Vector) -> None:
        """Keep vectors ``[n, d]``, and the row of each text."""
        self._places, self._vectors = places, vectors
        self._others = load_default_embeddings()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Look up the texts that are known."""
        new = [text for text in texts if text not in self._places]
        embedded = dict(zip(new, self._others.embed_documents(new), strict=True)) if new else {}
        return [
            self._vectors[self._places[text]].tolist() if text in self._places else embedded[text]
            for text in texts
        ]

    def embed_query(self, text: str) -> list[float]:
        """As documents."""
        return self.embed_documents([text])[0]


def _open_chroma(corpus: Corpus) -> Peer:
    store = index_plain_chroma(corpus.documents, corpus.embeddings, corpus.folder)
    return Unteachable(partial(_ask, store.as_retriever(search_kwargs={"k": _K})))


def _open_ensemble(corpus: Corpus) -> Peer:
    """LangChain's own, with equal votes, as its documentation builds it."""
    from langchain_classic.retrievers import EnsembleRetriever
    from langchain_community.retrievers import BM25Retriever

    words = BM25Retriever.from_documents(list(corpus.documents), k=_K)
    store = index_plain_chroma(corpus.documents, corpus.embeddings, corpus.folder)
    near = store.as_retriever(search_kwargs={"k": _K})
    both = EnsembleRetriever(retrievers=[words, near], weights=[0.5, 0.5], id_key="id")
    return Unteachable(partial(_ask, both))


def _ask(retriever: BaseRetriever, question: str) -> list[str]:
    return [str(found.metadata["id"]) for found in retriever.invoke(question)]


_BM25 = ("langchain-classic", "langchain-community", "rank-bm25")
SYSTEMS: Mapping[str, Package] = {
    "CrabPath": COLD["CrabPath"],
    "Chroma": Package(_open_chroma, ("langchain-chroma",)),
    "EnsembleRetriever": Package(_open_ensemble, _BM25),
    "hubmesh": COLD["hubmesh"],
}


def measure_sizes(
    dataset: Dataset,
    embeddings: Embeddings,
    sizes: Sequence[int],
    names: Sequence[str],
    limit: int,
) -> Iterator[str]:
    """Yield versions, what is not installed, and a row of Markdown for each size and system.

    Args:
        dataset: Its passages are the first ones, and its first questions are asked.
        embeddings: Embeds these passages and questions.
        sizes: Numbers of passages, ascending.
        names: Systems, as in ``SYSTEMS``.
        limit: Most questions.

    Raises:
        InvalidInputError: There is no such system.
    """
    require_known(names, SYSTEMS)
    ready = yield from list_ready(SYSTEMS, names)
    yield f"\n{HEADER}"
    with TemporaryDirectory(prefix="sizes-", ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        queries = dict([*dataset.queries.items()][:limit])
        grown = _grow(dataset, embeddings, queries, max(sizes))
        for size in sizes:
            _write(place, size, queries, *grown)
            for name in ready:
                with _SPAWN.Pool(1) as pool:
                    asked = pool.apply(partial(_measure, name, place))
                scores = score_rankings({q: dataset.qrels[q] for q in queries}, asked.found, [_K])
                timed = asked.milliseconds[min(_WARM, len(queries) // 2) :]
                middle, high = np.percentile(timed, (50, 95))
                yield (
                    f"| {size:,} | {name} | {asked.indexed:.0f} s | {middle:.1f} ms | {high:.1f} "
                    f"ms | {asked.mebibytes:,.0f} MiB | {np.mean(scores[f'recall@{_K}']):.3f} |"
                )


_Grown = tuple[list[Document], Vector, Vector]


def _grow(
    dataset: Dataset, embeddings: Embeddings, queries: Mapping[str, str], size: int
) -> _Grown:
    """Passages with the right ones of the questions first, their vectors, and the questions'."""
    right = {name for query in queries for name in dataset.qrels[query]}
    given = sorted(dataset.documents, key=lambda one: str(one.id) not in right)[:size]
    vectors = np.array(embeddings.embed_documents(write_texts(given)), dtype=np.float32)
    asked = np.array([embeddings.embed_query(text) for text in queries.values()], np.float32)
    chain = defaultdict[tuple[str, str], list[str]](list)
    for document in given:
        words = document.page_content.split()
        for first, second, third in zip(words, words[1:], words[2:], strict=False):
            chain[first, second].append(third)
    rng, noise = random.Random(0), np.random.default_rng(0)  # noqa: S311  reproducible data
    titles = [str(document.metadata.get("title") or "").split() for document in given]
    begun, made = list[int](), list[Document]()
    for number in range(size - len(given)):
        start = rng.randrange(len(given))
        begun.append(start)
        words = given[start].page_content.split()[:3]
        while len(words) < _WORDS and (following := chain.get((words[-2], words[-1]))):
            words.append(rng.choice(following))
        title = f"{' '.join(titles[start][:1])} {' '.join(rng.choice(titles)[-1:])} {number}"
        made.append(Document(" ".join(words), id=f"made-{number}", metadata={"title": title}))
    drawn = noise.standard_normal((len(made), vectors.shape[1])).astype(np.float32)
    drawn /= np.linalg.norm(drawn, axis=1, keepdims=True)
    apart = (1.0 / _COSINE**2 - 1.0) ** 0.5
    near = vectors[begun] + apart * drawn if made else vectors[:0]
    near /= np.linalg.norm(near, axis=1, keepdims=True)
    return [*given, *made], np.concatenate([vectors, near]), asked


def write_texts(documents: Sequence[Document]) -> list[str]:
    """The texts that are embedded: those of an ingest, with the title where the text lacks it."""
    chunks = Chunking(Settings().ingest, split=False).nodes(documents)
    return [make_embedding_text(chunk) for chunk in chunks]


_DOCUMENTS = TypeAdapter(list[tuple[str, str, str]])
_QUERIES = TypeAdapter(dict[str, str])


def _write(
    place: Path,
    size: int,
    queries: Mapping[str, str],
    documents: Sequence[Document],
    vectors: Vector,
    asked: Vector,
) -> None:
    rows = [
        (str(document.id), str(document.metadata.get("title") or ""), document.page_content)
        for document in documents[:size]
    ]
    (place / "documents.json").write_bytes(_DOCUMENTS.dump_json(rows))
    (place / "queries.json").write_bytes(_QUERIES.dump_json(dict(queries)))
    np.save(place / "vectors.npy", np.concatenate([vectors[:size], asked]))


def _measure(name: str, place: Path) -> Asked:
    """Index and ask, in a process of its own."""
    rows = _DOCUMENTS.validate_json((place / "documents.json").read_bytes())
    queries = _QUERIES.validate_json((place / "queries.json").read_bytes())
    documents = [
        Document(text, id=own, metadata={"title": title, "id": own}) for own, title, text in rows
    ]
    texts = write_texts(documents)
    if name != "CrabPath":  # others know the title as a part of the text
        for document, text in zip(documents, texts, strict=True):
            document.page_content = text
    places = {text: place for place, text in enumerate([*texts, *queries.values()])}
    known = KnownVectors(places, np.load(place / "vectors.npy", mmap_mode="r"))
    known.embed_documents(["The model is loaded."])
    own, before = psutil.Process(), psutil.Process().memory_info().rss
    found, taken = dict[str, list[str]](), list[float]()
    with ExitStack() as stack, TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        begun = time.perf_counter()
        corpus = Corpus(tuple(documents), known, Path(folder), stack)
        peer = SYSTEMS[name].open(corpus)
        indexed = time.perf_counter() - begun
        for query, text in queries.items():
            begun = time.perf_counter()
            found[query] = peer.ask(text)[:_K]
            taken.append((time.perf_counter() - begun) * 1000)
        grown = (own.memory_info().rss - before) / 2**20
    return Asked(indexed, taken, grown, found)
