"""SIGKILL at random moments: what was acknowledged is there, once, and found.

A worker that adds documents, or asks and records feedback, is killed; the next process opens the
memory, compares it with what was acknowledged, and runs doctor. The memory is then used further.
"""

import os
import random
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import chromadb
import numpy as np
from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.stores import (
    Child,
    Hashed,
    Raised,
    chroma,
    last_line,
    result,
    schema,
    server_url,
    status_of,
)
from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.parts.operation.maintenance.doctor import examine

Say = Callable[[Any], None]
_NAMESPACES = ("ann", "bob", "eve")
_ENOUGH = 0.9  # of what was added last its own vector finds; the index is an approximate one
_ALL_EVERY = 10  # runs after which everything is compared, not only the latest
_GROWN = 2  # times the chunks at the start, then the memory is replaced by the one at the start


@dataclass(frozen=True)
class Place:
    """Where a memory is, and its size."""

    location: str
    vectors: str | None
    dimensions: int
    chunks: int
    batch: int

    def open(self) -> CrabPath:
        """Open it, or create it."""
        embeddings = Hashed(self.dimensions)
        return CrabPath.open(self.location, embeddings=embeddings, vectors=self.vectors)


@dataclass
class Expected:
    """What a memory must hold: the version of each document, or None when it must be gone.

    ``unsure`` is what was under way at the kill: it is as before, or as it was meant to become.
    """

    versions: dict[int, int | None] = field(default_factory=dict)
    unsure: set[int] = field(default_factory=set)
    latest: list[int] = field(default_factory=list)

    def learn(self, said: list[Any]) -> int:
        """Take over what a worker said; the number of documents that were acknowledged."""
        acknowledged, under_way = 0, None
        for line in said:
            if line[0] == "begin":
                under_way = line[1:]
            elif line[0] == "done" and under_way is not None:
                numbers, version = under_way
                self.versions.update(dict.fromkeys(numbers, version))
                acknowledged += len(numbers)
                self.latest = [*self.latest, *numbers][-3000:]
                under_way = None
        self.unsure = set(under_way[0]) if under_way is not None else set()
        return acknowledged

    def sample(self, rng: random.Random, *, everything: bool) -> dict[int, int | None]:
        """What is compared after this kill."""
        sure = [number for number in self.versions if number not in self.unsure]
        if not everything:
            latest = set(self.latest[-1500:]) - self.unsure
            sure = [*latest, *rng.sample(sure, min(300, len(sure)))]
        return {number: self.versions[number] for number in sure}

    @property
    def held(self) -> int:
        """How many documents there must be of those that are sure."""
        return sum(v is not None for n, v in self.versions.items() if n not in self.unsure)


def document(number: int, version: int) -> Document:
    """A document that mentions the one before it."""
    text = f"Passage {number} in version {version} mentions Title {number // 2} and word{number}."
    return Document(text, id=f"d{number}", metadata={"title": f"Title {number}"})


def build(say: Say, place: Place) -> None:
    """Fill a new memory."""
    with place.open() as memory:
        for first in range(0, place.chunks, 1000):
            numbers = range(first, min(first + 1000, place.chunks))
            memory.add_documents([document(n, 0) for n in numbers], split=False, progress=None)
    say("built")


