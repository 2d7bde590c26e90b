"""Graph and vectors in one PostgreSQL database: nothing else is needed, kills lose nothing."""

import subprocess
import sys

import pytest
from corpora import make_linked_corpus, read_graph
from databases import schema_of, with_all_schemas
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_postgres import Column, PGEngine, PGVectorStore

from crabpath_retrievers import CrabPath, CrabPathRetriever, examine, migrate
from crabpath_retrievers.errors import ConfigurationError, StoreError
from tests.seams import stop_after

pytestmark = pytest.mark.slow

EMBEDDINGS = DeterministicFakeEmbedding(size=16)
CHILD = """
import sys
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath
from tests.seams import stop_after

url, first, way, kill = sys.argv[1:]
memory = CrabPath.open(url, embeddings=DeterministicFakeEmbedding(size=16), vectors="pgvector")
stop_after(kill, 1)
print("open", flush=True)
for n in range(int(first), int(first) + 20):
    getattr(memory, way)([Document(f"Text {n} tells of Page {n + 1}.", id=f"d{n}")])
memory.close()
"""


def pages(count):
    return [
        Document(
            f"Text {n} tells of Page {n + 1}.",
            id=f"d{n}",
            metadata={"title": f"Page {n}", "part": n % 3},
        )
        for n in range(count)
    ]


def start(url, first, way="add_documents", kill="never"):
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, url, str(first), way, kill], stdout=subprocess.PIPE, text=True
    )


def held(memory):
    """Ids of all documents, which are those of all vectors."""
    ids = set(memory.store.catalog.chunk_ids())
    assert {one for page in memory.index.ids() for one in page} == ids
    return ids


def test_from_documents_to_doctor(pgvector_url):
    """It opens again without saying where the vectors are."""
    made = CrabPathRetriever.from_documents(
        pages(30), EMBEDDINGS, path=pgvector_url, vectors="pgvector", k=4
    )
    with made.memory as memory:
        found = made.invoke("What does Page 3 say?")
        assert len(found) == 4
        receipts = made.record(found, "up", used=[found[0].id])
        assert [receipt.status for receipt in receipts] == ["applied"]
        parts = made.invoke("What does Page 3 say?", filter={"part": {"$in": [1]}})
        assert {document.metadata["part"] for document in parts} == {1}
        memory.teach("Page 3 is blue.", query="Which colour has Page 3?")
        memory.forget([found[0].id])
        assert found[0].id not in held(memory)
    again = CrabPathRetriever.from_existing(pgvector_url, embeddings=EMBEDDINGS, k=4)
    with again.memory as memory:
        assert len(held(memory)) == 29
        assert found[0].id not in {document.id for document in again.invoke("Page 3")}
        assert memory.index.description.startswith("pgvector in postgresql")
    diagnosis = examine(pgvector_url, embeddings=EMBEDDINGS)
    assert "vectors" in diagnosis.checked
    assert not [one for one in diagnosis.findings if one.check == "vectors"]


def test_one_opens_while_another_publishes_its_first_documents(pgvector_url, monkeypatch):
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as first:
        glance = type(first.index).count_and_find

        def publish_and_glance(index, ids):
            first.add_documents(pages(1))
            return glance(index, ids)

        monkeypatch.setattr(type(first.index), "count_and_find", publish_and_glance)
        with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as second:
            assert held(second) == {"d0"}


def test_doctor_and_reindex_find_what_somebody_deleted(pgvector_url):
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as memory:
        memory.add_documents(pages(10))
        memory.index.delete(["d3"])
    (finding,) = (
        one
        for one in examine(pgvector_url, embeddings=EMBEDDINGS).findings
        if one.check == "vectors"
    )
    assert "1 chunks are missing in the vector index: d3" in finding.message
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as memory:  # repairs it
        assert "d3" in held(memory)
        memory.index.delete(list(held(memory)))
    with pytest.raises(ConfigurationError, match="is empty, and the memory holds 10 chunks"):
        CrabPath.open(pgvector_url, embeddings=EMBEDDINGS)
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, reindex=True) as memory:
        assert len(held(memory)) == 10


