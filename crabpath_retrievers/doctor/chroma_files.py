"""The ids in an embedded Chroma, read off its files: beside the process that uses it, or none.

Chroma's own client locks, creates and writes, so a store that is broken or in use cannot be looked
at with it. Its catalogue is an SQLite file: what is written stands in ``embeddings_queue`` and is
taken over into ``embeddings`` up to ``max_seq_id``, at the latest with the next search.
"""

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.readonly import sqlite_uri

FILE = "chroma.sqlite3"
_DELETE = 3  # of the operations in the queue; the others add or replace
_TAKEN_OVER = """
SELECT e.embedding_id FROM embeddings e JOIN segments s ON s.id = e.segment_id
WHERE s.collection = ? AND s.scope = 'METADATA'
"""
_QUEUED = """
SELECT q.id, q.operation FROM embeddings_queue q
WHERE q.topic LIKE '%/' || ? AND q.seq_id > COALESCE(
    (SELECT m.seq_id FROM max_seq_id m JOIN segments s ON s.id = m.segment_id
     WHERE s.collection = ? AND s.scope = 'METADATA'), -1)
ORDER BY q.seq_id
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
        with closing(sqlite3.connect(sqlite_uri(file), uri=True, timeout=1.0)) as connection:
            known = connection.execute("SELECT id, name, dimension FROM collections").fetchall()
            return {name: Vectors(size, _ids(connection, key)) for key, name, size in known}
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error


def _ids(connection: sqlite3.Connection, collection: str) -> set[str]:
    found = {name for (name,) in connection.execute(_TAKEN_OVER, (collection,))}
    for name, operation in connection.execute(_QUEUED, (collection, collection)):
        if operation == _DELETE:
            found.discard(name)
        else:
            found.add(name)
    return found