def ingest(say: Say, place: Place, first: int, seed: int) -> None:
    """Add documents without end; now and then change some, and forget some."""
    memory, rng = place.open(), random.Random(seed)
    say(("open",))

    def put(numbers: list[int], version: int) -> None:
        say(("begin", numbers, version))
        memory.add_documents([document(n, version) for n in numbers], split=False, progress=None)
        say(("done",))

    while True:
        batch = rng.choice([max(10, place.batch // 5), place.batch])
        put(list(range(first, first + batch)), 0)
        few = range(first, first + batch, max(1, batch // 10))
        if rng.random() < 0.3:
            put(list(few), 1)
        if rng.random() < 0.3:
            say(("begin", list(few), None))
            memory.forget(ids=[f"d{number}" for number in few])
            say(("done",))
        first += batch


def compare(
    say: Say, place: Place, sample: dict[int, int | None], unsure: set[int], held: int
) -> None:
    """Open the memory and compare it with what was acknowledged."""
    started = time.perf_counter()
    memory = place.open()
    found: dict[str, Any] = {"opening": time.perf_counter() - started, "other": []}
    names = {f"d{number}": number for number in (*sample, *unsure)}
    known: dict[int, int] = {}
    for start in range(0, len(names), 5000):
        part = list(names)[start : start + 5000]
        for name, node in memory.store.catalog.documents(part).items():
            known[names[name]] = int(node.content.split(" in version ")[1].split()[0])
    found["lost"] = [n for n, v in sample.items() if v is not None and known.get(n) != v]
    back = [n for n, v in sample.items() if v is None and n in known]
    found["now"] = {number: known.get(number) for number in unsure}
    if back:
        found["other"].append(f"forgotten documents came back: {back[:5]}")
    must = held + sum(number in known for number in unsure)
    nodes, vectors = memory.info()["nodes"], memory.index.count()
    if nodes != must:
        found["other"].append(f"{nodes} documents, not {must}")
    if vectors != nodes:
        found["other"].append(f"{vectors} vectors of {nodes} documents")
    searched = [n for n, v in sample.items() if v is not None and n in known][-100:]
    hits = 0
    for number in searched:
        (own,) = memory.store.walk.get_nodes([f"d{number}"])
        hits += memory.index.search(np.asarray(own.vector, np.float32), 1) == [f"d{number}"]
    if hits < _ENOUGH * len(searched):
        found["other"].append(f"vector search finds {hits} of {len(searched)} by themselves")
    memory.retrieve("Passage word3")
    memory.close()
    found["other"] += doctor(place)
    say(found)


def doctor(place: Place) -> list[str]:
    """What doctor finds that must be mended."""
    vectors: Any = place.vectors
    if vectors is not None:
        vectors = chromadb.HttpClient(port=int(vectors.rpartition(":")[2]))
    embeddings = Hashed(place.dimensions)
    found = examine(place.location, vectors=vectors, embeddings=embeddings).findings
    return [f"doctor: {one.message}" for one in found if one.severity != "info"]


def feedback(say: Say, place: Place, cycle: int, seed: int) -> None:
    """Ask and record without end; now and then correct or teach."""
    memory, rng = place.open(), random.Random(seed)
    say(("open",))
    for step in range(10**9):
        namespace, number = _NAMESPACES[step % 3], rng.randrange(min(40, place.chunks))
        answer = memory.retrieve(f"Which passage mentions word{number}?", namespace=namespace)
        used = [found.node.id for found in answer.documents][:2]
        more: dict[str, Any] = {"correction": f"Right is {cycle}-{step}."} if step % 7 == 3 else {}
        outcome, name = rng.choice([1.0, 1.0, -1.0]), f"{cycle}-{step}"
        given = Feedback(answer.turn.id, outcome, used=used, feedback_id=name, **more)
        say(("feedback", name, memory.record(given).status))
        if step % 11 == 5:
            say(("note", memory.teach(f"Taught {cycle}-{step}", namespace=namespace)))


def reconcile(say: Say, place: Place, said: list[Any]) -> None:
    """Open the memory and look for the feedback and the notes that were acknowledged."""
    started = time.perf_counter()
    memory = place.open()
    found: dict[str, Any] = {"opening": time.perf_counter() - started, "other": [], "lost": []}
    store = memory.store
    for kind, name, *status in said:
        if kind == "note":
            found["lost"] += [] if store.notes.get_facts([name]) else [name]
            continue
        now = status_of(memory, name)
        if now is None:
            found["lost"].append(name)
        elif now != "applied" and status == ["applied"]:
            found["other"].append(f"feedback was applied and is now {now}")
    memory.learning.learn_waiting()
    applied = store.learned.count_feedback()["applied"]
    clocks = [store.walk.get_clock(name) for name in _NAMESPACES]
    notes = store.notes.get_facts([note for clock in clocks for note in store.notes.ids(clock.key)])
    taught = sum(note.feedback is None for note in notes)
    versions = sum(clock.learned for clock in clocks)
    if versions != applied + taught:
        found["other"].append(f"{applied} feedbacks applied, {taught} taught, {versions} versions")
    memory.retrieve("Passage word3")
    memory.close()
    found["other"] += doctor(place)
    say(found)


@contextmanager
def _embedded(chunks: int) -> Iterator[tuple[Place, Callable[[], None]]]:
    """A place in a directory, and what puts a memory of so many chunks there."""
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        there, kept = Path(base, "memory"), Path(base, "kept")
        place = Place(str(there), None, 384, chunks, batch=max(50, min(500, chunks // 3)))

        def renew() -> None:
            shutil.rmtree(there, ignore_errors=True)
            if not kept.exists():
                _require(result(build, place))
                shutil.copytree(there, kept)
            else:
                shutil.copytree(kept, there)

        yield place, renew


@contextmanager
def _served(chunks: int) -> Iterator[tuple[Place, Callable[[], None]]]:
    """A place on servers, and what puts a memory of so many chunks there."""
    with TemporaryDirectory(prefix="soak-") as base, schema() as url, chroma(Path(base)) as server:
        place = Place(url, server_url(server), 32, chunks, batch=50)
        made = False

        def renew() -> None:
            nonlocal made
            if made:
                import sqlalchemy as sa

                engine = sa.create_engine(url)
                with engine.begin() as connection:
                    tables = sa.inspect(connection).get_table_names()
                    for name in tables:
                        connection.execute(sa.text(f'DROP TABLE "{name}" CASCADE'))
                engine.dispose()
                client = server.client()
                for one in client.list_collections():
                    client.delete_collection(one.name)
            made = True
            _require(result(build, place))

        yield place, renew


def _require(said: Any) -> None:
    if said != "built":
        msg = f"the memory of the test cannot be built: {said}"
        raise RuntimeError(msg)


def _moment(rng: random.Random, place: Place, child: Child, longest: float) -> list[Any]:
    """Let a worker work until the moment of its death; what it said."""
    if rng.random() < 0.1:  # while it opens the memory, which may repair something
        time.sleep(rng.uniform(0, 0.25))
        return []
    said: list[Any] = []
    while not said:
        said = child.hear(0.02)
    if isinstance(said[0], Raised):
        return said
    if place.vectors is None and rng.random() < 0.7:
        return said + _until_rewritten(rng, Path(place.location, "vectors"), child, longest)
    return said + child.hear(rng.uniform(0, longest))


def _until_rewritten(rng: random.Random, folder: Path, child: Child, longest: float) -> list[Any]:
    """Let it work until Chroma has begun to rewrite its HNSW files, and a moment longer."""
    said: list[Any] = []
    end = time.monotonic() + 4 * longest
    for _ in range(rng.choice([1, 2, 3])):
        before = _written(folder)
        while _written(folder) == before and time.monotonic() < end:
            said += child.hear(0.0005)
        time.sleep(rng.uniform(0, 0.05))
    return said


def _written(folder: Path) -> tuple[int, ...]:
    """When the files of the index were written."""
    times = []
    for path in folder.glob("*/*.bin"):
        try:
            times.append(path.stat().st_mtime_ns)
        except OSError:
            times.append(0)
    return tuple(times)


def _kill_ingest(
    row: Row, budget: Budget, rng: random.Random, place: Place, renew: Callable[[], None]
) -> None:
    expected, first, openings = Expected(), 0, list[float]()
    for run in budget:
        if run == 0 or first > _GROWN * place.chunks + 20 * place.batch:
            renew()
            expected = Expected(dict.fromkeys(range(place.chunks), 0))
            first = place.chunks
        child = Child(ingest, place, first, rng.randrange(2**31))
        said = _moment(rng, place, child, 2.5)
        said += child.kill()
        row.runs += 1
        _blame_raised(row, said)
        acknowledged = expected.learn([line for line in said if not isinstance(line, Raised)])
        row.acknowledged += acknowledged
        first = max(expected.versions.keys() | expected.unsure) + 1
        sample = expected.sample(rng, everything=run % _ALL_EVERY == _ALL_EVERY - 1)
        found = result(compare, place, sample, expected.unsure, expected.held)
        if isinstance(found, Raised):
            row.blame("unopenable", last_line(found))
            _keep(place, f"ingest-{run}")
            first = 10**9  # begin again from the kept one
            continue
        openings.append(found["opening"])
        if found["lost"]:
            row.blame("lost", f"documents {found['lost'][:5]}", len(found["lost"]))
        for text in found["other"]:
            row.blame("other", text)
        if found["other"] or found["lost"]:
            first = 10**9
        expected.versions.update(found["now"])
        expected.unsure = set()
    _remark(row, place, openings)


def _kill_feedback(
    row: Row, budget: Budget, rng: random.Random, place: Place, renew: Callable[[], None]
) -> None:
    everything, openings = list[Any](), list[float]()
    renew()
    for run in budget:
        child = Child(feedback, place, run, rng.randrange(2**31))
        said = _moment(rng, place, child, 1.5)
        said += child.kill()
        row.runs += 1
        _blame_raised(row, said)
        said = [line for line in said if line[0] in ("feedback", "note")]
        row.acknowledged += len(said)
        everything += said
        whole = run % _ALL_EVERY == _ALL_EVERY - 1
        found = result(reconcile, place, everything if whole else said)
        if isinstance(found, Raised):
            row.blame("unopenable", last_line(found))
            _keep(place, f"feedback-{run}")
        else:
            openings.append(found["opening"])
            if found["lost"]:
                row.blame("lost", f"feedback {found['lost'][:5]}", len(found["lost"]))
            for text in found["other"]:
                row.blame("other", text)
        if isinstance(found, Raised) or found["other"] or found["lost"]:
            renew()
            everything = []
    _remark(row, place, openings)


def _keep(place: Place, name: str) -> None:
    """Keep a broken memory where ``SOAK_KEEP`` says, so that it can be looked at.

    It is renamed, on the same disk: a damaged index may hold files of many GB of holes.
    """
    if (folder := os.environ.get("SOAK_KEEP")) and place.vectors is None:
        Path(place.location).rename(Path(folder, name))


def _blame_raised(row: Row, said: list[Any]) -> None:
    for line in said:
        if isinstance(line, Raised):
            row.blame("other", "the worker failed: " + last_line(line))


def _remark(row: Row, place: Place, openings: list[float]) -> None:
    row.remark = f"{place.chunks:,} × {place.dimensions} at the start"
    if openings:
        middle = sorted(openings)[len(openings) // 2]
        row.remark += f"; opened within {middle:.2f} s (median), {max(openings):.1f} s (most)"


def _check_kills(
    where: str,
    open_place: Callable[[int], AbstractContextManager[tuple[Place, Callable[[], None]]]],
    what: str,
    kill: Callable[[Row, Budget, random.Random, Place, Callable[[], None]], None],
    budget: Budget,
    seed: int,
    chunks: int,
) -> Row:
    """Kill at one kind of work in one kind of place, with a memory of so many chunks."""
    row = Row(f"kills in {what}, {where}")
    with open_place(chunks) as (place, renew):
        kill(row, budget, random.Random(seed), place, renew)
    return row


_in_directory = partial(_check_kills, "SQLite + embedded Chroma", _embedded)
_on_servers = partial(_check_kills, "PostgreSQL + Chroma server", _served)
check_kill_ingest = partial(_in_directory, "ingest", _kill_ingest, chunks=10_000)
check_kill_ingest_servers = partial(_on_servers, "ingest", _kill_ingest, chunks=500)
check_kill_feedback = partial(_in_directory, "feedback", _kill_feedback, chunks=10_000)
check_kill_feedback_servers = partial(_on_servers, "feedback", _kill_feedback, chunks=100)
