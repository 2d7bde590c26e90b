"""What docs/explanation/partitions.md says: which tables divide as they are, and who asks where."""

import re
from collections.abc import Callable
from functools import partial

import psycopg
import pytest
import sqlalchemy as sa
import tables
from learned_memory import EMBEDDINGS, answered, corpus, rows, teach

from crabpath_retrievers import CrabPath
from crabpath_retrievers.storage import Reader

pytestmark = pytest.mark.slow

PARTS = 4
DIVIDED = {"edges": "source", "overlay": "source", "pair_counts": "source", "usage": "node"}
INTERVALS = {"turns": "created", "feedback": "created"}


def divide(connection: sa.Connection, columns: dict[str, str], how: str) -> None:
    """Make some tables of the schema in partitions, before a store makes the others."""
    copy = sa.MetaData()
    for name, column in columns.items():
        made = getattr(tables, name).to_metadata(copy)
        made.dialect_options["postgresql"]["partition_by"] = f"{how} ({column})"
    copy.create_all(connection)


@pytest.fixture
def divided_url(postgres_url) -> str:
    """A database whose four largest tables of the graph are in hash partitions."""
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with engine.begin() as connection:
        divide(connection, DIVIDED, "HASH")
        for name in DIVIDED:
            table = getattr(tables, name).name
            for part in range(PARTS):
                bounds = f"FOR VALUES WITH (modulus {PARTS}, remainder {part})"
                made = f"CREATE TABLE {table}_{part} PARTITION OF {table} {bounds}"
                connection.execute(sa.text(made))
    return postgres_url


def count_partitions(memory: CrabPath, table: str, read: Callable[[Reader], object]) -> int:
    """How many partitions of a table the queries of a read look into."""
    plans = []

    class Explaining(psycopg.Cursor):
        def execute(self, query, params=None, **options):
            super().execute(f"EXPLAIN {query}", params)
            plans.extend(line for (line,) in self.fetchall())
            return super().execute(query, params, **options)

    with memory.store.open_reader() as reader, reader.connect() as connection:
        driver = connection.connection.driver_connection
        plain, driver.cursor_factory = driver.cursor_factory, Explaining
        try:
            read(reader)
        finally:
            driver.cursor_factory = plain
    return len(set(re.findall(rf" on {getattr(tables, table).name}_\d+(?= )", "\n".join(plans))))


@pytest.mark.slow
def test_tables_that_divide_as_they_are(divided_url, postgres_store, tmp_path):
    """Learning, answers and rows are those of a store in one piece."""
    found = []
    for number, place in enumerate((postgres_store, divided_url)):
        given = {"embeddings": EMBEDDINGS, "vectors": tmp_path / str(number)}
        with CrabPath.open(place, **given) as memory:
            memory.add_documents(corpus(), split=False)
            teach(memory, "ann")
            memory.undo("n1")
            memory.forget(ids=["d5"])
            answers = answered(memory, "ann")
            held = {name: rows(memory.store)[name] for name in DIVIDED}
            found.append((answers, {name: len(some) for name, some in held.items()}))
    assert found[0] == found[1]
    assert min(found[0][1].values()) > 0


def test_who_asks_one_partition_and_who_asks_all(divided_url, tmp_path):
    """A node's edges are in one; what only knows the namespace or the target asks all."""

    def execute(query: sa.Select, read: Reader) -> None:
        with read.connect() as connection:
            connection.execute(query)

    overlay, edges = tables.overlay, tables.edges
    with CrabPath.open(divided_url, embeddings=EMBEDDINGS, vectors=tmp_path) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory, "ann")
        memory.store.flush()
        walk, clock = memory.store.walk, memory.store.walk.get_clock("ann")
        assert clock.weights
        for table in ("edges", "overlay"):
            walk.forget_corpus()
            assert (
                count_partitions(
                    memory, table, lambda read: read.walk.get_outgoing_edges([7], clock)
                )
                == 1
            )
        assert count_partitions(memory, "overlay", lambda read: read.walk.get_clock("ann")) == PARTS
        removal = sa.select(edges.c.kind).where(edges.c.target == 7)
        assert count_partitions(memory, "edges", partial(execute, removal)) == PARTS
        forgetting = sa.select(overlay.c.kind).where(overlay.c.namespace == 1)
        assert count_partitions(memory, "overlay", partial(execute, forgetting)) == PARTS


@pytest.mark.parametrize("table", INTERVALS)
def test_tables_that_do_not_divide_by_month_as_they_are(postgres_url, table):
    """Their keys lack the time; PostgreSQL could not tell an id that is given twice."""
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with (
        pytest.raises(sa.exc.NotSupportedError, match="must include all partitioning columns"),
        engine.begin() as connection,
    ):
        divide(connection, {table: INTERVALS[table]}, "RANGE")
