"""One broken store for every finding; looking changes none of them."""

import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from contextlib import closing
from pathlib import Path

import chromadb
import pytest
import tables
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import ConfigurationError, CrabPath, Feedback
from crabpath_retrievers.core.graph import compute_hub_level
from crabpath_retrievers.maintenance.doctor import examine
from crabpath_retrievers.storage.store import SCHEMA_VERSION
from crabpath_retrievers.vectors.chroma_files import read_collections
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

PLAIN = DeterministicFakeEmbedding(size=16)


def found(place, **given):
    """What is found: (check, severity) and messages; not a byte is changed by looking."""
    path = getattr(place, "path", place)
    files = place.files() if hasattr(place, "files") else None
    diagnosis = examine(path, **{"embeddings": PLAIN, **given})
    if files is not None:
        assert place.files() == files
    assert diagnosis.broken == any(one.severity == "error" for one in diagnosis.findings)
    assert all(one.message and one.fix for one in diagnosis.findings)
    return {(one.check, one.severity): one for one in diagnosis.findings}


def only(place, check, severity, **given):
    """The one finding there is."""
    findings = found(place, **given)
    assert list(findings) == [(check, severity)], findings
    return findings[check, severity]


def test_a_sound_memory(place):
    """Nothing is found, and everything was looked at."""
    diagnosis = examine(place.path, embeddings=PLAIN)
    assert (diagnosis.findings, diagnosis.broken, len(diagnosis.checked)) == ((), False, 15)
    assert found(place) == {}


def test_an_empty_memory_is_sound(tmp_path):
    """One that was opened and got no documents."""
    CrabPath.open(tmp_path / "m", embeddings=PLAIN).close()
    assert found(tmp_path / "m") == {}


def test_a_memory_that_is_in_use(place):
    """Its files are read beside the process that has it, also what that one has just written."""
    with place.open() as memory:
        memory.add_documents([Document("Text of Page 1.", id="new")], cleanup=None, progress=None)
        memory.index.delete(["d5"])
        findings = examine(place.path, embeddings=PLAIN).findings
    assert [(one.check, one.severity) for one in findings] == [
        ("vectors", "error"),
        ("vectors", "info"),
    ]
    assert findings[0].message == "1 chunks are missing in the vector index: d5"
    assert "a process uses" in findings[1].message


class TestPlace:
    """Where the memory should be."""

    def test_missing(self, tmp_path):
        """A path with nothing there stays so."""
        finding = only(tmp_path / "none", "place", "error")
        assert "there is no memory at" in finding.message
        assert list(tmp_path.iterdir()) == []

    def test_a_file(self, tmp_path):
        """A file in place of a directory."""
        (tmp_path / "file").write_text("mine")
        assert "is not a directory" in only(tmp_path / "file", "place", "error").message

    def test_without_graph_store(self, place):
        """Vectors alone are half a memory."""
        (place.path / "graph.sqlite").unlink()
        assert "holds no graph.sqlite, but other files" in only(place, "place", "error").message

    def test_begun_and_never_made(self, tmp_path):
        """A kill between making the file and its tables."""
        tmp_path.chmod(0o700)
        (tmp_path / "graph.sqlite").touch(0o600)
        assert "creating the memory was interrupted" in only(tmp_path, "place", "error").message

    def test_unreadable(self):
        """Another user looks."""
        program = (
            "import os, sys\nfrom crabpath_retrievers.maintenance.doctor import examine\n"
            "if os.geteuid() == 0:\n    os.setuid(65534)\n"
            "print(*[f.message for f in examine(sys.argv[1]).findings])"
        )
        made = Path(tempfile.mkdtemp())
        try:
            (made / "graph.sqlite").write_text("x")
            made.chmod(0o000)
            command = [sys.executable, "-c", program, str(made)]
            told = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        finally:
            made.chmod(0o700)
            shutil.rmtree(made)
        assert told == f"this user cannot read and write {made}\n"

    def test_others_may_read(self, place):
        """A file is exposed when the directories above it are, too."""
        (place.path / "graph.sqlite").chmod(0o644)
        assert found(place) == {}
        place.path.chmod(0o755)
        finding = only(place, "permissions", "warning")
        assert finding.message.endswith(f"{place.path / 'graph.sqlite'}")
        assert finding.fix == f"run `chmod -R go-rwx {place.path}`"

    @pytest.mark.parametrize(("free", "severity"), [(2**20, "error"), (50 * 2**20, "warning")])
    def test_full_disk(self, place, monkeypatch, free, severity):
        """Little room, and none."""
        usage = shutil.disk_usage(place.path)._replace(free=free)
        monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
        assert f"{free / 2**20:.0f} MiB of disk space are" in only(place, "disk", severity).message

    def test_no_path(self):
        """An empty path is no finding but unusable input."""
        with pytest.raises(ConfigurationError, match="the path is empty"):
            examine("")


