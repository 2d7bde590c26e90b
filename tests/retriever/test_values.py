"""Values as people have them: numbers of numpy, None for no bound, long lists, nobody's groups."""

import sqlite3
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, InvalidInputError, RegionMDP, Settings, StoreError
from crabpath_retrievers.config import SeedSettings

GIVEN = {
    "year": np.int64(2024),
    "share": np.float32(0.5),
    "open": np.bool_(True),  # noqa: FBT003
    "one": np.array(7),
    "many": np.array([1, 2]),
    "half": Fraction(1, 2),
    "price": Decimal("2.5"),
    "name": np.str_("en"),
}


@pytest.fixture
def memory(tmp_path):
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as opened:
        pages = [
            Document(f"On topic{n}", metadata={"group": "ab"[n % 2], "n": n}) for n in range(6)
        ]
        opened.add_documents(pages, ids=[f"d{n}" for n in range(6)], progress=None)
        yield opened


def test_numbers_of_other_libraries_are_numbers(memory):
    """In metadata, in filters of queries and lists, in k, bounds, limits and settings."""
    memory.add_documents([Document("A page.", metadata=GIVEN, id="p")], progress=None)
    (found,) = memory.get_by_ids("p")
    assert found.metadata == {
        "year": 2024,
        "share": 0.5,
        "open": True,
        "one": 7,
        "many": [1, 2],
        "half": 0.5,
        "price": 2.5,
        "name": "en",
    }
    assert type(found.metadata["year"]) is int
    retriever = memory.as_retriever(k=np.int64(3))
    for key in ("year", "share", "open", "one", "half", "price", "name"):
        assert [d.id for d in retriever.invoke("page", filter={key: GIVEN[key]})] == ["p"], key
        assert [d.id for d in memory.documents(filter={key: GIVEN[key]})] == ["p"], key
    wanted = {"year": {"$in": np.array([2023, 2024])}}
    assert [d.id for d in retriever.invoke("page", filter=wanted, k=np.int32(2))] == ["p"]
    assert len(memory.documents(limit=np.int64(2))) == 2
    least = np.float32(0.0)
    options = {
        "min_score": least,
        "fill": np.True_,
        "max_tokens": np.int64(99),
        "explore": np.int8(3),
    }
    assert retriever.invoke("page", **options)
    settings = Settings(seeds=SeedSettings(hits_per_engine=np.int64(9)), time_limit=np.float64(3))
    assert settings.seeds.hits_per_engine == 9


def test_none_unsets_a_field_for_one_call(memory):
    fields = {"filter": {"group": "a"}, "min_score": 1.0, "max_tokens": 1, "task_type": "t"}
    retriever = memory.as_retriever(k=6, **fields)
    assert retriever.invoke("topic") == []
    assert len(retriever.invoke("topic", min_score=None, max_tokens=None)) == 3
    assert len(retriever.invoke("topic", **dict.fromkeys(fields), k=None, namespace=None)) == 6
    assert retriever.invoke("topic") == []


@pytest.mark.parametrize(
    ("condition", "count"),
    [
        ({"group": {"$in": []}}, 0),
        ({"group": {"$nin": []}}, 6),
        ({"$or": []}, 0),
        ({"$and": []}, 6),
    ],
)
def test_nobodys_groups(memory, condition, count):
    """A filter by the groups of a user who is in none finds nothing; it is no error."""
    assert len(memory.as_retriever(k=6).invoke("topic", filter=condition)) == count
    both = {"$and": [{"n": {"$gte": 0}}, condition]}
    assert len(memory.as_retriever(k=6).invoke("topic", filter=both)) == count
    confined = memory.retrieve("topic", filter=condition, confined=True, k=6)
    assert len(confined.documents) == count


def test_none_in_a_filter_is_refused_by_every_door(memory):
    for condition in ({"group": None}, {"group": {"$in": ["a", None]}}):
        with pytest.raises(InvalidInputError, match="group"):
            memory.as_retriever().invoke("topic", filter=condition)
    with pytest.raises(InvalidInputError, match="None"):
        memory.documents(filter={"group": None})


@pytest.mark.both_databases
def test_long_lists_of_ids(tmp_path):
    """10,000 are more than SQLite binds beside others, and are answered; 10,001 are refused."""
    ids = [f"d{n}" for n in range(10_000)]
    least = 2**15 - 2  # parameters of a statement, where SQLite is built as usual

    @sa.event.listens_for(sa.pool.Pool, "connect")
    def limit(connection, _record):
        if isinstance(connection, sqlite3.Connection) and hasattr(connection, "setlimit"):
            connection.setlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, least)

    try:
        with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8)) as memory:
            memory.add_documents(
                [Document(f"Text number {n}", id=f"d{n}", metadata={"n": n}) for n in range(30)],
                progress=None,
            )
            options = {"candidate_ids": ids, "seed_ids": ids, "k": 40}
            answer = memory.retrieve("text", **options, filter={"n": {"$gte": 9.5}})
            assert len(answer.documents) == 20
            assert memory.record(answer, 1.0, relevant=ids[:5000], irrelevant=ids[5000:])
            assert len(memory.get_by_ids(ids)) == 30
            for call in (memory.get_by_ids, memory.forget):
                with pytest.raises(InvalidInputError, match="at most 10,000"):
                    call([*ids, "x"])
            for name in ("candidate_ids", "seed_ids", "boost_tags"):
                with pytest.raises(InvalidInputError, match=f"{name} has 10,001 values"):
                    memory.retrieve("text", **{name: [*ids, "x"]})
            assert memory.forget(ids[10:]) == 20
    finally:
        sa.event.remove(sa.pool.Pool, "connect", limit)


def test_a_refused_statement_is_no_lost_database(tmp_path):
    """Whether a database runs is asked only where a connection failed."""
    marks = ", ".join("?" * 300_000)
    with (
        CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory,
        pytest.raises(StoreError, match="refused an operation") as caught,
        memory.store.connect() as connection,
    ):
        connection.exec_driver_sql(f"SELECT {marks}", (1,) * 300_000)
    assert "running" not in str(caught.value)


def test_the_region_mdp_takes_a_memory(tmp_path):
    """As its source document writes it."""
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        pages = [Document(f"Page {n}", id=f"d{n}") for n in range(80)]
        memory.add_documents(pages, progress=None)
        mdp = RegionMDP(memory, 1)
        assert mdp.assign("Page 3") == memory.regions.mdp(1).assign("Page 3")
        assert RegionMDP(memory.regions, np.int64(1)).level == 1
        with pytest.raises(InvalidInputError, match="needs an open CrabPath memory, not 'x'"):
            RegionMDP("x", 1)
