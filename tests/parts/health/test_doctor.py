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

from crabpath_retrievers import ConfigurationError, CrabPath, Feedback, examine
from crabpath_retrievers.core.records import compute_hub_level
from crabpath_retrievers.storage import SCHEMA_VERSION
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

PLAIN = DeterministicFakeEmbedding(size=16)


def look(place, **given):
    """What is found, by check and severity; not a byte is changed by looking."""
    path = getattr(place, "path", place)
    files = place.files() if hasattr(place, "files") else None
    diagnosis = examine(path, **{"embeddings": PLAIN, **given})
    if files is not None:
        assert place.files() == files
    assert diagnosis.broken == any(one.severity == "error" for one in diagnosis.findings)
    assert all(one.message and one.fix for one in diagnosis.findings)
    return {(one.check, one.severity): one for one in diagnosis.findings}


def find_only(place, check, severity, **given):
    findings = look(place, **given)
    assert list(findings) == [(check, severity)], findings
    return findings[check, severity]


def interrupt_ingest(place):
    """What it left explains vectors that belong to no chunk."""
    with place.open() as memory:
        memory.index.upsert(["late"], [memory.embedder.query("x")], ["x"], [{}])
    place.sql(f"INSERT INTO {tables.staging}(id, operation) VALUES ('late', 'put')")


def replace_chroma(place):
    shutil.rmtree(place.path / "vectors")
    client = chromadb.PersistentClient(str(place.path / "vectors"))
    client.create_collection("other")
    client.close()


def write(file, content=b""):
    return lambda place: (place.path / file).write_bytes(content)


def use(act):
    def opened(place):
        with place.open() as memory:
            act(memory)

    return opened


def add_zebra(memory):
    memory.add_documents([Document("Zebra.", id="z")], cleanup=None, progress=None)


