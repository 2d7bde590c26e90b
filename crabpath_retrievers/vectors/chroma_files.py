"""Reading the files of an embedded Chroma directly, also while another process uses them.

Chroma's own client locks, creates and writes files, loads the whole index, and crashes on damaged
files. Its catalogue is an SQLite file: writes are queued in ``embeddings_queue`` and applied to
``embeddings`` up to ``max_seq_id``, at the latest by the next search. Vectors are in HNSW files,
one directory per collection, see :mod:`hnsw_files`.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.store import build_readonly_uri
from crabpath_retrievers.vectors.hnsw_files import find_hnsw_damage

CATALOGUE_FILE = "chroma.sqlite3"
QUARANTINE_PREFIX = "broken-"
"""Prefix of the directories into which unreadable files are moved."""

_DELETE = 3  # operation of the queue; all others add or replace
_APPLIED = """
SELECT e.embedding_id FROM embeddings e JOIN segments s ON s.id = e.segment_id
WHERE s.collection = ? AND s.scope = 'METADATA'
"""
_COUNT = """
SELECT count(*) FROM embeddings e
WHERE e.segment_id = (SELECT id FROM segments WHERE collection = ? AND scope = 'METADATA')
"""
_QUEUED = """
SELECT q.id, q.operation FROM embeddings_queue q
WHERE q.topic LIKE '%/' || ? AND q.seq_id > COALESCE(
    (SELECT m.seq_id FROM max_seq_id m JOIN segments s ON s.id = m.segment_id
     WHERE s.collection = ? AND s.scope = 'METADATA'), -1)