def test_memories_move_to_pgvector_and_away(pgvector_url, tmp_path):
    """From a directory, from another index of the same graph, and back; each is remembered."""
    with CrabPath.open(tmp_path / "old", embeddings=EMBEDDINGS) as memory:
        memory.add_documents(pages(8))
        memory.teach("Page 3 is blue.", query="Which colour has Page 3?")
    assert migrate(tmp_path / "old", pgvector_url, vectors="pgvector").rows
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as memory:
        assert memory.index.description.startswith("pgvector")
        assert len(held(memory)) == 8
    aside = {"embeddings": EMBEDDINGS, "vectors": tmp_path / "vectors"}
    with CrabPath.open(pgvector_url, reindex=True, **aside) as memory:
        assert memory.index.count() == 8
        memory.forget(["d1"])
    with pytest.raises(ConfigurationError, match="a store at a URL needs vectors="):
        CrabPath.open(pgvector_url, embeddings=EMBEDDINGS)
    back = {"embeddings": EMBEDDINGS, "vectors": "pgvector"}
    with CrabPath.open(pgvector_url, reindex=True, **back) as memory:
        assert len(held(memory)) == 7
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as memory:
        assert "notes-1" in memory.index.list_siblings()


async def test_the_table_of_documents_opens_as_a_pgvectorstore(pgvector_url):
    """Read by its own class, as users have it; the memory's own questions are not in it."""
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as memory:
        memory.add_documents(pages(12))
        schema = schema_of(pgvector_url)
        engine = PGEngine.from_connection_string(with_all_schemas(pgvector_url))
        store = await PGVectorStore.create(
            engine, EMBEDDINGS, "crabpath_vectors", schema_name=schema
        )
        (found,) = await store.asimilarity_search("Page 7\nText 7 tells of Page 8.", k=1)
        assert (found.id, found.page_content) == ("d7", "Text 7 tells of Page 8.")
        assert found.metadata["title"] == "Page 7"
        some = await store.asimilarity_search("Text", k=12, filter={"part": {"$eq": 2}})
        assert {document.id for document in some} == {"d2", "d5", "d8", "d11"}
        await engine.close()


def test_a_pgvectorstore_of_somebody_else_is_wrapped(pgvector_url):
    """Its vectors stay its own, beside a graph in the same database; what it deletes is gone."""
    schema = schema_of(pgvector_url)
    engine = PGEngine.from_connection_string(with_all_schemas(pgvector_url))
    text_ids = Column("langchain_id", "TEXT", nullable=False)
    engine.init_vectorstore_table("theirs", 16, schema_name=schema, id_column=text_ids)
    store = PGVectorStore.create_sync(engine, EMBEDDINGS, "theirs", schema_name=schema)
    store.add_documents(pages(12))
    given = {"path": pgvector_url, "documents": pages(12), "k": 3}
    retriever = CrabPathRetriever.from_vectorstore(store, **given)
    with retriever.memory:
        found = retriever.invoke("Text 7 tells of Page 8.", filter={"part": {"$eq": 1}})
        assert len(found) == 3
        assert {document.metadata["part"] for document in found} == {1}
        store.delete([found[0].id])
        assert found[0].id not in {one.id for one in retriever.invoke("Text 7 tells of Page 8.")}
    engine._run_as_sync(engine.close())  # noqa: SLF001  it closes in no other way


@pytest.mark.parametrize("change", ["publish_nodes", "put_edges"])
def test_documents_vectors_and_edges_are_written_in_one_transaction(
    pgvector_url, monkeypatch, change
):
    """What fails leaves nothing of what was written before; adding again brings everything."""

    def fail():
        msg = "the disk is full"
        raise OSError(msg)

    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as memory:
        memory.add_documents(pages(3))
        before = memory.info()
        with monkeypatch.context() as broken:
            stop_after(change, 1, fail, broken)
            with pytest.raises(OSError, match="the disk is full"):
                memory.add_documents(pages(6))
        assert memory.info() == before
        assert memory.index.count() == 3
        assert not memory.store.catalog.has_unfinished_ingest()
        memory.add_documents(pages(6))
        assert len(held(memory)) == 6
        assert memory.info()["edges"]["mention"] == 5