class TestDatabase:
    """The graph store by itself."""

    def test_not_a_database(self, place):
        """Other bytes in its place."""
        (place.path / "graph.sqlite").write_bytes(b"not a database" * 500)
        assert "file is not a database" in only(place, "schema", "error").message

    def test_damaged(self, place):
        """Pages in the middle are overwritten."""
        file = place.path / "graph.sqlite"
        data = bytearray(file.read_bytes())
        data[4096 * 20 : 4096 * 60] = b"\xff" * 4096 * 40
        file.write_bytes(data)
        findings = found(place)
        assert ("integrity", "error") in findings or ("schema", "error") in findings
        assert len(findings) == 1

    def test_without_tables(self, place):
        """Half of a memory: no table says its version."""
        place.sql(f"DROP TABLE {tables.meta}")
        assert "contains no memory, or an incomplete one" in only(place, "schema", "error").message

    def test_a_table_is_lost(self, place):
        """Each is named."""
        place.sql(f"DROP TABLE {tables.usage}")
        assert f"lacks {tables.usage}" in only(place, "integrity", "error").message

    def test_locked(self, place):
        """A process that lets nobody else read."""
        with closing(sqlite3.connect(place.path / "graph.sqlite", isolation_level=None)) as other:
            other.execute("PRAGMA locking_mode=EXCLUSIVE")
            other.execute("BEGIN EXCLUSIVE")
            other.execute(f"UPDATE {tables.meta} SET value = value")
            finding = only(place.path, "schema", "error")
        assert "is busy" in finding.message
        assert finding.fix.startswith("end the process")

    @pytest.mark.parametrize(
        ("row", "message", "fix"),
        [
            (f"value = '{SCHEMA_VERSION + 1}'", "schema version 2", "upgrade crabpath-retrievers"),
            ("name = 'schema', value = '8'", "before the first release", "add the documents"),
        ],
    )
    def test_another_schema(self, place, row, message, fix):
        """Neither a newer store is read, nor one from before the first release."""
        place.sql(f"UPDATE {tables.meta} SET {row} WHERE name = 'schema_version'")
        finding = only(place, "schema", "error")
        assert message in finding.message
        assert finding.fix.startswith(fix)

    def test_rows_of_nothing(self, place):
        """Edges, weights and texts of a node that is gone."""
        (((key,),)) = place.sql(f"SELECT key FROM {tables.nodes} WHERE id = 'd7'")
        place.sql(f"DELETE FROM {tables.nodes} WHERE key = {key}")
        findings = [
            f for f in examine(place.path, embeddings=PLAIN).findings if f.check == "references"
        ]
        assert {f.message.split()[3] for f in findings} >= {tables.edges.name, tables.contents.name}
        assert all(f.severity == "error" for f in findings)

    def test_counts_and_names_of_nothing(self, place):
        """Every table that refers to nodes is looked at, not only edges and texts."""
        place.sql(f"INSERT INTO {tables.usage} VALUES (1, 999999, 1, 0, 0)")
        place.sql(f"INSERT INTO {tables.names} VALUES ('nobody', 999999)")
        findings = examine(place.path, embeddings=PLAIN).findings
        assert {f.message.split()[3] for f in findings} == {tables.usage.name, tables.names.name}

    def test_an_interrupted_ingest(self, place):
        """What it left is told, and explains vectors that belong to no chunk."""
        with place.open() as memory:
            memory.index.upsert(["late"], [memory.embedder.query("x")], ["x"], [{}])
        place.sql(f"INSERT INTO {tables.staging}(id, operation) VALUES ('late', 'put')")
        assert "1 chunks are waiting" in only(place, "unfinished", "warning").message

    def test_a_text_that_no_word_finds(self, place):
        """It is lost from the full-text index."""
        place.sql("DELETE FROM crabpath_fulltext WHERE rowid = 3")
        assert "1 chunks are missing in the full-text" in only(place, "full text", "error").message

    def test_counters_that_are_off(self, place):
        """Words are weighed by them."""
        place.sql(f"UPDATE {tables.meta} SET value = '7' WHERE name = 'nodes'")
        message = only(place, "statistics", "warning").message
        assert message.startswith("the counter says 7 chunks, there are 40")

    def test_levels_that_are_off(self, place):
        """A hub that is none."""
        hub = next(f"d{n}" for n in range(40) if compute_hub_level(f"d{n}"))
        place.sql(f"UPDATE {tables.nodes} SET level = 0 WHERE id = '{hub}'")
        assert "1 chunks have a level that does not" in only(place, "regions", "warning").message

    def test_hubs_that_nobody_is_told_of(self, place):
        """Queries read the count, not the hubs."""
        place.sql(f"DELETE FROM {tables.meta} WHERE name = 'hubs'")
        assert "queries ignore them" in only(place, "regions", "warning").message

    def test_chunks_without_pointers(self, place):
        """They are no fault."""
        with place.open() as memory:
            memory.add_documents([Document("Zebra.", id="z")], cleanup=None, progress=None)
        assert only(place, "orphans", "info").message.startswith("1 chunks have no text edges")

    def test_frozen_namespaces(self, place):
        """By name."""
        with place.open() as memory:
            memory.namespaces.freeze("ann")
        assert only(place, "namespaces", "info").message.endswith("learn nothing: ann")

    def test_feedback_that_waits(self, place):
        """A day is long."""
        row = f"INSERT INTO {tables.feedback}(id, created, payload, status) VALUES"
        place.sql(f"{row} ('f', {time.time()}, '{{}}', 'waiting')")
        assert only(place, "feedback", "info").fix == "run `crabpath learn`"
        place.sql(f"UPDATE {tables.feedback} SET created = 5 WHERE id = 'f'")
        assert "more than a day" in only(place, "feedback", "warning").message

    def test_feedback_that_was_refused(self, place):
        """The note says why."""
        with place.open() as memory:
            memory.record(Feedback("nobody's turn", 1.0))
        assert only(place, "feedback", "info").message.startswith("1 feedback records were refused")


