"""Opening a store: private files, unwritable places, versions, the right to ingest."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import databases
import pytest
import sqlalchemy as sa
from tables import meta

from crabpath_retrievers.errors import (
    ConfigurationError,
    SchemaVersionError,
    StoreError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage import SCHEMA_VERSION, GraphStore
from tests.seams import get_engine, make_change

# Root may write everywhere, so the attempt is made as nobody; imports come first.
AS_NOBODY = """
import os, sys
import sqlalchemy.dialects.sqlite
from crabpath_retrievers.errors import StoreReadOnlyError
from crabpath_retrievers.storage import SCHEMA_VERSION, GraphStore
if os.geteuid() == 0:
    os.setuid(65534)
for place in sys.argv[1:]:
    try:
        GraphStore(place).apply([make_change("put_meta", {"a": "b"})])
    except StoreReadOnlyError as error:
        print(error)
"""


HOLD = """
import sys
from crabpath_retrievers.storage import SCHEMA_VERSION, GraphStore
with GraphStore(sys.argv[1]).hold_ingest_lock() as held:
    print(held, flush=True)
    sys.stdin.readline()
"""


def test_files_are_private_to_the_user(tmp_path):
    """Directory and files cannot be read by others, whatever the umask."""
    old = os.umask(0)
    try:
        store = GraphStore(tmp_path / "memory")
        store.apply([make_change("put_meta", {"a": "b"})])
        with store.hold_ingest_lock():
            modes = {p.name: p.stat().st_mode & 0o777 for p in (tmp_path / "memory").iterdir()}
        store.close()
    finally:
        os.umask(old)
    assert {"graph.sqlite", "graph.sqlite-wal", "graph.sqlite-shm"} <= modes.keys()
    assert set(modes.values()) == {0o600}
    assert (tmp_path / "memory").stat().st_mode & 0o777 == 0o700


def test_a_directory_that_cannot_be_made_is_read_only(tmp_path):
    """A path below a regular file, or at one, is refused with its name."""
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "file" / "memory", tmp_path / "file"):
        with pytest.raises(StoreReadOnlyError, match="file"):
            GraphStore(path)


@pytest.mark.slow
def test_places_of_another_user_are_read_only(tmp_path):
    """A new store is refused and leaves nothing behind; so is one whose file may not be written."""
    tmp_path.chmod(0o755)
    (tmp_path / "empty").mkdir(mode=0o555)
    GraphStore(tmp_path / "store").close()
    (tmp_path / "store").chmod(0o777)
    (tmp_path / "store" / "graph.sqlite").chmod(0o444)
    command = [sys.executable, "-c", AS_NOBODY, str(tmp_path / "empty"), str(tmp_path / "store")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert (done.stderr, done.stdout.count("cannot be written")) == ("", 2)
    assert list((tmp_path / "empty").iterdir()) == []


def test_a_write_lock_held_elsewhere_is_named(tmp_path):
    """When another process keeps SQLite locked, the message says that the store is busy."""
    store = GraphStore(tmp_path)
    with get_engine(store).connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=10")
    other = sa.create_engine(f"sqlite:///{tmp_path / 'graph.sqlite'}")
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="busy"):
            store.apply([make_change("put_meta", {"a": "b"})])
    store.apply([make_change("put_meta", {"a": "b"})])
    assert store.catalog.meta()["a"] == "b"
    store.close()
    other.dispose()


def test_a_second_store_of_a_process_keeps_the_locks_of_the_first(tmp_path):
    """A process that leaves the database does not take it for unused, and its log away."""
    leave = f"import sqlite3; sqlite3.connect({str(tmp_path / 'graph.sqlite')!r})"
    leave += ".execute('SELECT * FROM crabpath_meta').fetchall()"
    with closing(GraphStore(tmp_path)) as first, closing(GraphStore(tmp_path)):
        subprocess.run([sys.executable, "-c", leave], check=True, timeout=60)
        assert (tmp_path / "graph.sqlite-wal").exists()
        assert first.catalog.meta()


@pytest.mark.parametrize(
    "url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "ab://", "xy://y"]
)
def test_urls_of_unsupported_stores_are_refused(url):
    """A URL that names no durable SQLite file and no PostgreSQL is refused with an alternative."""
    with pytest.raises(ConfigurationError, match=r"use a|cannot be read"):
        GraphStore(url)


def test_a_password_with_an_unescaped_at_is_not_shown():
    with pytest.raises(ConfigurationError, match="write it as %40") as error:
        GraphStore("postgresql://user:pass@word@127.0.0.1:1/x")
    assert "word" not in str(error.value).replace("password", "")


def test_a_database_that_is_down_is_unavailable():
    """Nobody listening is an unavailable store, and the password stays out of the message."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(StoreUnavailableError, match="cannot be reached") as error:
        GraphStore(f"postgresql://user:secret@127.0.0.1:{port}/x")
    assert "secret" not in str(error.value)


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        ("none_of_these", r"no schema of the search_path .* exists: create it, or name one"),
        ("with space", r"the server of the store .* refuses the connection \(.*argument"),
    ],
)
def test_a_schema_that_cannot_be_used_is_named(postgres_url, schema, sentence):
    """Nothing is said of a database that may not be running: it answered."""
    url = sa.make_url(postgres_url).update_query_dict({"options": f"-csearch_path={schema}"})
    if databases.POOLED:
        pytest.skip("the pooler does not pass it on")
    with pytest.raises(StoreError, match=sentence) as error:
        GraphStore(url.render_as_string(hide_password=False))
    assert "running" not in str(error.value)


