"""Opening a store: private files, places that cannot be written, databases that go away."""

import os
import socket
import subprocess
import sys

import pytest
import sqlalchemy as sa

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.errors import (
    ConfigurationError,
    StoreLockedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from crabpath_retrievers.storage import GraphStore

# Root may write everywhere, so the attempt is made as nobody; imports come first.
AS_NOBODY = """
import os, sys
import sqlalchemy.dialects.sqlite
from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.errors import StoreReadOnlyError
from crabpath_retrievers.storage import GraphStore
if os.geteuid() == 0:
    os.setuid(65534)
for place in sys.argv[1:]:
    try:
        GraphStore(place).apply([PutMeta((("a", "b"),))])
    except StoreReadOnlyError as error:
        print(error)
"""


def test_files_are_private_to_the_user(tmp_path):
    """Directory and files cannot be read by others, whatever the umask."""
    old = os.umask(0)
    try:
        store = GraphStore(tmp_path / "memory")
        store.apply([PutMeta((("a", "b"),))])
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
    with store._engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA busy_timeout=10")
    other = sa.create_engine(f"sqlite:///{tmp_path / 'graph.sqlite'}")
    with other.connect() as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        with pytest.raises(StoreLockedError, match="busy"):
            store.apply([PutMeta((("a", "b"),))])
    store.apply([PutMeta((("a", "b"),))])
    assert store.catalog.meta()["a"] == "b"
    store.close()
    other.dispose()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "mysql://x/y", "://", "x://y"])
def test_urls_of_unsupported_stores_are_refused(url):
    """A URL that names no durable SQLite file and no PostgreSQL is refused with an alternative."""
    with pytest.raises(ConfigurationError, match=r"use a|cannot be read"):
        GraphStore(url)


def test_a_database_that_is_down_is_unavailable():
    """Nobody listening is an unavailable store, and the password stays out of the message."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    with pytest.raises(StoreUnavailableError, match="cannot be reached") as error:
        GraphStore(f"postgresql://user:secret@127.0.0.1:{port}/x")
    assert "secret" not in str(error.value)
