"""A whole memory travels: it answers as before, and nothing of it is lost or given again."""

import stat
import zipfile
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import tables
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from learned_memory import EMBEDDINGS, answered, corpus, rows, teach

from crabpath_retrievers import CrabPath, InvalidInputError, Node, StoreError, migrate
from crabpath_retrievers.parts.operation.transfer.export import open_dump
from crabpath_retrievers.storage import GraphStore
from tests.seams import make_change


@pytest.mark.slow
@pytest.mark.both_databases
def test_it_answers_as_before(learned, taught, open_memory, location, tmp_path):
    """Every row comes back, through each database; results are the same, to the last bit."""
    there = open_memory(location)
    found = there.transfer.import_archive(taught.whole)
    assert (found.namespace, found.before, found.rows["nodes"]) == (None, False, 41)
    again = there.transfer.export(tmp_path / "again").path
    back = open_memory(tmp_path / "back")
    back.transfer.import_archive(again)
    assert rows(back.store) == rows(there.store) == rows(learned.store)
    assert answered(back) == answered(learned)


def test_what_tuning_has_tried_goes_along(learned, open_memory, tmp_path):
    """A memory that was tuned is imported with its knobs and the history of its tuning."""
    learned.maintenance.set_knobs(half_life=900.0)
    learned.maintenance.tune()
    learned.maintenance.set_knobs(half_life=800.0)
    there = open_memory(tmp_path / "there")
    there.transfer.import_archive(learned.transfer.export(tmp_path / "tuned").path)
    known = learned.store.learned.get_tuning("default")
    assert there.store.learned.get_tuning("default") == known != (None, None)
    assert there.maintenance.knobs().half_life == 800.0


def test_no_key_is_given_a_second_time(learned, open_memory, location, tmp_path):
    """Not even that of a document, namespace or feedback which was gone before it was exported."""
    learned.retrieve("What?", namespace="alice")
    learned.forget(namespace="alice")
    learned.add_documents([Document("Gone.", id="gone")], split=False)
    learned.forget("gone")
    there = open_memory(location)
    there.transfer.import_archive(learned.transfer.export(tmp_path / "all").path)
    there.add_documents([Document("New.", id="new")], split=False)
    there.retrieve("What?", namespace="bob")
    assert there.store.learned.keys(["new"])["new"] == 43
    there.store.flush()
    assert there.store.walk.get_clock("bob").key == 3


def test_an_interrupted_index_is_made_up_for(taught, learned, open_memory, tmp_path):
    """Whatever ends the import after its transaction, the next open goes on."""
    vectors = InMemoryVectorStore(EMBEDDINGS)
    there = open_memory(tmp_path / "there", vectors=vectors)

    def away(*_columns):
        message = "the server is gone"
        raise StoreError(message)

    there.index.upsert = away
    with pytest.raises(StoreError, match="is gone"):
        there.transfer.import_archive(taught.whole)
    there.close()
    assert not vectors.store
    again = open_memory(tmp_path / "there", vectors=vectors)
    assert len(vectors.store) == 40
    assert not again.store.catalog.has_unfinished_ingest()
    assert again.transfer.import_archive(taught.whole).before
    assert answered(again) == answered(learned)


