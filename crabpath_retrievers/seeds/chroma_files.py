"""What stands in the files of an embedded Chroma: beside the process that uses it, or none.

Chroma's own client locks, creates and writes, loads the whole index, and falls over where a file is
damaged. Its catalogue is an SQLite file: what is written stands in ``embeddings_queue`` and is
taken over into ``embeddings`` up to ``max_seq_id``, at the latest with the next search. Vectors are
searched in HNSW files, one directory per collection, see :mod:`hnsw_files`.
"""

import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.seeds.hnsw_files import hnsw_damage
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.readonly import sqlite_uri

FILE = "chroma.sqlite3"
ASIDE = "broken-"
"""How the directories begin in which what cannot be read is set aside."""

_DELETE = 3  # of the operations in the queue; the others add or replace
_TAKEN_OVER = """
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
# What is not in the HNSW files yet: Chroma adds it to them when there is enough of it.
_PENDING = "SELECT DISTINCT id FROM embeddings_queue WHERE topic LIKE '%/' || ? AND seq_id > ?"
_SEARCHED = """
SELECT s.id, s.collection, m.seq_id FROM segments s JOIN max_seq_id m ON m.segment_id = s.id
JOIN collections c ON c.id = s.collection
WHERE s.scope = 'VECTOR' AND (c.name = ? OR c.name LIKE ? || '-%')
"""


class Vectors(NamedTuple):
    """A collection: the dimension of its vectors, None before the first one, and their ids."""

    dimension: int | None
    ids: set[str]


def collections(path: Path) -> dict[str, Vectors]:
    """The collections in a directory of Chroma, by name.

    Raises:
        StoreError: There are none, or they cannot be read.
    """
    file = path / FILE
    if not file.is_file():
        msg = f"there are no vectors at {path}"
        raise StoreError(msg)
    try:
        with _reading(file) as connection:
            known = connection.execute("SELECT id, name, dimension FROM collections").fetchall()
            return {name: Vectors(size, _ids(connection, key)) for key, name, size in known}
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error


def collection_names(path: Path) -> list[str] | None:
    """Names of the collections in a directory of Chroma; None where they cannot be read."""
    try:
        with _reading(path / FILE) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM collections")]
    except (sqlite3.Error, OSError):
        return None


def glance(path: Path, name: str, ids: Sequence[str]) -> tuple[int, set[str]]:
    """How many vectors a collection has, and those of the ids that are among them.

    Chroma itself would load the whole index first.

    Raises:
        StoreError: The files cannot be read.
    """
    try:
        with _reading(path / FILE) as connection:
            found = connection.execute("SELECT id FROM collections WHERE name = ?", (name,))
            if (row := found.fetchone()) is None:
                return 0, set()
            ((taken,),) = connection.execute(_COUNT, row)
            queued = dict(connection.execute(_QUEUED, row * 2))
            there = _among(connection, row[0], {*ids, *queued})
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error
    added = {one for one, operation in queued.items() if operation != _DELETE}
    gone = queued.keys() - added
    count = taken + len(added - there) - len(gone & there)
    return count, ((there - gone) | added).intersection(ids)


def damage(path: Path, name: str, *, whole: bool = False) -> str | None:
    """What is wrong with the files of a collection and those beside it; None where nothing is.

    Args:
        path: Directory of Chroma.
        name: Of the collection; those whose names begin with it and a dash stand beside it.
        whole: Read everything, and write nothing; else look at few places, and have SQLite take
            back what a process that died has half written: nobody else may use the directory.
    """
    file = path / FILE
    if not file.is_file() or not file.stat().st_size:
        # Without vectors that were ever searched there is nothing that could be lost.
        lost = any(path.glob("*/header.bin"))
        return f"{FILE} is {'empty' if file.is_file() else 'missing'}" if lost else None
    try:
        with _reading(file) if whole else _mending(file) as connection:
            if whole and (found := _checked(connection)):
                return f"{FILE} is damaged ({found})"
            return next(_hnsw_damages(connection, path, name, whole=whole), None)
    except sqlite3.OperationalError:  # locked, or without tables: Chroma says itself what it needs
        return None
    except sqlite3.DatabaseError as error:
        return f"{FILE} is damaged ({error})"


def _hnsw_damages(
    connection: sqlite3.Connection, path: Path, name: str, *, whole: bool
) -> Iterator[str]:
    for segment, collection, last in connection.execute(_SEARCHED, (name, name)).fetchall():
        pending = {one for (one,) in connection.execute(_PENDING, (collection, last))}
        if whole:
            ids = {one for (one,) in connection.execute(_TAKEN_OVER, (collection,))} - pending
            found = hnsw_damage(path / segment, len(ids), ids)
        else:
            ((taken,),) = connection.execute(_COUNT, (collection,))
            found = hnsw_damage(path / segment, taken - len(pending))
        if found:
            yield f"{segment}/{found}"


def _checked(connection: sqlite3.Connection) -> str | None:
    (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    return None if found == "ok" else " ".join(str(found).split())


@contextmanager
def _mending(file: Path) -> Iterator[sqlite3.Connection]:
    uri = f"{file.resolve().as_uri()}?mode=rw"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        yield connection


@contextmanager
def _reading(file: Path) -> Iterator[sqlite3.Connection]:
    """A connection that writes nothing; what a process that died has half written is not seen."""
    journal = file.with_name(f"{file.name}-journal")
    if not journal.exists() or not journal.stat().st_size:
        with closing(sqlite3.connect(sqlite_uri(file), uri=True, timeout=1.0)) as connection:
            yield connection
        return
    uri = f"{file.resolve().as_uri()}?mode=ro"
    with closing(sqlite3.connect(uri, uri=True, timeout=1.0)) as connection:
        try:
            connection.execute("SELECT 1 FROM collections").close()
        except sqlite3.OperationalError:  # nobody writes: it is up to a writer to take that back
            pass
        else:
            yield connection
            return
    with tempfile.TemporaryDirectory() as aside:
        for one in (file, journal):
            shutil.copy(one, aside)
        with _mending(Path(aside) / file.name) as connection:
            yield connection


def _among(connection: sqlite3.Connection, collection: str, ids: set[str]) -> set[str]:
    """Those of the ids that are taken over."""
    found: set[str] = set()
    for part in parts(sorted(ids)):
        marks = ", ".join("?" * len(part))
        query = f"{_TAKEN_OVER} AND e.embedding_id IN ({marks})"
        found |= {one for (one,) in connection.execute(query, (collection, *part))}
    return found


def _ids(connection: sqlite3.Connection, collection: str) -> set[str]:
    found = {name for (name,) in connection.execute(_TAKEN_OVER, (collection,))}
    for name, operation in connection.execute(_QUEUED, (collection, collection)):
        if operation == _DELETE:
            found.discard(name)
        else:
            found.add(name)
    return found
