"""What pgvector does beside other indexes: its filters, its collections, bad input."""

import json
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import numpy as np
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding as Plain

from crabpath_retrievers import CrabPath
from crabpath_retrievers.errors import (
    ConfigurationError,
    EmbeddingMismatchError,
    InvalidInputError,
)
from crabpath_retrievers.vectors.chroma import ChromaIndex

RECORDS = {
    "int": {"k": 1, "s": "x"},
    "float": {"k": 1.5},
    "true": {"k": True, "s": "y"},
    "text": {"k": "1", "a.b": 'quote"s % and :colons'},
    "list": {"l": ["x", "y"], "k": 7},
    "none": {"other": 3},
}
SAME_AS_CHROMA = [
    {"k": 1},
    {"k": 1.0},
    {"k": True},
    {"k": "1"},
    {"a.b": 'quote"s % and :colons'},
    {"k": {"$ne": 1}},
    {"k": {"$in": [1, 7]}},
    {"k": {"$nin": [1, 7]}},
    {"k": {"$gt": 1}},
    {"k": {"$gte": 1}},
    {"k": {"$lt": 7}},
    {"k": {"$lte": 2}},
    {"$or": [{"k": 1}, {"s": "y"}]},
    {"$and": [{"k": {"$gt": 0}}, {"$or": [{"s": "x"}, {"k": {"$gt": 5}}]}]},
]


@pytest.fixture
def memory(pgvector_url):
    with CrabPath.open(pgvector_url, vectors="pgvector", embeddings=Plain(size=16)) as opened:
        yield opened


@pytest.fixture
def index(memory):
    return memory.index


def fill(index, records=RECORDS):
    points = np.eye(len(records), dtype=np.float32)
    index.upsert(list(records), list(points), list(records), list(records.values()))
    return points


@pytest.mark.slow
@pytest.mark.parametrize("condition", SAME_AS_CHROMA, ids=json.dumps)
def test_filters_mean_what_they_mean_in_chroma(index, chroma_place, condition):
    with closing(
        ChromaIndex.open_directory(chroma_place, f"f{abs(hash(str(condition)))}")
    ) as other:
        points = fill(index)
        fill(other)
        expected = set(other.search(points[0], 10, condition))
        assert set(index.search(points[0], 10, condition)) == expected
        assert index.filter_ids(list(RECORDS), points[0], condition) == expected
        assert 0 < len(expected) < len(RECORDS)


def test_several_keys_and_operators_must_all_hold(index):
    """Chroma refuses these."""
    (first, *_) = fill(index)
    assert index.search(first, 10, {"k": 1, "s": "x"}) == ["int"]
    assert index.search(first, 10, {"k": {"$gt": 1, "$lt": 7}}) == ["float"]


@pytest.mark.slow
@pytest.mark.parametrize("condition", ["k = 1", 3, {"k": float("nan")}, {"k": {}}, {3: 4}])
def test_what_is_no_condition_is_refused(index, condition):
    (first, *_) = fill(index)
    with pytest.raises(InvalidInputError, match="the filter"):
        index.search(first, 1, condition)


@pytest.mark.slow
def test_a_filter_leaves_k_hits_also_far_from_the_query(memory, index):
    """The 40 rows that match are the farthest of 2,000, beyond what one scan of HNSW visits."""
    random = np.random.default_rng(0)
    points = random.normal(size=(2000, 16)).astype(np.float32)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    order = np.argsort(points @ points[0])
    rare = set(order[:40].tolist())
    names = [f"n{i}" for i in range(len(points))]
    index.upsert(names, list(points), names, [{"rare": i in rare} for i in range(len(points))])
    with memory.store.connect() as connection:
        connection.exec_driver_sql("SET enable_seqscan = off")
        connection.exec_driver_sql("SET enable_sort = off")
        found = index.search(points[0], 10, {"rare": True})
        assert len(found) == 10
        assert {int(name[1:]) for name in found} <= rare
        near = index.search(points[0], 300)
    expected = {f"n{i}" for i in order[::-1][:300]}
    assert len(expected.intersection(near)) > 285