ORDER BY q.seq_id
"""
# Vectors that are not in the HNSW files yet: Chroma adds them in batches.
_PENDING = "SELECT DISTINCT id FROM embeddings_queue WHERE topic LIKE '%/' || ? AND seq_id > ?"
_SEARCHED = """
SELECT s.id, s.collection, m.seq_id FROM segments s JOIN max_seq_id m ON m.segment_id = s.id
JOIN collections c ON c.id = s.collection
WHERE s.scope = 'VECTOR' AND (c.name = ? OR c.name LIKE ? || '-%')
"""


class CollectionContents(NamedTuple):
    """Ids of a collection, and the dimension of its vectors; None before the first vector."""

    dimension: int | None
    ids: set[str]


def read_collections(path: Path) -> dict[str, CollectionContents]:
    """The collections in a directory of Chroma, by name.

    Raises:
        StoreError: There is no catalogue, or it cannot be read.
    """
    file = path / CATALOGUE_FILE
    if not file.is_file():
        msg = f"there are no vectors at {path}"
        raise StoreError(msg)
    try:
        with _open_read_only(file) as connection:
            known = connection.execute("SELECT id, name, dimension FROM collections").fetchall()
            return {
                name: CollectionContents(size, _read_ids(connection, key))
                for key, name, size in known
            }
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error


def read_collection_names(path: Path) -> list[str] | None:
    """Names of the collections in a directory of Chroma; None if they cannot be read."""
    try:
        with _open_read_only(path / CATALOGUE_FILE) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM collections")]
    except (sqlite3.Error, OSError):
        return None


def peek_collection(path: Path, name: str, ids: Sequence[str]) -> tuple[int, set[str]]:
    """Number of vectors in a collection, and those of the ids that exist.

    Chroma itself would load the whole index first.

    Raises:
        StoreError: The files cannot be read.
    """
    try:
        with _open_read_only(path / CATALOGUE_FILE) as connection:
            rows = connection.execute("SELECT id FROM collections WHERE name = ?", (name,))
            if (row := rows.fetchone()) is None:
                return 0, set()
            ((applied,),) = connection.execute(_COUNT, row)
            queued = dict(connection.execute(_QUEUED, row * 2))
            existing = _find_applied(connection, row[0], {*ids, *queued})
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error
    added = {vector_id for vector_id, operation in queued.items() if operation != _DELETE}
    deleted = queued.keys() - added
    count = applied + len(added - existing) - len(deleted & existing)
    return count, ((existing - deleted) | added).intersection(ids)


def find_damage(path: Path, name: str, *, whole: bool = False) -> str | None:
    """Damage in the files of a collection and of those that belong to it; None without damage.

    Args:
        path: Directory of Chroma.
        name: Name of the collection; names that begin with it and a dash belong to it.
        whole: Read everything and write nothing. Otherwise only samples are read, and SQLite may
            roll back an interrupted write, so no other process may use the directory.
    """
    file = path / CATALOGUE_FILE
    if not file.is_file() or not file.stat().st_size:
        # Without HNSW files no vectors can be lost.
        lost = any(path.glob("*/header.bin"))
        return f"{CATALOGUE_FILE} is {'empty' if file.is_file() else 'missing'}" if lost else None
    try:
        with _open_read_only(file) if whole else _open_writable(file) as connection:
            if whole and (problem := _check_sqlite(connection)):
                return f"{CATALOGUE_FILE} is damaged ({problem})"
            return next(_find_hnsw_damages(connection, path, name, whole=whole), None)
    except sqlite3.OperationalError:  # locked, or without tables: Chroma reports it itself
        return None
    except sqlite3.DatabaseError as error:
        return f"{CATALOGUE_FILE} is damaged ({error})"


def _find_hnsw_damages(
    connection: sqlite3.Connection, path: Path, name: str, *, whole: bool
) -> Iterator[str]:
    for segment, collection, last in connection.execute(_SEARCHED, (name, name)).fetchall():
        pending = {row[0] for row in connection.execute(_PENDING, (collection, last))}
        if whole:
            ids = {row[0] for row in connection.execute(_APPLIED, (collection,))} - pending
            problem = find_hnsw_damage(path / segment, len(ids), ids)
        else:
            ((applied,),) = connection.execute(_COUNT, (collection,))
            problem = find_hnsw_damage(path / segment, applied - len(pending))
        if problem:
            yield f"{segment}/{problem}"


def _check_sqlite(connection: sqlite3.Connection) -> str | None:
    """The first problem that SQLite reports; None without one."""
    (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if result == "ok" else " ".join(str(result).split())


@contextmanager
def _open_writable(file: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{file.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        yield connection


@contextmanager
def _open_read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing, and does not see interrupted writes."""
    journal = file.with_name(f"{file.name}-journal")
    if not journal.exists() or not journal.stat().st_size:
        with closing(
            sqlite3.connect(build_readonly_uri(file), uri=True, timeout=1.0)
        ) as connection:
            yield connection
        return
    uri = f"{file.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        try:
            connection.execute("SELECT 1 FROM collections").close()
        except sqlite3.OperationalError:  # an interrupted write, which only a writer may roll back
            pass
        else:
            yield connection
            return
    with tempfile.TemporaryDirectory() as copies:
        for source in (file, journal):
            shutil.copy(source, copies)
        with _open_writable(Path(copies) / file.name) as connection:
            yield connection


def _find_applied(connection: sqlite3.Connection, collection: str, ids: set[str]) -> set[str]:
    """Those of the ids that are applied to the table of embeddings."""
    applied: set[str] = set()
    for part in split_batches(sorted(ids)):
        marks = ", ".join("?" * len(part))
        query = f"{_APPLIED} AND e.embedding_id IN ({marks})"
        applied |= {row[0] for row in connection.execute(query, (collection, *part))}
    return applied


def _read_ids(connection: sqlite3.Connection, collection: str) -> set[str]:
    ids = {name for (name,) in connection.execute(_APPLIED, (collection,))}
    for name, operation in connection.execute(_QUEUED, (collection, collection)):
        if operation == _DELETE:
            ids.discard(name)
        else:
            ids.add(name)
    return ids
