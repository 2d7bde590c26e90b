"""Every recipe of the page runs over a real store: before and after."""

import asyncio
import gc
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from langchain_core.retrievers import BaseRetriever
from markdown_it import MarkdownIt

from benchmarks.soak.chroma_process import ChromaServer
from tests.stubs.databases import with_all_schemas

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "existing-data.md"
QUESTION = "Who owns the cluster on which tests run?"


def read_recipes():
    tokens, heading = MarkdownIt().parse(PAGE.read_text(encoding="utf-8")), ""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[place + 1].content
        if token.type == "fence":
            yield heading, token.content


RECIPES = dict(read_recipes())


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs the recipe under a heading in a folder of its own; closes its memory."""
    monkeypatch.chdir(tmp_path)
    names = {}

    def run_recipe(heading, replaced=""):
        code = RECIPES[heading]
        code = code.replace("./chroma", str(tmp_path / "chroma"))  # Chroma keeps what it opened
        exec(code.replace("8000", replaced) if replaced else code, names)  # noqa: S102  our page
        return names

    yield run_recipe
    if "after" in names:
        names["after"].memory.close()
    names.clear()
    gc.collect()


@pytest.fixture
def database(pgvector_url, pgvector, monkeypatch):
    """A database of the test's own, on a server with pgvector."""
    name = re.sub(r"\W", "_", pgvector_url.rpartition("%3D")[2])
    server = sa.create_engine(pgvector, poolclass=sa.NullPool, isolation_level="AUTOCOMMIT")
    with server.connect() as connection:
        connection.execute(sa.text(f'CREATE DATABASE "{name}"'))
    url = sa.make_url(with_all_schemas(pgvector)).set(database=name)
    monkeypatch.setenv("DATABASE_URL", url.render_as_string(hide_password=False))
    yield url
    with server.connect() as connection:
        connection.execute(sa.text(f'DROP DATABASE "{name}" WITH (FORCE)'))


def titles(retriever):
    return {one.metadata.get("title") for one in retriever.invoke(QUESTION)}


def check(it):
    """Both find documents of the store; the memory finds the page that only a name leads to."""
    assert isinstance(it["before"], BaseRetriever)
    assert len(titles(it["before"])) == 2
    assert titles(it["after"]) == {"Tests", "Hydra cluster"}
    report = it["after"].refresh()
    assert (report.added, report.updated, report.removed, report.unchanged) == (0, 0, 0, 3)


@pytest.mark.slow
@pytest.mark.parametrize("heading", ["Chroma, a directory", "FAISS", "Qdrant", "Milvus"])
def test_a_store_in_a_folder(run, heading):
    it = run(heading)
    check(it)
    if heading == "Qdrant":
        it["client"].close()


@pytest.mark.slow
def test_a_chroma_server(run, tmp_path):
    server = ChromaServer(tmp_path / "server")
    try:
        check(run("Chroma, a server", str(server.port)))
    finally:
        server.stop()


@pytest.mark.slow
def test_tables_of_pgvector(run, database):
    it = run("`PGVector`")
    check(it)
    it["store"].session_maker().get_bind().dispose()


@pytest.mark.slow
def test_tables_of_the_older_pgvector_class(run, database):
    it = run("`PGVector` of langchain-community")
    assert {one.page_content for one in it["after"].invoke(QUESTION)} == {
        "The Hydra cluster runs tests.",
        "Lunch is served at noon.",
    }
    assert {one.id for one in it["after"].invoke(QUESTION)} == {row[0] for row in it["rows"]}


@pytest.mark.slow
def test_a_table_of_pgvectorstore(run, database, monkeypatch):
    asynchronous = database.set(drivername="postgresql+asyncpg")
    monkeypatch.setenv("DATABASE_URL", asynchronous.render_as_string(hide_password=False))
    it = run("`PGVectorStore`")
    check(it)
    asyncio.run(it["engine"].close())


def test_a_storage_context(run):
    it = run("LlamaIndex: a storage context")
    ids = {node.node_id for node in it["index"].docstore.docs.values()}
    assert {found.node_id for found in it["before"].retrieve(QUESTION)} <= ids
    found = it["after"].retrieve(QUESTION)
    assert {one.node_id for one in found} <= ids
    assert {one.node.ref_doc_id for one in found} == {"tests", "hydra"}


def test_a_property_graph(run):
    it = run("LlamaIndex: a property graph")
    assert [relation.label for _, relation, _ in it["before"]] == ["owned by"]
    found = [one.node_id for one in it["after"].retrieve("Who owns the cluster of the tests?")]
    assert sorted(found) == ["Hydra cluster", "tests"]


def test_parents_of_small_texts(run):
    it = run("`ParentDocumentRetriever` and `MultiVectorRetriever`")
    assert it["parents"][0].page_content == it["manual"]
    assert it["before"].invoke(QUESTION)[0].page_content == it["manual"]
    assert it["find_parents"](QUESTION)[0].page_content == it["manual"]


def test_an_ensemble(run):
    it = run("`EnsembleRetriever`")
    assert titles(it["after"]) == {"Tests", "Hydra cluster"}
    found = [one.metadata["id"] for one in it["beside"].invoke(QUESTION)]
    assert sorted(found) == ["Hydra cluster", "Tests"]
    assert titles(it["before"]) >= {"Tests"}


def test_vectors_come_along(run, monkeypatch):
    it = run("Take the vectors along")
    assert {one.id for one in it["after"].invoke(QUESTION)} == {"1", "2"}
    row = it["store"].get(ids=["1"], include=["embeddings"])["embeddings"][0]
    kept = it["memory"].index.search(row, 1)
    assert kept == ["1"]


def test_every_recipe_is_tried():
    tried = Path(__file__).read_text(encoding="utf-8")
    assert [heading for heading in RECIPES if f'"{heading}"' not in tried] == []
