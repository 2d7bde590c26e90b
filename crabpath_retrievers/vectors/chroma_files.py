"""Reading the files of an embedded Chroma directly, also while another process uses them.

Chroma's own client locks, creates and writes files, loads the whole index, and crashes on damaged
files. Its catalogue is an SQLite file: writes are queued in ``embeddings_queue`` and applied to
``embeddings`` up to ``max_seq_id``, at the latest by the next search. Vectors are in HNSW files,
one directory per collection, see :mod:`hnsw_files`.

Checking the HNSW files of Chroma for damage and for consistency with each other.

Chroma rewrites them one by one, so a process killed meanwhile leaves files of two versions; and it
reads past the ends of damaged files. ``header.bin`` has number and size of the elements;
``data_level0.bin`` has neighbours, vector and label of each element, ``length.bin`` four bytes for
each, ``link_lists.bin`` the neighbours on higher levels, and ``index_metadata.pickle`` maps ids to
labels.
"""

import io
import pickle
import pickletools
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.store import build_readonly_uri

_FILES = (
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
)
_HEADER = struct.Struct("<i6qiI3Q")
_FORMAT = 1  # the only one so far
_SAMPLE = 64  # elements read if not all are
_CHUNK = 4096  # elements read at a time if all are
_TOLERANCE = 0.05  # deviation of the length of a vector from 1
_MAX_OPERATIONS = 64  # operations of the pickle within which the number of labels occurs


class _Header(NamedTuple):
    version: int
    level0: int
    most: int
    elements: int
    size: int
    label: int
    vector: int
    levels: int
    entry: int
    links: int
    links0: int
    own_links: int


def find_hnsw_damage(directory: Path, applied: int, ids: set[str] | None = None) -> str | None:
    """Damage in the HNSW files of one collection; None without damage.

    Args:
        directory: Directory of the files.
        applied: Least number of vectors that they must contain.
        ids: Ids of these vectors; then all elements are read, else a sample.
    """
    for name in _FILES:
        if not (directory / name).is_file():
            return f"{name} is missing"
    raw = (directory / "header.bin").read_bytes()
    if len(raw) < _HEADER.size:
        return "header.bin is cut off"
    header = _Header(*_HEADER.unpack_from(raw))
    if header.version != _FORMAT:
        # The format of a later release of Chroma cannot be checked.
        return None if 0 <= header.version < 100 else "header.bin is damaged"  # noqa: PLR2004
    return next(_find_damages(directory, header, applied, ids), None)


def _find_damages(
    directory: Path, header: _Header, applied: int, ids: set[str] | None
) -> Iterator[str]:
    count = header.elements
    rest = header.label - header.vector
    if count < 0 or rest <= 0 or rest % 4 or header.label + 8 != header.size:
        yield "header.bin is damaged"
        return
    higher = (directory / "link_lists.bin").stat().st_size - 4 * count
    sizes = {"data_level0.bin": header.size * count, "length.bin": 4 * count}
    if higher < 0 or higher % (4 * header.links + 4):
        yield "link_lists.bin is not of the same moment as header.bin"
    for name, size in sizes.items():
        if (directory / name).stat().st_size != size:
            yield f"{name} is not of the same moment as header.bin"
            return
    if _count_labels(directory) not in {None, count}:
        yield "index_metadata.pickle is not of the same moment as header.bin"
    if count < applied:
        yield f"data_level0.bin holds {count} of {applied} vectors"
    with (directory / "data_level0.bin").open("rb") as file:
        if any(
            _is_invalid(rows, header)
            for rows in _read_elements(file, header, whole=ids is not None)
        ):
            yield "data_level0.bin is damaged"
    with (directory / "link_lists.bin").open("rb") as file:
        if not _are_links_valid(file, header, None if ids is not None else _SAMPLE):
            yield "link_lists.bin is damaged"
    if ids is not None:
        yield from _check_labels(directory, count, ids)


def _read_elements(
    file: BinaryIO, header: _Header, *, whole: bool
) -> Iterator[np.ndarray[Any, Any]]:
    """Elements as bytes, in chunks of rows."""
    starts = range(0, header.elements, _CHUNK)
    length = _CHUNK
    if not whole:
        sample = np.random.default_rng().integers(0, max(1, header.elements), _SAMPLE)
        starts, length = sorted(sample.tolist()), 1  # type: ignore[assignment]
    for start in starts:
        file.seek(start * header.size)
        raw = file.read(header.size * min(length, header.elements - start))
        yield np.frombuffer(raw, dtype=np.uint8).reshape(-1, header.size)


def _is_invalid(rows: np.ndarray[Any, Any], header: _Header) -> bool:
    """Whether a vector is not of length 1, or a label or a neighbour does not exist."""
    with np.errstate(all="ignore"):  # damaged bytes may decode to any number
        vectors = rows[:, header.vector : header.label].copy().view("<f4").astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
    labels = rows[:, header.label :].copy().view("<u8")
    many = rows[:, :2].copy().view("<u2")[:, 0]
    near = rows[:, 4 : header.vector].copy().view("<u4")
    used = np.arange(near.shape[1]) < many[:, None]
    return bool(
        not np.all(np.abs(lengths - 1.0) < _TOLERANCE)
        or np.any(labels > header.elements)
        or np.any(many > header.links0)
        or np.any(near[used] >= header.elements)
    )


def _are_links_valid(file: BinaryIO, header: _Header, limit: int | None) -> bool:
    """Whether the neighbours on higher levels exist, for the first ``limit`` elements."""
    step = 4 * header.links + 4
    for _ in islice(range(header.elements), limit):
        (size,) = struct.unpack("<I", file.read(4).ljust(4, b"\xff"))
        if size % step or size > step * 64:
            return False
        if size:
            raw = file.read(size)
            if len(raw) != size:
                return False
            rows = np.frombuffer(raw, dtype="<u4").reshape(-1, header.links + 1)
            used = np.arange(header.links) < (rows[:, 0] & 0xFFFF)[:, None]
            if np.any(rows[:, 0] & 0xFFFF > header.links) or np.any(
                rows[:, 1:][used] >= header.elements
            ):
                return False
    return limit is not None or not file.read(1)


def _count_labels(directory: Path) -> int | None:
    """Number of labels at the beginning of the pickle; None if missing, -1 if unreadable."""
    with (directory / "index_metadata.pickle").open("rb") as file:
        found = False
        try:
            for operation, argument, _ in islice(pickletools.genops(file), _MAX_OPERATIONS):
                if found and isinstance(argument, int) and "INT" in operation.name:
                    return argument
                found = found or argument == "total_elements_added"
        except Exception:  # truncated, or not a pickle
            return -1
    return None


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings and containers; refuses all classes, so no code can run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse any class."""
        msg = f"{module}.{name}"
        raise pickle.UnpicklingError(msg)


def _check_labels(directory: Path, count: int, ids: set[str]) -> Iterator[str]:
    try:
        raw = (directory / "index_metadata.pickle").read_bytes()
        labels = _PlainUnpickler(io.BytesIO(raw)).load()["id_to_label"]
        known = all(0 < label <= count for label in labels.values())
    except Exception:  # a damaged pickle may raise anything
        yield "index_metadata.pickle is damaged"
        return
    if not known or len(set(labels.values())) != len(labels):
        yield "index_metadata.pickle is damaged"
    elif lost := len(ids - labels.keys()):
        yield f"index_metadata.pickle lacks {lost} vectors"


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