class TestVectors:
    """The vector index against the graph store."""

    def test_gone(self, place):
        """The whole directory."""
        shutil.rmtree(place.path / "vectors")
        message = only(place, "vectors", "error").message
        assert message.startswith(f"there are no vectors at {place.path / 'vectors'}: 40 chunks")

    def test_unreadable(self, place):
        """Other bytes in the place of Chroma's catalogue."""
        (place.path / "vectors" / "chroma.sqlite3").write_bytes(b"rubbish" * 999)
        message = only(place, "vectors", "error").message
        assert message.endswith(
            "cannot be read (chroma.sqlite3 is damaged (file is not a database))"
        )

    def test_missing_and_surplus(self, place):
        """Both are named."""
        with place.open() as memory:
            memory.index.delete([f"d{n}" for n in range(5)])
            memory.index.upsert(["stranger"], [memory.embedder.query("x")], ["x"], [{}])
        findings = found(place)
        assert set(findings) == {("vectors", "error"), ("vectors", "warning")}
        missing, surplus = findings["vectors", "error"], findings["vectors", "warning"]
        assert missing.message == "5 chunks are missing in the vector index: d0, d1, d2 and 2 more"
        assert surplus.message.startswith("1 vectors belong to no chunk")
        assert surplus.message.endswith(": stranger")

    def test_without_collection(self, place):
        """As an empty Chroma that was made in its place."""
        shutil.rmtree(place.path / "vectors")
        client = chromadb.PersistentClient(str(place.path / "vectors"))
        client.create_collection("other")
        client.close()
        assert "40 chunks are missing in the vector" in only(place, "vectors", "error").message

    @pytest.mark.parametrize("kind", ["episodes", "notes"])
    def test_what_is_remembered_is_not_found(self, place, kind):
        """Their collections are lost; what waits to be indexed is not missed."""
        with place.open() as memory:
            memory.teach("Bees keep Ann.", namespace="ann")
        assert found(place) == {}
        place.sql(f"UPDATE crabpath_{kind} SET indexed = 1")
        client = chromadb.PersistentClient(str(place.path / "vectors"))
        for collection in client.list_collections():
            if collection.name.startswith(f"crabpath-{kind}"):
                client.delete_collection(collection.name)
        client.close()
        assert f"1 {kind} are missing in their vector" in only(place, "vectors", "warning").message

    def test_elsewhere(self, place, tmp_path):
        """The directory that is given is looked at, or a client is asked."""
        shutil.move(place.path / "vectors", tmp_path / "v")
        assert found(place, vectors=tmp_path / "v") == {}
        client = chromadb.PersistentClient(str(tmp_path / "v"))
        assert found(place, vectors=client) == {}
        client.get_collection("crabpath").delete(ids=["d1"])
        assert "in the vector index: d1" in only(place, "vectors", "error", vectors=client).message
        client.close()

    def test_a_server_that_is_away(self, place):
        """It is told, without a traceback."""

        class Away:
            def list_collections(self):
                msg = "no route to host"
                raise ConnectionError(msg)

        finding = only(place, "vectors", "error", vectors=Away())
        assert "the Chroma server failed: no route to host" in finding.message

    def test_the_files_say_what_chroma_says(self, tmp_path):
        """Also of what waits in its queue: added, replaced, deleted, added again."""
        client = chromadb.PersistentClient(str(tmp_path))
        one, two = client.create_collection("one"), client.create_collection("two")
        ids = [f"x{n}" for n in range(2000)]
        one.upsert(ids=ids, embeddings=[[1.0, n] for n in range(2000)])
        two.upsert(ids=["x1"], embeddings=[[1.0, 2.0]])
        one.delete(ids=ids[:1500])
        one.upsert(ids=ids[:10], embeddings=[[2.0, n] for n in range(10)])
        read = read_collections(tmp_path)
        assert {name: of.ids for name, of in read.items()} == {
            "one": {*ids[:10], *ids[1500:]},
            "two": {"x1"},
        }
        for collection in (one, two):
            assert read[collection.name].ids == set(collection.get(include=[])["ids"])
            assert read_collections(tmp_path)[collection.name] == read[collection.name]
        client.close()

    def test_a_queue_that_was_not_taken_over(self, place):
        """As a kill right after a write leaves it."""
        with closing(sqlite3.connect(place.path / "vectors" / "chroma.sqlite3")) as chroma, chroma:
            (topic,) = chroma.execute("SELECT DISTINCT topic FROM embeddings_queue").fetchone()
            row = "INSERT INTO embeddings_queue(operation, topic, id) VALUES"
            chroma.execute(f"{row} (2, '{topic}', 'z'), (3, '{topic}', 'd9')")
        findings = found(place)
        assert findings["vectors", "error"].message.endswith(": d9")
        assert findings["vectors", "warning"].message.endswith(": z")


