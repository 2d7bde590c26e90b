"""Namespaces, documents and snapshots that are forgotten while others work: no row is left."""

import random
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import sqlalchemy as sa
from langchain_core.documents import Document

from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import Words, schema
from crabpath_retrievers import CrabPath, CrabPathError
from crabpath_retrievers.storage.registry import TABLES, list_orphans

_NAMES = ("ann", "bob")
_OWN = ("turns", "feedback", "episodes", "notes", "namespaces", "snapshots", "usage")
_PAGES = 60


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
        retriever.record(found, chance.random() < 0.7, used=found[:1], correction=correction)
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
        own = {"vectors": vectors} if "://" in place else {}
        return CrabPath.open(place, embeddings=Words(), **own)

    pages = [
        Document(f"Text {n} about topic {n % 7} and colour {n % 11}", id=f"d{n}")
        for n in range(_PAGES)
    ]
    with open_memory() as memory:
        memory.add_documents(pages, progress=None)
        workers = [_Worker(row, open_memory, name, seed + n) for n, name in enumerate(_NAMES * 2)]
        for worker in workers:
            worker.start()
        slowest = 0.0
        for run in budget:
            row.runs += 1
            try:
                begun = time.monotonic()
                for name in _NAMES:
                    memory.forget(namespace=name)
                slowest = max(slowest, time.monotonic() - begun)
                if run % 2:
                    page = pages[run % _PAGES]
                    memory.forget([str(page.id)])
                    memory.add_documents([page], progress=None)
            except Exception as error:
                row.blame("foreign", f"forget: {error!r}")
            time.sleep(0.05)
        for worker in workers:
            worker.over = True
        for worker in workers:
            worker.join()
        row.acknowledged += sum(worker.done for worker in workers)
        _blame_orphans(row, memory)
        for name in _NAMES:
            memory.forget(namespace=name)
        with memory.store.open_reader() as connection:
            for table in _OWN:
                if left := connection.scalar(sa.select(sa.func.count()).select_from(TABLES[table])):
                    row.blame("other", f"{left} rows of {table} after everything", left)
        _blame_orphans(row, memory)
    row.remark += f"{'PostgreSQL' if '://' in place else 'SQLite'}: longest {slowest:.1f} s. "


def _blame_orphans(row: Row, memory: CrabPath) -> None:
    with memory.store.open_reader() as connection:
        for table, lost in list_orphans().items():
            count = sa.select(sa.func.count()).select_from(TABLES[table]).where(lost)
            if left := connection.scalar(count):
                row.blame("other", f"{left} rows of {table} without an owner", left)