def test_collections_of_namespaces_are_rows_of_one_table(memory, index):
    """Each finds its own rows alone; the table of documents has none of them."""
    point = np.eye(3, dtype=np.float32)
    ann, bob = index.open_sibling("episodes-1"), index.open_sibling("notes-2")
    assert index.list_siblings() == []
    ann.upsert(["e1", "e2"], list(point[:2]), ["asked", "asked"], [{}, {}])
    bob.upsert(["e1"], [point[2]], ["taught"], [{}])
    assert (ann.search(point[0], 5), bob.search(point[0], 5)) == (["e1", "e2"], ["e1"])
    assert index.list_siblings() == ["episodes-1", "notes-2"]
    assert (index.count(), index.search(point[0], 5), ann.count()) == (0, [], 2)
    assert list(ann.ids()) == [["e1", "e2"]]
    ann.drop()
    assert (ann.count(), bob.count(), index.list_siblings()) == (0, 1, ["notes-2"])
    with memory.store.connect() as connection:
        content = sa.text("SELECT DISTINCT content FROM crabpath_companion_vectors")
        assert connection.scalars(content).all() == [""]


def test_vectors_of_another_dimension_are_refused(index):
    points = fill(index)
    sentence = "crabpath_vectors .* holds vectors of dimension 6, not 3: use the embedder"
    with pytest.raises(EmbeddingMismatchError, match=sentence):
        index.search(points[0][:3], 1)
    with pytest.raises(EmbeddingMismatchError, match=sentence):
        index.upsert(["z"], [points[0][:3]], ["z"], [{}])
    assert index.count() == len(RECORDS)


def test_large_vectors_are_searched_in_half_precision(memory, index):
    """As those of text-embedding-3-large; more than HNSW takes are refused."""
    with pytest.raises(ConfigurationError, match="dimension 4001 do not fit into pgvector"):
        index.upsert(["a"], [np.eye(1, 4001, dtype=np.float32)[0]], ["a"], [{}])
    points = np.eye(3, 3072, dtype=np.float32)
    index.upsert(["a", "b", "c"], list(points), ["a", "b", "c"], [{}, {}, {}])
    assert index.search(points[1], 1) == ["b"]
    with memory.store.connect() as connection:
        query = "SELECT indexdef FROM pg_indexes WHERE indexname = 'crabpath_vectors_hnsw'"
        assert "halfvec(3072)" in connection.exec_driver_sql(query).scalar()


def test_a_large_table_is_searched_more_widely(memory, pgvector_url):
    """As large as the database says that it is, when a connection is new."""
    memory.add_documents([Document("Hydra", id="hydra")], progress=None)
    point, widths = np.eye(1, 16, dtype=np.float32)[0], []
    for rows in (20_000, 1_000_000, 100_000_000):
        with memory.store.connect() as connection:
            query = "UPDATE pg_class SET reltuples = %s WHERE oid = 'crabpath_vectors'::regclass"
            connection.exec_driver_sql(query, (rows,))
            connection.commit()
        with (
            CrabPath.open(pgvector_url, embeddings=Plain(size=16)) as later,
            later.store.open_reader() as read,
            read.connect() as connection,
        ):
            assert later.index.on(read).search(point, 1) == ["hydra"]
            widths.append(int(connection.exec_driver_sql("SHOW hnsw.ef_search").scalar()))
    assert widths == [64, 206, 400]


def test_a_refused_opening_leaves_no_tables(postgres_url):
    """Neither without the extension, nor where nobody says where the vectors are."""
    engine = sa.create_engine(postgres_url, poolclass=sa.NullPool)
    with engine.connect() as connection:
        available = "SELECT count(*) FROM pg_available_extensions WHERE name = 'vector'"
        if connection.scalar(sa.text(available)):
            pytest.skip("the server at CRABPATH_TEST_POSTGRES has pgvector")
    sentence = "the database has no extension vector .*: install pgvector on the server and run"
    with pytest.raises(ConfigurationError, match=sentence):
        CrabPath.open(postgres_url, vectors="pgvector")
    with pytest.raises(ConfigurationError, match="a store at a URL needs vectors="):
        CrabPath.open(postgres_url)
    assert not sa.inspect(engine).get_table_names()