class Broken(DeterministicFakeEmbedding):
    """An embedder whose service is away."""

    def embed_documents(self, texts):
        """Fail."""
        msg = "no key"
        raise RuntimeError(msg)


class TestEmbedder:
    """What the store was built with."""

    def test_another_one(self, place):
        """One that is given and differs is refused by the store, too."""
        other = DeterministicFakeEmbedding(size=8)
        assert "16 dimensions, not 8" in only(place, "embedder", "error", embeddings=other).message

    def test_that_of_the_commands(self, place):
        """They use another model; the store itself is sound."""
        finding = only(place, "embedder", "warning", embeddings=None)
        assert "was built with 'DeterministicFakeEmbedding'" in finding.message

    def test_the_same_name_for_another_model(self, place, monkeypatch):
        """The default model is asked, not believed by its name."""
        module = "crabpath_retrievers.vectors.embedder.load_default_embeddings"
        monkeypatch.setattr(module, lambda: DeterministicFakeEmbedding(size=384))
        place.sql(
            f"UPDATE {tables.meta} SET value = replace(value, 'DeterministicFakeEmbedding', "
            f"'{DEFAULT_MODEL}') WHERE name = 'embedder'"
        )
        assert "16 dimensions, not 384" in only(place, "embedder", "error", embeddings=None).message

    def test_that_does_not_answer(self, place):
        """The store is not to blame."""
        finding = only(place, "embedder", "warning", embeddings=Broken(size=16))
        assert "RuntimeError: no key" in finding.message

    @pytest.mark.parametrize(
        "said",
        [
            f"DELETE FROM {tables.meta} WHERE name = 'embedder'",
            f"UPDATE {tables.meta} SET value = '{{}}' WHERE name = 'embedder'",
        ],
    )
    def test_unknown(self, place, said):
        """No identity is stored, or none that can be read."""
        place.sql(said)
        assert "does not record which embedder" in only(place, "embedder", "error").message

    def test_vectors_of_another_size(self, place):
        """Some of the nodes were embedded by something else."""
        place.sql(f"UPDATE {tables.nodes} SET embedding = x'0000' WHERE id IN ('d1', 'd2')")
        assert "the dimension of 2 vectors is not" in only(place, "embedder", "error").message