HUB = next(f"d{n}" for n in range(40) if compute_hub_level(f"d{n}"))
RESTORE = "restore graph.sqlite from a backup; or, to start over, move"
META = f"UPDATE {tables.meta} SET"
FEEDBACK = (
    f"INSERT INTO {tables.feedback}(id, payload, status, created) VALUES ('f', '{{}}', 'waiting',"
)
# What broke it: SQL, or a function of the place; then check, severity, message and fix.
BROKEN = [
    (
        lambda place: (place.path / "graph.sqlite").unlink(),
        *("place", "error", "but other files, among them 40 vectors", RESTORE),
    ),
    (write("graph.sqlite"), "place", "error", "is empty, but there are 40 vectors", RESTORE),
    (write("graph.sqlite", b"not a database" * 500), "schema", "error", "file is not a database"),
    (f"DROP TABLE {tables.meta}", "schema", "error", "contains no memory, or an incomplete one"),
    (
        f"{META} value = '{SCHEMA_VERSION + 1}' WHERE name = 'schema_version'",
        *("schema", "error", f"schema version {SCHEMA_VERSION + 1}", "upgrade crabpath-retrievers"),
    ),
    (
        f"{META} name = 'schema', value = '8' WHERE name = 'schema_version'",
        *("schema", "error", "before the first release", "add the documents"),
    ),
    (f"DROP TABLE {tables.usage}", "integrity", "error", f"lacks {tables.usage}"),
    (
        "DELETE FROM crabpath_fulltext WHERE rowid = 3",
        *("full text", "error", "1 chunks are missing in the full-text"),
    ),
    (
        lambda place: shutil.rmtree(place.path / "vectors"),
        *("vectors", "error", "there are no vectors at PLACE/vectors: 40 chunks"),
    ),
    (
        write("vectors/chroma.sqlite3", b"rubbish" * 999),
        *(
            "vectors",
            "error",
            "cannot be read (chroma.sqlite3 is damaged (file is not a database))",
        ),
    ),
    (replace_chroma, "vectors", "error", "40 chunks are missing in the vector"),
    *(
        (sql, "embedder", "error", "does not record which embedder")
        for sql in (
            f"DELETE FROM {tables.meta} WHERE name = 'embedder'",
            f"{META} value = '{{}}' WHERE name = 'embedder'",
        )
    ),
    (
        f"UPDATE {tables.nodes} SET embedding = x'0000' WHERE id IN ('d1', 'd2')",
        *("embedder", "error", "the dimension of 2 vectors is not"),
    ),
    (interrupt_ingest, "unfinished", "warning", "1 chunks are waiting"),
    (
        f"{META} value = '7' WHERE name = 'nodes'",
        *("statistics", "warning", "the counter says 7 chunks, there are 40"),
    ),
    (
        f"UPDATE {tables.nodes} SET level = 0 WHERE id = '{HUB}'",
        *("regions", "warning", "1 chunks have a level that does not"),
    ),
    (f"DELETE FROM {tables.meta} WHERE name = 'hubs'", "regions", "warning", "queries ignore them"),
    (f"{FEEDBACK} 5)", "feedback", "warning", "more than a day"),
    (use(add_zebra), "orphans", "info", "1 chunks have no text edges"),
    (use(lambda m: m.namespaces.freeze("ann")), "namespaces", "info", "learn nothing: ann"),
    (f"{FEEDBACK} {time.time()})", "feedback", "info", "", "run `crabpath learn`"),
    (
        use(lambda memory: memory.record(Feedback("nobody's turn", 1.0))),
        *("feedback", "info", "1 feedback records were refused"),
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: f"{broken[1]} {broken[3]}")
def test_what_is_wrong_is_found(place, broken):
    break_it, check, severity, message, *fix = broken
    place.sql(break_it) if isinstance(break_it, str) else break_it(place)
    finding = find_only(place, check, severity)
    assert message.replace("PLACE", str(place.path)) in finding.message
    assert finding.fix.startswith(tuple(fix) or "")


def test_sound_memories(place, tmp_path):
    """One may be empty."""
    assert look(place) == {}
    CrabPath.open(tmp_path / "m", embeddings=PLAIN).close()
    assert look(tmp_path / "m") == {}


def test_a_memory_that_is_in_use(place):
    """Its files are read beside the process that has it, also what that one has just written."""
    with place.open() as memory:
        memory.add_documents([Document("Text of Page 1.", id="new")], cleanup=None, progress=None)
        memory.index.delete(["d5"])
        error, info = examine(place.path, embeddings=PLAIN).findings
    assert (error.check, error.severity) == ("vectors", "error")
    assert (info.check, info.severity) == ("vectors", "info")
    assert error.message == "1 chunks are missing in the vector index: d5"
    assert "a process uses" in info.message


def test_where_no_memory_is(tmp_path):
    """Nothing there, a file in place of a directory, and one that was begun and never made."""
    missing = find_only(tmp_path / "none", "place", "error")
    assert "there is no memory at" in missing.message
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("mine")
    assert "is not a directory" in find_only(tmp_path / "file", "place", "error").message
    (tmp_path / "file").unlink()
    tmp_path.chmod(0o700)
    (tmp_path / "graph.sqlite").touch(0o600)
    assert "creating the memory was interrupted" in find_only(tmp_path, "place", "error").message
    assert "no memory at" in find_only("sqlite:////nowhere/at/all.db", "place", "error").message
    with pytest.raises(ConfigurationError, match="the path is empty"):
        examine("")


@pytest.mark.slow
def test_a_directory_of_another_user():
    program = (
        "import os, sys\n"
        "from crabpath_retrievers.parts.operation.maintenance.doctor import examine\n"
        "if os.geteuid() == 0:\n    os.setuid(65534)\n"
        "print(*[f.message for f in examine(sys.argv[1]).findings])"
    )
    made = Path(tempfile.mkdtemp())
    try:
        (made / "graph.sqlite").write_text("x")
        made.chmod(0o000)
        command = [sys.executable, "-c", program, str(made)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    finally:
        made.chmod(0o700)
        shutil.rmtree(made)
    assert output == f"this user cannot read and write {made}\n"


def test_others_may_read(place):
    """A file is exposed when the directories above it are, too."""
    (place.path / "graph.sqlite").chmod(0o644)
    assert look(place) == {}
    place.path.chmod(0o755)
    finding = find_only(place, "permissions", "warning")
    assert finding.message.endswith(f"{place.path / 'graph.sqlite'}")
    assert finding.fix == f"run `chmod -R go-rwx {place.path}`"


@pytest.mark.parametrize(("free", "severity"), [(2**20, "error"), (50 * 2**20, "warning")])
def test_full_disk(place, monkeypatch, free, severity):
    usage = shutil.disk_usage(place.path)._replace(free=free)
    monkeypatch.setattr("shutil.disk_usage", lambda _: usage)
    assert f"{free / 2**20:.0f} MiB of disk space are" in find_only(place, "disk", severity).message


@pytest.mark.slow
def test_a_process_that_lets_nobody_else_read(place):
    with closing(sqlite3.connect(place.path / "graph.sqlite", isolation_level=None)) as other:
        other.execute("PRAGMA locking_mode=EXCLUSIVE")
        other.execute("BEGIN EXCLUSIVE")
        other.execute(f"UPDATE {tables.meta} SET value = value")
        finding = find_only(place.path, "schema", "error")
    assert "is busy" in finding.message
    assert finding.fix.startswith("end the process")


def test_rows_of_nodes_that_are_gone(place):
    """Every table that refers to nodes is looked at, not only edges and texts."""
    place.sql(
        f"DELETE FROM {tables.nodes} WHERE id = 'd7'",
        f"INSERT INTO {tables.usage} VALUES (1, 999999, 1, 0, 0)",
        f"INSERT INTO {tables.names} VALUES ('nobody', 999999)",
    )
    findings = examine(place.path, embeddings=PLAIN).findings
    findings = [one for one in findings if one.check == "references"]
    found = (tables.edges, tables.contents, tables.usage, tables.names)
    assert {one.message.split()[3] for one in findings} >= {table.name for table in found}
    assert all(one.severity == "error" for one in findings)


def test_vectors_that_are_missing_and_surplus(place):
    with place.open() as memory:
        memory.index.delete([f"d{n}" for n in range(5)])
        memory.index.upsert(["stranger"], [memory.embedder.query("x")], ["x"], [{}])
    findings = look(place)
    missing, surplus = findings.pop(("vectors", "error")), findings.pop(("vectors", "warning"))
    assert findings == {}
    assert missing.message == "5 chunks are missing in the vector index: d0, d1, d2 and 2 more"
    assert surplus.message.startswith("1 vectors belong to no chunk")
    assert surplus.message.endswith(": stranger")


def test_pages_in_the_middle_are_overwritten(place):
    file = place.path / "graph.sqlite"
    data = bytearray(file.read_bytes())
    data[4096 * 20 : 4096 * 60] = b"\xff" * 4096 * 40
    file.write_bytes(data)
    (finding,) = look(place)
    assert finding in {("integrity", "error"), ("schema", "error")}


def test_a_queue_that_chroma_has_not_taken_over(place):
    with closing(sqlite3.connect(place.path / "vectors" / "chroma.sqlite3")) as chroma, chroma:
        (topic,) = chroma.execute("SELECT DISTINCT topic FROM embeddings_queue").fetchone()
        row = "INSERT INTO embeddings_queue(operation, topic, id) VALUES"
        chroma.execute(f"{row} (2, '{topic}', 'z'), (3, '{topic}', 'd9')")
    findings = look(place)
    assert findings["vectors", "error"].message.endswith(": d9")
    assert findings["vectors", "warning"].message.endswith(": z")


@pytest.mark.parametrize("kind", ["episodes", "notes"])
def test_collections_that_are_lost(place, kind):
    use(lambda memory: memory.teach("Bees keep Ann.", namespace="ann"))(place)
    assert look(place) == {}
    place.sql(f"UPDATE crabpath_{kind} SET indexed = 1")
    client = chromadb.PersistentClient(str(place.path / "vectors"))
    for collection in client.list_collections():
        if collection.name.startswith(f"crabpath-{kind}"):
            client.delete_collection(collection.name)
    client.close()
    assert f"1 {kind} are missing in their vector" in find_only(place, "vectors", "warning").message


def test_vectors_elsewhere(place, tmp_path):
    """The directory that is given is looked at, or a client is asked."""

    class Away:
        def list_collections(self):
            msg = "no route to host"
            raise ConnectionError(msg)

    shutil.move(place.path / "vectors", tmp_path / "v")
    assert look(place, vectors=tmp_path / "v") == {}
    client = chromadb.PersistentClient(str(tmp_path / "v"))
    assert look(place, vectors=client) == {}
    client.get_collection("crabpath").delete(ids=["d1"])
    assert "in the vector index: d1" in find_only(place, "vectors", "error", vectors=client).message
    client.close()
    finding = find_only(place, "vectors", "error", vectors=Away())
    assert "the Chroma server failed: no route to host" in finding.message


def test_the_files_say_what_chroma_says(place):
    """Also of what waits in its queue: added, replaced, deleted, added again."""
    ids = [f"d{n}" for n in range(40)]
    with place.open() as memory:
        vector = memory.embedder.query("x")
        strangers = [f"x{n}" for n in range(2000)]
        memory.index.upsert(strangers, [vector] * 2000, ["x"] * 2000, [{}] * 2000)
        memory.index.delete(strangers[:1500])
        memory.index.delete(strangers[1500:])
        memory.index.delete(ids[:30])
        own = memory.store.catalog.vectors(ids[:5])
        memory.index.upsert(list(own), list(own.values()), ["x"] * 5, [{}] * 5)
        known = {one for page in memory.index.ids() for one in page}
    assert known == {*ids[:5], *ids[30:]}
    missing = find_only(place, "vectors", "error").message
    assert missing == "25 chunks are missing in the vector index: d10, d11, d12 and 22 more"


class Broken(DeterministicFakeEmbedding):
    def embed_documents(self, texts):
        msg = "no key"
        raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("embedder", "severity", "message"),
    [
        (DeterministicFakeEmbedding(size=8), "error", "16 dimensions, not 8"),
        (None, "warning", "was built with 'DeterministicFakeEmbedding'"),  # that of the commands
        (Broken(size=16), "warning", "RuntimeError: no key"),
    ],
    ids=["another", "none", "broken"],
)
def test_embedders(place, embedder, severity, message):
    assert message in find_only(place, "embedder", severity, embeddings=embedder).message


def test_the_default_model_is_asked_and_not_believed_by_its_name(place, monkeypatch):
    module = "crabpath_retrievers.vectors.embedder.load_default_embeddings"
    monkeypatch.setattr(module, lambda: DeterministicFakeEmbedding(size=384))
    renamed = f"replace(value, 'DeterministicFakeEmbedding', '{DEFAULT_MODEL}')"
    place.sql(f"{META} value = {renamed} WHERE name = 'embedder'")
    finding = find_only(place, "embedder", "error", embeddings=None)
    assert "16 dimensions, not 384" in finding.message


def test_postgresql(postgres_url, tmp_path):
    """The same checks, in a transaction that cannot write; no table is made where none is."""
    for _ in range(2):
        assert "contains no memory" in find_only(postgres_url, "schema", "error").message
    with CrabPath.open(postgres_url, vectors=tmp_path / "v", embeddings=PLAIN) as memory:
        add_zebra(memory)
        memory.namespaces.freeze("ann")
    findings = look(postgres_url, vectors=tmp_path / "v")
    assert set(findings) == {("orphans", "info"), ("namespaces", "info")}
    findings = look(postgres_url)
    assert "a database URL does not say" in findings["vectors", "info"].message


def test_a_database_that_is_down():
    diagnosis = examine("postgresql+psycopg://me:secret@127.0.0.1:1/x")
    (finding,) = diagnosis.findings
    assert "cannot be reached" in finding.message
    assert finding.fix.startswith("start the database")
    assert "secret" not in str(diagnosis.to_dict())
    diagnosis = examine("postgresql://me:half@secret@127.0.0.1:1/x")
    assert "secret" not in str(diagnosis.to_dict())


@pytest.mark.parametrize("url", ["mysql://localhost/x", "sqlite://", "ab://://", "xy://y:z"])
def test_urls_that_cannot_be_used(url):
    assert find_only(url, "place", "error").fix == "correct the URL"


def test_the_url_of_a_file(place):
    url = f"sqlite:///{place.path / 'graph.sqlite'}"
    assert look(url, vectors=place.path / "vectors") == {}
