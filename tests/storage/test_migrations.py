"""Stores of older releases are upgraded at opening, once, and completely or not at all."""

import gzip
import json
import re
import subprocess
import sys
import tarfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from langchain_core.embeddings import DeterministicFakeEmbedding
from tables import meta, metadata

from crabpath_retrievers import CrabPath, Feedback, examine
from crabpath_retrievers.errors import SchemaVersionError, StoreError, StoreReadOnlyError
from crabpath_retrievers.storage import SCHEMA_VERSION, GraphStore, ReadOnlyStore
from tests.seams import get_engine, set_bounds
from tests.stubs.later_release import LATER, run_later_release, upgrade

ROOT = Path(__file__).parents[2]
OPEN = """
import sys
import pytest
from crabpath_retrievers.storage import GraphStore
from tests.stubs.later_release import LATER, run_later_release
run_later_release(pytest.MonkeyPatch())
print("ready", flush=True)
sys.stdin.readline()
GraphStore(sys.argv[1]).close()
print(LATER, flush=True)
"""


@pytest.fixture
def later(monkeypatch) -> None:
    """This process runs a later release."""
    run_later_release(monkeypatch)


@pytest.fixture(params=["sqlite", "postgresql"])
def old(request, tmp_path) -> tuple[str, Path]:
    """Place of a store that the first release wrote, and of the vectors beside it."""
    kept = Path(__file__).with_name("first_release")
    with tarfile.open(kept / "sqlite.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    if request.param == "sqlite":
        return str(tmp_path), tmp_path / "vectors"
    url = request.getfixturevalue("postgres_url")
    dump = gzip.decompress((kept / "postgresql.sql.gz").read_bytes()).decode()
    made = sa.create_engine(url)
    with made.begin() as connection:
        connection.exec_driver_sql(dump.replace("public.", ""), execution_options={})
    made.dispose()
    return url, tmp_path / "vectors"


@pytest.fixture
def migrated(old):
    """A connection to a store of the first release that the scripts have upgraded."""
    opened = GraphStore(old[0])
    with get_engine(opened).begin() as connection:
        yield connection
    opened.close()


def is_compared(name, kind, parents):
    """All but the full-text index, which is not among the models."""
    del parents
    return kind == "schema" or not str(name).startswith(("crabpath_fulltext", "ix_crabpath_full"))


def read_facts(place: str) -> dict[str, str]:
    """The facts of a store, read as they are."""
    opened = ReadOnlyStore(place)
    facts = opened.catalog.meta()
    opened.close()
    return dict(facts)


def test_models_and_scripts_give_the_same_schema(migrated):
    """When this fails, a table was changed without a script, or a script without its table."""
    options = {"include_name": is_compared, "compare_server_default": True}
    context = MigrationContext.configure(migrated, opts=options)
    assert compare_metadata(context, metadata) == []


@pytest.mark.sqlite
@pytest.mark.parametrize("old", ["sqlite"], indirect=True)
def test_what_alembic_does_not_compare_is_the_same_too(location, old):
    """Tables without rowid and keys that are not given again; the full-text index."""
    query = sa.text("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL")
    found = []
    for place in (f"{location}/models", old[0]):
        opened = GraphStore(place)
        with opened.connect() as connection:
            rows = connection.execute(query).all()
        opened.close()
        found.append({name: sorted(re.findall(r"[()]|[^\s,\"()]+", sql)) for name, sql in rows})
    models, scripts = found
    assert models.keys() > {"crabpath_nodes", "crabpath_fulltext"}
    assert scripts == models


QUESTIONS = [f"When does hall {i} open?" for i in range(4)] + ["Who has the key of hall 4?"]


def ask(memory: CrabPath) -> dict[str, list[list]]:
    """Ids and scores of the answers to some questions in both namespaces."""
    return {
        f"{name}: {question}": [
            [document.node.id, round(float(document.score), 6)]
            for document in memory.retrieve(question, namespace=name, k=4).documents
        ]
        for name in ("ann", "bob")
        for question in QUESTIONS
    }


@pytest.mark.slow
def test_what_the_first_release_wrote_goes_on(old):
    """Answers, undo, snapshots and notes are as they were; its ids are free elsewhere."""
    place, vectors = old
    kept = Path(__file__).with_name("first_release") / "answers.json"
    answers = json.loads(kept.read_text())["postgresql" if "://" in place else "sqlite"]
    embedder = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(place, embeddings=embedder, vectors=vectors) as memory:
        feedback = memory.learning.feedback()
        assert {one.feedback_id for one in feedback} >= {"ann-up", "bob-up", "ann-edge", "nowhere"}
        assert ask(memory) == answers["before"]
        for what in ("later", "fix", "up", "edge"):
            assert memory.undo(f"ann-{what}", namespace="ann").status == "undone"
        assert ask(memory) == answers["after undo"]
        memory.namespaces.restore("before", namespace="ann")
        assert ask(memory) == answers["restored"]
        assert {note.id for note in memory.notes(namespace="bob")} > {"bob-note"}
        assert memory.teach("Bob has it.", id="ann-note", namespace="bob") == "ann-note"
        turn = memory.retrieve(QUESTIONS[0], namespace="ann").turn
        receipt = memory.record(Feedback(turn.id, 1.0, feedback_id="bob-up"))
        assert receipt.status == "applied"
        (note,) = (n for n in memory.notes(namespace="ann") if n.id == "ann-note")
        assert note.text == "ann has the key of hall 4."
    with CrabPath.open(place, embeddings=embedder, vectors=vectors) as memory:
        assert memory.undo("bob-up", namespace="ann").status == "undone"
        assert memory.undo("bob-up", namespace="bob").status == "undone"


def test_an_older_store_is_upgraded_with_all_that_it_holds(location, store, graph, make, later):
    graph.publish(make("a"))
    before = graph.contents()
    GraphStore(location).close()
    facts = read_facts(location)
    assert (facts["schema_version"], facts["upgraded"]) == (str(LATER), "once")
    after = graph.contents()
    changed = {("upgraded", "once"), ("schema_version", str(LATER))}
    assert set(after.pop(meta.name)) - set(before.pop(meta.name)) == changed
    assert after == before
    columns = {
        column["name"] for column in sa.inspect(get_engine(store)).get_columns("crabpath_staging")
    }
    assert "worker" in columns
    GraphStore(location).close()  # nothing is left to do
    assert read_facts(location) == facts


def test_a_store_of_a_later_release_is_refused_in_one_sentence(location, store, later, monkeypatch):
    GraphStore(location).close()
    monkeypatch.undo()
    with pytest.raises(SchemaVersionError) as error:
        GraphStore(location)
    assert str(error.value) == (
        f"the store has schema version {LATER}, but this release supports {SCHEMA_VERSION}: "
        "upgrade crabpath-retrievers"
    )


def test_an_upgrade_that_fails_changes_nothing(location, store, graph, make, monkeypatch):
    graph.publish(make("a"))
    before = graph.contents()

    def fail(op):
        upgrade(op)
        op.execute("INSERT INTO nowhere (name) VALUES ('upgraded')")

    run_later_release(monkeypatch, fail)
    with pytest.raises(StoreError, match="nowhere"):
        GraphStore(location)
    assert graph.contents() == before
    columns = sa.inspect(get_engine(store)).get_columns("crabpath_staging")
    assert "worker" not in {column["name"] for column in columns}


def test_the_doctor_says_how_an_older_store_is_upgraded_and_changes_nothing(location, store):
    older = str(SCHEMA_VERSION - 1)
    with get_engine(store).begin() as connection:
        given = meta.update().where(meta.c.name == "schema_version")
        connection.execute(given.values(value=older))
    (finding,) = [one for one in examine(location).findings if one.check == "schema"]
    assert (finding.severity, "crabpath info" in finding.fix) == ("warning", True)
    assert read_facts(location)["schema_version"] == older


def test_an_older_store_that_cannot_be_written_is_refused_in_one_sentence(postgres_store, later):
    with pytest.raises(StoreReadOnlyError, match="accepts no writes: open it once where"):
        GraphStore(f"{postgres_store}%20-cdefault_transaction_read_only%3Don")


@pytest.mark.slow
@pytest.mark.usefixtures("store")
def test_processes_that_start_together_upgrade_once(location):
    """All open it; the row that can be written once was written once."""
    command = [sys.executable, "-c", OPEN, location]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    started = [subprocess.Popen(command, text=True, cwd=ROOT, **pipes) for _ in range(3)]
    assert [one.stdout.readline() for one in started] == ["ready\n"] * 3
    for one in started:
        one.stdin.write("\n")
        one.stdin.flush()
    ended = [one.communicate(timeout=60) for one in started]
    assert [(said, one.returncode) for (said, _), one in zip(ended, started, strict=True)] == [
        (f"{LATER}\n", 0)
    ] * 3
    assert read_facts(location)["upgraded"] == "once"


@pytest.mark.sqlite
def test_threads_upgrade_different_stores_at_once(tmp_path, later, monkeypatch):
    places = [str(tmp_path / name) for name in "abc"]
    with monkeypatch.context() as patch:
        set_bounds(patch, schema_version=SCHEMA_VERSION)
        for place in places:
            GraphStore(place).close()
    together = threading.Barrier(len(places))

    def open_one(place: str) -> None:
        together.wait()
        GraphStore(place).close()

    with ThreadPoolExecutor(len(places)) as pool:
        list(pool.map(open_one, places))
    assert [read_facts(place)["upgraded"] for place in places] == ["once"] * 3


def test_opening_a_store_of_this_version_does_not_import_alembic(tmp_path):
    code = (
        "import sys; from crabpath_retrievers.storage import GraphStore; "
        "GraphStore(sys.argv[1]).close(); GraphStore(sys.argv[1]).close(); "
        "print('alembic' in sys.modules)"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "memory")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "False\n"
