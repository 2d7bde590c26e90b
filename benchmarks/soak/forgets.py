"""Namespaces, documents and snapshots that are forgotten while others work: no row is left."""

import random
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa
from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import Words, schema
from crabpath_retrievers import CrabPath, CrabPathError
from crabpath_retrievers.storage.schema import TABLES, list_orphans

_NAMES = ("ann", "bob")
_OWN = ("turns", "feedback", "episodes", "notes", "namespaces", "snapshots", "usage")
_PAGES = [
    Document(f"Text {n} about topic {n % 7} and colour {n % 11}", id=f"d{n}") for n in range(60)
]


class _Worker(threading.Thread):
    """Asks, records, teaches, undoes, takes and restores snapshots, in one memory of its own."""

    def __init__(self, row: Row, open_memory: Callable[[], CrabPath], name: str, seed: int) -> None:
        super().__init__(daemon=True)
        self._row, self._open, self._namespace = row, open_memory, name
        self._random, self.done = random.Random(seed), 0
        self.over = False

    def run(self) -> None:
        with self._open() as memory:
            while not self.over:
                try:
                    self._step(memory)
                    self.done += 1
                except CrabPathError:
                    continue  # it was forgotten in the meantime
                except Exception as error:
                    self._row.blame("foreign", f"a worker: {error!r}")

    def _step(self, memory: CrabPath) -> None:
        name, chance = self._namespace, self._random
        retriever = memory.as_retriever(k=4, namespace=name)
        found = retriever.invoke(f"topic {chance.randrange(7)} colour {chance.randrange(11)}")
        correction = "It is blue." if chance.random() < 0.1 else None
        retriever.record(
            found, chance.random() < 0.7, used=[str(found[0].id)], correction=correction
        )
        if chance.random() < 0.2:
            memory.undo(turn_id=found[0].metadata["crabpath"]["turn_id"])
        if chance.random() < 0.1:
            taken = memory.namespaces.snapshot(namespace=name)
            memory.namespaces.restore(taken)
            memory.namespaces.delete_snapshot(taken)


def check_forget(budget: Budget, seed: int) -> Row:
    """On both databases; every other run also forgets a document and adds it again."""
    row, rest = Row("forgotten while others work"), list[str]()
    for name in ("SQLite", "PostgreSQL"):
        with ExitStack() as stack:
            base = Path(stack.enter_context(TemporaryDirectory(prefix="soak-")))
            try:
                place = str(base / "m") if name == "SQLite" else stack.enter_context(schema())
            except Skipped as why:
                rest.append(f"{name} left out: {why}")
                continue
            _forget_under_load(row, budget, seed, place, base / "vectors")
    row.remark = "; ".join([row.remark, *rest])
    return row


def _forget_under_load(row: Row, budget: Budget, seed: int, place: str, vectors: Path) -> None:
    def open_memory() -> CrabPath:
        own = vectors if "://" in place else None
        return CrabPath.open(place, embeddings=Words(), vectors=own)

    slowest = 0.0
    with open_memory() as memory:
        memory.add_documents(_PAGES, progress=None)
        workers = [_Worker(row, open_memory, name, seed + n) for n, name in enumerate(_NAMES * 2)]
        for worker in workers:
            worker.start()
        for run in budget:
            row.runs += 1
            begun = time.monotonic()
            _forget(row, memory, _PAGES[run % len(_PAGES)] if run % 2 else None)
            slowest = max(slowest, time.monotonic() - begun)
            time.sleep(0.05)
        for worker in workers:
            worker.over = True
        for worker in workers:
            worker.join()
        row.acknowledged += sum(worker.done for worker in workers)
        _blame_rows(row, memory, list_orphans())
        _forget(row, memory)
        _blame_rows(row, memory, {**list_orphans(), **dict.fromkeys(_OWN, sa.true())})
    row.remark += f"{'PostgreSQL' if '://' in place else 'SQLite'}: longest {slowest:.1f} s. "


def _forget(row: Row, memory: CrabPath, page: Document | None = None) -> None:
    """Forget all namespaces, and a page, which is added again."""
    try:
        for name in _NAMES:
            memory.forget(namespace=name)
        if page is not None:
            memory.forget(page)
            memory.add_documents([page], progress=None)
    except Exception as error:
        row.blame("foreign", f"forget: {error!r}")


def _blame_rows(row: Row, memory: CrabPath, left: Mapping[str, sa.ColumnElement[bool]]) -> None:
    with memory.store.connect() as connection:
        for table, which in left.items():
            count = sa.select(sa.func.count()).select_from(TABLES[table]).where(which)
            if number := connection.scalar(count):
                row.blame("other", f"{number} rows of {table} are left", number)
