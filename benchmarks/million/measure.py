"""``python -m benchmarks million``: queries and opening at a million nodes beside 5,000.

Of the graph side alone: the vectors are searched by a stand-in that knows the answer, since their
index is another program's, and the question is whether SQL, full text and caches grow.
"""

import multiprocessing
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from langchain_core.documents import Document

from benchmarks.million.corpus import BATCH, DEGREE, DIMENSIONS, Corpus, Question, make_id
from benchmarks.million.fill import fill
from benchmarks.postgres import serve_postgres
from benchmarks.soak.stores import Hashed
from benchmarks.speed.timing import K, bootstrap_median, time_call, time_pairs
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.vectors.base import VectorIndex

_SPAWN = multiprocessing.get_context("spawn")
_QUESTIONS = 150  # of each kind
_FEEDBACKS = 100
_MEGABYTE = 1 << 20


class KnownHits(VectorIndex):
    """Stands for a vector index: knows what is nearest to each question, and takes no time."""

    read_only = True

    def __init__(self, questions: Sequence[Question] = ()) -> None:
        """Answer these questions."""
        self._known = {
            question.vector.tobytes(): [make_id(number) for number in question.nearest]
            for question in questions
        }

    @property
    def description(self) -> str:
        """What it is, for messages."""
        return "a stand-in for a vector index"

    def search(self, vector: Any, k: int, filter: Any = None) -> list[str]:  # noqa: A002
        """What is nearest to a question that is known."""
        self.require_no_filter(filter)
        return self._known.get(np.asarray(vector, dtype=np.float32).tobytes(), [])[:k]

    def upsert(self, *_: object) -> None:
        """Keep nothing."""

    def delete(self, ids: Sequence[str]) -> None:
        """Keep nothing."""


def measure_million(
    *, nodes: int = 1_000_000, databases: Sequence[str] = ("sqlite", "postgresql")
) -> Iterator[str]:
    """The lines of the report, as they are measured.

    Args:
        nodes: Nodes of the large store, a multiple of 5,000.
        databases: Where it is.
    """
    yield (
        f"{nodes:,} nodes and {nodes * DEGREE:,} edges beside {BATCH:,} and {BATCH * DEGREE:,}; "
        "vectors given, and searched by a stand-in that takes no time: the figures are of SQL, "
        "full text and caches, not of a vector index"
    )
    yield "| database | figure | large | 5,000 | ratio |"
    yield "|---|---|---|---|---|"
    for database in databases:
        opened = open_sqlite() if database == "sqlite" else open_postgres()
        with opened as (large, small):
            seconds = [
                create_store(place, Corpus(n)) for place, n in ((large, nodes), (small, BATCH))
            ]
            yield f"| {database} | filled, s | {seconds[0]:.0f} | {seconds[1]:.1f} | |"
            for line in _measure_apart(large, small, nodes):
                yield f"| {database} | {line}"


@contextmanager
def open_sqlite() -> Iterator[tuple[str, str]]:
    """Find places for a large store and a small one, in a temporary folder."""
    with TemporaryDirectory(prefix="crabpath-million-") as folder:
        yield str(Path(folder) / "large"), str(Path(folder) / "small")


@contextmanager
def open_postgres() -> Iterator[tuple[str, str]]:
    """Find places for a large store and a small one, in schemas of a new server."""
    import psycopg

    with ExitStack() as stack:
        url = stack.enter_context(serve_postgres())
        with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
            for name in ("large", "small"):
                connection.execute(f"CREATE SCHEMA {name}")
        large, small = (f"{url}&options=-csearch_path%3D{name}" for name in ("large", "small"))
        yield large, small


def create_store(place: str, corpus: Corpus) -> float:
    """Create a store and fill it; returns the seconds that this took."""
    begun = time.perf_counter()
    index = KnownHits()
    index.read_only = False
    with CrabPath.open(place, vectors=index, embeddings=Hashed(DIMENSIONS)) as memory:
        memory.add_documents([Document("Nothing.", id="first")], progress=None)
    fill(place, corpus)
    return time.perf_counter() - begun


def _measure_apart(large: str, small: str, nodes: int) -> list[str]:
    """Measure in a process of its own, whose memory is that of a worker."""
    lines = _SPAWN.Queue()
    process = _SPAWN.Process(target=_measure, args=(large, small, nodes, lines))
    process.start()
    found: list[str] = lines.get()
    process.join()
    return found