@pytest.mark.both_databases
def test_a_failure_in_between_leaves_nothing(learned, open_memory, location):
    """One transaction: what breaks it off leaves an empty store."""
    with open_dump(learned.store) as dump:
        blocks, last = list(dump.blocks()), dump.get_last_keys()

    def broken():
        yield from blocks[: len(blocks) // 2]
        message = "the source is gone"
        raise StoreError(message)

    store = open_memory(location).store
    before, meta = store.catalog.statistics(), store.catalog.meta()
    with pytest.raises(StoreError, match="source is gone"):
        store.apply([make_change("import_store", broken(), last, "x")])
    assert store.catalog.statistics() == before
    assert store.catalog.meta() == meta
    store.apply([make_change("import_store", blocks, last, "x")])
    assert store.catalog.statistics() == learned.store.catalog.statistics()


def test_only_an_empty_memory_takes_a_whole_one(taught, open_memory, tmp_path):
    """One that holds documents, or whose index holds vectors, is left as it is."""
    other = open_memory(tmp_path / "other", documents=3)
    before = other.info()
    with pytest.raises(InvalidInputError, match="holds a memory already"):
        other.transfer.import_archive(taught.whole)
    assert other.info() == before
    with CrabPath.open(tmp_path / "third", embeddings=EMBEDDINGS) as third:
        third.index.upsert(["x"], [np.ones(16, dtype=np.float32)], [""], [{}])
        with pytest.raises(InvalidInputError, match="holds 1 vectors already: choose an empty"):
            third.transfer.import_archive(taught.whole)
        assert third.info()["nodes"] == 0


def test_it_shows_one_moment(learned, open_memory, location):
    """What is asked and learned while it is read does not enter it."""
    with open_dump(learned.store) as dump:
        store = open_memory(location)
        store.transfer.copy_from(dump, "one")
    before = rows(store.store)
    with open_dump(store.store) as dump:
        turns = dump.select_all()["turns"]
        store.retrieve("Another question?")
        store.store.flush()
        store.add_documents([Document("More.", id="more")], split=False)
        assert sum(map(len, dump.rows("turns", turns))) == len(before["turns"])
        assert dump.counts()["nodes"] == 41
    assert len(rows(store.store)["turns"]) == len(before["turns"]) + 1


def test_documents_half_added(learned, tmp_path):
    """They are finished first; the archive would hold halves."""
    node = Node("x", "x", "x", "Half.", vector=np.ones(16, dtype=np.float32))
    learned.store.apply([make_change("stage_nodes", (node,))])
    with pytest.raises(StoreError, match="half added: open the memory once"):
        learned.transfer.export(tmp_path / "half")
    assert list(tmp_path.glob("*half*")) == []


def test_the_file_is_private_and_never_half_written(learned, tmp_path, monkeypatch):
    """A failure leaves the archive that was there; other files are not replaced."""
    path = tmp_path / "all"
    learned.transfer.export(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    before = path.read_bytes()
    learned.retrieve("Another question?")
    with monkeypatch.context() as patched:
        gone = Mock(side_effect=StoreError("the database is gone"))
        patched.setattr("crabpath_retrievers.parts.operation.transfer.export.Dump.rows", gone)
        with pytest.raises(StoreError, match="gone"):
            learned.transfer.export(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["all"]
    learned.transfer.export(path)
    assert path.read_bytes() != before
    other = tmp_path / "thesis.txt"
    other.write_text("Ten years of work.")
    with pytest.raises(InvalidInputError, match=r"thesis.txt exists and is not an archive"):
        learned.transfer.export(other)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        learned.transfer.export(tmp_path / "no" / "such" / "folder")


def test_a_table_that_is_new_travels_or_stays_on_purpose(learned, tmp_path):
    """Whoever adds a table of namespaces decides whether it travels with one."""
    learned.transfer.export(tmp_path / "all")
    learned.transfer.export(tmp_path / "one", namespace="default")
    held = []
    for path in (tmp_path / "all", tmp_path / "one"):
        with zipfile.ZipFile(path) as archive:
            held.append({Path(name).stem for name in archive.namelist() if "jsonl" in name})
    whole, travels = held
    columns = {
        name.removeprefix("crabpath_"): {*table.c.keys()}
        for name, table in tables.metadata.tables.items()
    }
    owned = {name for name in whole if {"namespace", "owner"} & columns.get(name, set())}
    assert owned - travels == {"snapshots", "journal", "health_reports"}


@pytest.mark.slow
def test_migration_there_and_back(learned, postgres_url, tmp_path):
    """By one command to another database and back; again it changes nothing."""
    learned.close()
    vectors = str(tmp_path / "vectors")
    migrate(tmp_path / "learned", postgres_url, vectors=vectors)
    assert migrate(tmp_path / "learned", postgres_url, vectors=vectors).before
    migrate(postgres_url, tmp_path / "back")
    stores = [GraphStore(tmp_path / "learned"), GraphStore(tmp_path / "back")]
    assert rows(stores[0]) == rows(stores[1])
    for store in stores:
        store.close()


@pytest.mark.slow
def test_vectors_go_to_another_index(tmp_path):
    """The graph store stays where it is."""
    with CrabPath.open(tmp_path / "here", embeddings=EMBEDDINGS) as memory:
        memory.add_documents(corpus(), split=False)
        teach(memory)
        before = answered(memory)
    with pytest.raises(InvalidInputError, match="the new location of the vectors"):
        migrate(tmp_path / "here", tmp_path / "x" / ".." / "here")
    other = str(tmp_path / "other")
    assert migrate(tmp_path / "here", tmp_path / "here", vectors=other).rows == {"vectors": 40}
    with CrabPath.open(tmp_path / "here", embeddings=EMBEDDINGS, vectors=other) as memory:
        assert answered(memory) == before
        assert memory.index.open_sibling("notes-1").count() == 1