def test_a_new_store_has_the_current_version_and_opens_unchanged(location, store, graph, make):
    assert store.catalog.meta()["schema_version"] == str(SCHEMA_VERSION) == "6"
    graph.publish(make("a"))
    before = graph.contents()
    GraphStore(location).close()
    assert graph.contents() == before


@pytest.mark.parametrize(
    ("name", "version", "sentence"),
    [
        ("schema_version", SCHEMA_VERSION + 1, r"version 7, .* upgrade crabpath-retrievers$"),
        ("schema", 1, r"add the documents to a new store$"),
        ("schema", 8, r"add the documents to a new store$"),
    ],
)
def test_another_version_is_refused(location, store, graph, make, name, version, sentence):
    """A newer one, and those from before the first release; nothing is changed or added."""
    graph.publish(make("a"))
    with get_engine(store).begin() as connection:
        connection.execute(meta.delete().where(meta.c.name == "schema_version"))
        connection.execute(meta.insert().values(name=name, value=str(version)))
        connection.execute(sa.text("DROP TABLE crabpath_health_reports"))
    with pytest.raises(SchemaVersionError, match=sentence):
        GraphStore(location)
    assert "crabpath_health_reports" not in sa.inspect(get_engine(store)).get_table_names()
    assert store.catalog.all_ids() == ["a"]


@pytest.mark.slow
def test_one_process_ingests_at_a_time(location, store):
    """While another process ingests, the right is refused; when that process dies, it is free."""
    command = [sys.executable, "-c", HOLD, str(location)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert other.stdout.readline() == "True\n"
    with store.hold_ingest_lock(wait=False) as right:
        assert not right
    GraphStore(location).close()  # opening does not wait for the ingest
    other.kill()
    other.communicate()
    with store.hold_ingest_lock() as right:
        assert right


def test_the_thread_that_ingests_may_ask_again_and_others_may_not(store):
    """The right to ingest is re-entrant within its thread and exclusive between threads."""

    def take():
        with store.hold_ingest_lock(wait=False) as right:
            return right

    with ThreadPoolExecutor(1) as pool:
        with store.hold_ingest_lock(), store.hold_ingest_lock() as again:
            assert again
            assert pool.submit(take).result() is False
        assert pool.submit(take).result() is True