@pytest.mark.parametrize("table", ["crabpath_names", "crabpath_terms", "crabpath_edges"])
def test_what_the_database_refuses_leaves_nothing(pgvector_url, table):
    """Also where statements are sent together; afterwards the memory works as before."""
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as memory:
        memory.add_documents(pages(3))
        refuse = f"ALTER TABLE {table} ADD CONSTRAINT refused CHECK (false) NOT VALID"
        with memory.store.connect() as connection:
            connection.exec_driver_sql(refuse)
        with pytest.raises(StoreError, match="refused"):
            memory.add_documents(pages(6))
        assert len(held(memory)) == 3
        with memory.store.connect() as connection:
            connection.exec_driver_sql(f"ALTER TABLE {table} DROP CONSTRAINT refused")
        memory.add_documents(pages(6))
        assert len(held(memory)) == 6


@pytest.mark.slow
def test_the_graph_is_that_of_other_stores(pgvector_url, tmp_path):
    """Documents that are added one by one, changed, and removed with others have the same edges."""
    linked = make_linked_corpus(40)
    named = [
        Document(page.page_content, id=f"d{n}", metadata=page.metadata)
        for n, page in enumerate(linked)
    ]
    changed = [
        Document(page.page_content.partition("##")[0], id=page.id, metadata=page.metadata)
        for page in named[6:12]
    ]
    changed += [Document(linked[n].page_content, id=f"d{n + 1}") for n in (20, 33)]
    graphs = []
    for place in ({"path": pgvector_url, "vectors": "pgvector"}, {"path": tmp_path / "m"}):
        with CrabPath.open(**place, embeddings=EMBEDDINGS) as memory:
            for page in named:
                memory.add_documents([page])
            memory.add_documents(changed)
            memory.add_documents([named[2]], cleanup="incremental")
            graphs.append(read_graph(memory))
            assert len(held(memory)) == len(graphs[-1].nodes)
            memory.add_documents(named[3:9], cleanup="full")
            graphs.append(read_graph(memory))
            held(memory)
    assert graphs[:2] == graphs[2:]
    assert len(graphs[1].nodes) < len(graphs[0].nodes)


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["publish_nodes", "put_edges"])
def test_a_killed_add_leaves_nothing(pgvector_url, kill):
    child = start(pgvector_url, 0, kill=kill)
    child.communicate()
    assert child.returncode == -9
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS, vectors="pgvector") as memory:
        assert held(memory) == set()
        assert not memory.store.catalog.has_unfinished_ingest()
        memory.add_documents(pages(2))
        assert held(memory) == {"d0", "d1"}


@pytest.mark.slow
@pytest.mark.parametrize("kill", ["stage_nodes", "publish_staged"])
def test_a_kill_between_the_steps_of_a_sync_is_made_up_for(pgvector_url, kill):
    child = start(pgvector_url, 0, "sync", kill)
    child.communicate()
    assert child.returncode == -9
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as memory:
        assert held(memory) == {"d0"}
        assert not memory.store.catalog.has_unfinished_ingest()


@pytest.mark.slow
def test_two_processes_fill_one_database_from_the_start(pgvector_url):
    """They create the tables at the same time; each sees the documents of the other."""
    children = [start(pgvector_url, first) for first in (0, 20)]
    for child in children:
        child.communicate()
        assert child.returncode == 0
    with CrabPath.open(pgvector_url, embeddings=EMBEDDINGS) as memory:
        assert held(memory) == {f"d{n}" for n in range(40)}
        other = start(pgvector_url, 40)
        assert other.stdout.readline() == "open\n"
        other.communicate()
        text = "Text 55 tells of Page 56."
        assert memory.index.search(memory.embedder.query(text), 1) == ["d55"]
        assert len(held(memory)) == 60