@pytest.mark.slow
def test_the_extension_is_found_in_a_schema_of_any_name(pgvector):
    engine = sa.create_engine(pgvector, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    url = pgvector.replace("/postgres?", "/odd?")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE DATABASE odd")
        odd = sa.create_engine(url, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with odd.connect() as inside, inside.connection.cursor() as cursor:
            cursor.execute('CREATE SCHEMA "a%b ""q"')
            cursor.execute('CREATE EXTENSION vector SCHEMA "a%b ""q"')
        with CrabPath.open(url, embeddings=Plain(size=8), vectors="pgvector") as memory:
            memory.add_documents([Document("Hydra"), Document("Lunch")], progress=None)
            assert len(memory.retrieve("Where is Hydra?", k=2).documents) == 2
        connection.exec_driver_sql("DROP DATABASE odd WITH (FORCE)")


def test_a_user_who_may_not_create_the_extension_is_told(pgvector):
    """In a database where nobody has created it yet; once it is there, the user may use it."""
    engine = sa.create_engine(pgvector, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    other = pgvector.replace("/postgres?", "/theirs?")
    url = other.replace("postgres:@", "plain:@")
    with engine.connect() as connection:
        connection.exec_driver_sql("CREATE ROLE plain LOGIN")
        connection.exec_driver_sql("CREATE DATABASE theirs")
        theirs = sa.create_engine(other, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
        with theirs.connect() as inside:
            inside.exec_driver_sql("GRANT CREATE ON SCHEMA public TO plain")
            with pytest.raises(ConfigurationError, match="permission denied to create ext"):
                CrabPath.open(url, vectors="pgvector")
            inside.exec_driver_sql("CREATE EXTENSION vector")
            with CrabPath.open(url, vectors="pgvector") as memory:
                assert memory.index.count() == 0
        connection.exec_driver_sql("DROP DATABASE theirs WITH (FORCE)")
        connection.exec_driver_sql("DROP ROLE plain")


def test_two_stores_of_one_database_create_the_extension_together(pgvector):
    """The second waits for the first, which has created it and not yet committed."""
    engine = sa.create_engine(pgvector, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    fresh = pgvector.replace("/postgres?", "/fresh?")

    def count():
        with CrabPath.open(fresh, vectors="pgvector") as memory:
            return memory.index.count()

    with engine.connect() as connection, ThreadPoolExecutor(1) as pool:
        connection.exec_driver_sql("CREATE DATABASE fresh")
        waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
        others = []

        def let_another_come(_connection, _cursor, statement, *_):
            if statement.startswith("CREATE EXTENSION") and not others:
                others.append(pool.submit(count))
                while not connection.scalar(sa.text(waiting)):
                    assert not others[0].done()

        sa.event.listen(sa.Engine, "after_cursor_execute", let_another_come)
        try:
            assert count() == 0
        finally:
            sa.event.remove(sa.Engine, "after_cursor_execute", let_another_come)
        assert others[0].result() == 0
        connection.exec_driver_sql("DROP DATABASE fresh WITH (FORCE)")


def test_pgvector_needs_postgresql_and_its_exact_name(tmp_path):
    """Nothing is created."""
    for path in (tmp_path / "memory", None, f"sqlite:///{tmp_path}/memory/graph.sqlite"):
        with pytest.raises(
            ConfigurationError, match="vectors='pgvector' needs a memory in Postgre"
        ):
            CrabPath.open(path, vectors="pgvector")
    with pytest.raises(ConfigurationError, match="'PG_Vector' is not known: write vectors='pgvec"):
        CrabPath.open(tmp_path / "memory", vectors="PG_Vector")
    assert not list(tmp_path.iterdir())
