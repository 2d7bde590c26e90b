"""A pooler of transactions before PostgreSQL: eight threads ask and record; no call may fail."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import sqlalchemy as sa
from langchain_core.documents import Document

from benchmarks.pooler import PGBOUNCER, serve_pooler
from benchmarks.soak.figures import Budget, Row, Skipped
from benchmarks.soak.stores import POSTGRES, Words, schema
from crabpath_retrievers import CrabPath, CrabPathError, Feedback

_THREADS, _TOPICS, _AT_ONCE = 8, 40, 200


def check_pooler(budget: Budget, seed: int) -> Row:
    """Queries with their feedback through a pooler with four connections; a run is one of them."""
    row = Row("PostgreSQL behind a pooler of transactions")
    lock, said = threading.Lock(), [0]
    with (
        _serve_database() as url,
        TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder,
        CrabPath.open(url, embeddings=Words(), vectors=Path(folder)) as memory,
    ):
        pages = [Document(f"Passage {n} tells of word{n}", id=f"d{n}") for n in range(_TOPICS)]
        memory.add_documents(pages, progress=None)

        def ask(number: int) -> None:
            name = f"n{number % 3}"
            try:
                answer = memory.retrieve(f"what of word{number % _TOPICS}?", k=4, namespace=name)
                used = [answer.documents[0].node.id]
                status = memory.record(Feedback(answer.turn.id, 1.0, used=used)).status
            except CrabPathError as error:
                with lock:
                    row.blame("other", f"a call failed: {error}")
            except Exception as error:
                with lock:
                    row.blame("foreign", repr(error))
            else:
                with lock:
                    said[0] += status == "applied"
                    if status != "applied":
                        row.blame("other", f"feedback is {status}")

        with ThreadPoolExecutor(_THREADS) as threads:
            batch: list[int] = []
            for run in budget:
                row.runs += 1
                batch.append(run)
                if len(batch) == _AT_ONCE:
                    list(threads.map(ask, batch))
                    batch = []
            list(threads.map(ask, batch))
        row.acknowledged = said[0]
        turns = sum(memory.info()["namespaces"].values())
        if turns != row.runs:
            row.blame("lost", f"{row.runs - turns} turns", row.runs - turns)
    row.remark = f"{2 * row.runs} calls, {_THREADS} threads, 4 connections"
    return row


@contextmanager
def _serve_database() -> Iterator[str]:
    """URL of a new database behind a pooler.

    Raises:
        Skipped: There is no pooler, or no server.
    """
    if PGBOUNCER is None:
        msg = "pgbouncer is not installed"
        raise Skipped(msg)
    with schema() as known:  # a server answers
        name = f"soak_{known.rpartition('_')[2]}"
        engine = sa.create_engine(POSTGRES, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")

        def execute(line: str) -> Any:
            with engine.connect() as connection:
                connection.execute(sa.text(line))

        execute(f"CREATE DATABASE {name}")
        try:
            with serve_pooler(POSTGRES) as url:
                yield url.set(database=name).render_as_string()
        finally:
            execute(f"DROP DATABASE {name} WITH (FORCE)")