def open_store(place: str, questions: Sequence[Question]) -> CrabPath:
    """Open a memory over a filled store, which knows the hits of the questions."""
    return CrabPath.open(
        place, vectors=KnownHits(questions), embeddings=Hashed(DIMENSIONS), create=False
    )


def _ask(memory: CrabPath, namespace: str, question: Question) -> Any:
    return memory.retrieve(question.text, k=K, vector=question.vector, namespace=namespace)


def _read_memory() -> float:
    """Megabytes that this process has had in memory at most."""
    # Not ``ru_maxrss``, which begins with that of the process that started this one.
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert found is not None  # noqa: S101
    return int(found[1]) * 1024 / _MEGABYTE


def _measure(large: str, small: str, nodes: int, lines: Any) -> None:
    try:
        lines.put(_measure_both(large, small, nodes))
    except BaseException as error:
        lines.put([f"failed: {error!r} | | | |"])
        raise


def _measure_both(large: str, small: str, nodes: int) -> list[str]:
    kinds = ("new", "forgotten", "again", "learned", "relearned", "taught")
    sizes = {"large": Corpus(nodes), "small": Corpus(BATCH)}
    asked: Mapping[str, dict[str, list[Question]]] = {
        size: {kind: corpus.questions(_QUESTIONS, seed) for seed, kind in enumerate(kinds)}
        for size, corpus in sizes.items()
    }
    all_of = {size: [q for found in given.values() for q in found] for size, given in asked.items()}
    with CrabPath.open(embeddings=Hashed(DIMENSIONS), vectors=KnownHits()) as warm:
        warm.retrieve("Nothing?", vector=Hashed(DIMENSIONS).embed_query("Nothing?"))
    before = _read_memory()
    seconds, memory = time_call(partial(open_store, large, all_of["large"]))
    for question in (*asked["large"]["again"], *asked["large"]["taught"]):
        _ask(memory, "cold", question)
    _teach(memory, asked["large"]["taught"])
    for question in asked["large"]["taught"]:
        _ask(memory, "learned", question)
    peak = _read_memory()
    with memory, open_store(small, all_of["small"]) as other:
        for question in (*asked["small"]["again"], *asked["small"]["taught"]):
            _ask(other, "cold", question)
        _teach(other, asked["small"]["taught"])
        lines = [
            f"open, s | {seconds:.2f} | | |",
            f"memory of the process, MB, after {3 * _QUESTIONS} questions | {peak:.0f} | | |",
            f"of that since before it was opened, MB | {peak - before:.0f} | | |",
        ]

        def flush() -> None:
            memory.store.flush()
            other.store.flush()

        def forget() -> None:
            flush()
            memory.store.walk.forget_corpus()
            other.store.walk.forget_corpus()

        for name, kind, namespace, rounds in (
            ("new question", "new", "cold", 1),
            ("the same, nothing remembered of the corpus", "forgotten", "cold", 1),
            ("question asked before", "again", "cold", 3),
            (f"new question after {_FEEDBACKS} feedbacks", "learned", "learned", 1),
            ("the same, nothing remembered of the corpus", "relearned", "learned", 1),
        ):
            pairs = time_pairs(
                partial(_ask_one, memory, namespace, 0),
                partial(_ask_one, other, namespace, 1),
                list(zip(asked["large"][kind], asked["small"][kind], strict=True)),
                before=forget if kind in ("forgotten", "relearned") else flush,
                rounds=rounds,
            )
            own, less = np.median(pairs, axis=0)
            ratio, low, high = bootstrap_median([a / b for a, b in pairs])
            shown = f"{ratio:.2f} ({low:.2f} to {high:.2f}); of p50 {own / less:.2f}"
            lines.append(f"{name}, p50 in ms | {own:.2f} | {less:.2f} | {shown} |")
    return lines


def _ask_one(
    memory: CrabPath, namespace: str, which: int, questions: tuple[Question, Question]
) -> Any:
    return _ask(memory, namespace, questions[which])


def _teach(memory: CrabPath, questions: Sequence[Question]) -> None:
    for question in questions[:_FEEDBACKS]:
        turn = _ask(memory, "learned", question)
        used = [turn.documents[0].node.id]
        memory.record(Feedback(turn.turn.id, 1.0, used=used, namespace="learned"))