class TestUrl:
    """Stores at a URL."""

    def test_postgresql(self, postgres_url, tmp_path):
        """The same checks, in a transaction that cannot write; its password is not shown."""
        with CrabPath.open(postgres_url, vectors=tmp_path / "v", embeddings=PLAIN) as memory:
            memory.add_documents([Document("Zebra.", id="z")], progress=None)
            memory.namespaces.freeze("ann")
        findings = found(postgres_url, vectors=tmp_path / "v")
        assert set(findings) == {("orphans", "info"), ("namespaces", "info")}
        findings = found(postgres_url)
        assert "a database URL does not say" in findings["vectors", "info"].message

    def test_a_schema_without_memory(self, postgres_url):
        """No table is made in it."""
        for _ in range(2):
            assert "contains no memory" in only(postgres_url, "schema", "error").message

    def test_nobody_there(self):
        """The database is down."""
        diagnosis = examine("postgresql+psycopg://me:secret@127.0.0.1:1/x")
        (finding,) = diagnosis.findings
        assert "cannot be reached" in finding.message
        assert finding.fix.startswith("start the database")
        assert "secret" not in str(diagnosis.to_dict())

    def test_a_file_of_sqlite(self, place):
        """Its directory may be called otherwise."""
        url = f"sqlite:///{place.path / 'graph.sqlite'}"
        assert found(url, vectors=place.path / "vectors") == {}
        assert "no memory at" in only("sqlite:////nowhere/at/all.db", "place", "error").message

    @pytest.mark.parametrize("url", ["mysql://localhost/x", "sqlite://", "a://://", "x://y:z"])
    def test_that_cannot_be_used(self, url):
        """A sentence says what can."""
        assert only(url, "place", "error").fix == "correct the URL"
