"""The files of an embedded Chroma, read, checked and rewritten without it.

Chroma's own client locks, creates and writes files, loads the whole index, and crashes on damaged
files. Its catalogue is an SQLite file: writes are queued in ``embeddings_queue`` and applied to
``embeddings`` up to ``max_seq_id``, at the latest by the next search. Vectors are in HNSW files,
one directory per collection, which Chroma rewrites one by one: a process killed meanwhile leaves
files of two moments. ``header.bin`` has number and size of the elements; ``data_level0.bin`` has
neighbours, vector and label of each element, ``length.bin`` four bytes for each, ``link_lists.bin``
the neighbours on higher levels, and ``index_metadata.pickle`` maps ids to labels.
"""

import io
import json
import pickle
import pickletools
import shutil
import sqlite3
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn

import numpy as np

from crabpath_retrievers.core.processes import raise_interruption, require_engine
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.store import build_readonly_uri
from crabpath_retrievers.vectors.chroma_directory import CATALOGUE_FILE

_FILES = (
    "header.bin",
    "data_level0.bin",
    "length.bin",
    "link_lists.bin",
    "index_metadata.pickle",
)
_HEADER = np.dtype(
    [
        ("version", "<i4"),
        *((name, "<i8") for name in ("level0", "most", "count", "size", "label", "vector")),
        *(("levels", "<i4"), ("entry", "<u4")),
        *((name, "<u8") for name in ("links", "links0", "own_links")),
    ]
)
_FORMAT = 1  # the only one so far
_SAMPLE = 64  # elements read if not all are
_CHUNK = 4096  # elements read at a time if all are
_MAX_LEVELS = 64
_TOLERANCE = 0.05  # deviation of the length of a vector from 1
_MAX_OPERATIONS = 64  # operations of the pickle within which the number of labels occurs

# What a collection holds, with the writes that wait in the queue; operation 3 deletes.
_HELD = """
WITH queued AS (
    SELECT id, operation, max(seq_id) FROM embeddings_queue
    WHERE topic LIKE '%/' || :key AND seq_id > COALESCE(
        (SELECT m.seq_id FROM max_seq_id m JOIN segments s ON s.id = m.segment_id
         WHERE s.collection = :key AND s.scope = 'METADATA'), -1)
    GROUP BY id
), held(id) AS (
    SELECT embedding_id FROM embeddings
    WHERE segment_id = (SELECT id FROM segments WHERE collection = :key AND scope = 'METADATA')
    AND embedding_id NOT IN (SELECT id FROM queued)
    UNION ALL SELECT id FROM queued WHERE operation <> 3
)
"""
# Vectors that Chroma has yet to add to the HNSW files, which it does in batches, are left out.
_INDEXED = """
SELECT embedding_id FROM embeddings
WHERE segment_id = (SELECT id FROM segments WHERE collection = :key AND scope = 'METADATA')
AND embedding_id NOT IN (
    SELECT id FROM embeddings_queue WHERE topic LIKE '%/' || :key AND seq_id > :last)
"""
_SEGMENT = """
SELECT s.id, s.collection, COALESCE(m.seq_id, -1) FROM segments s
JOIN collections c ON c.id = s.collection LEFT JOIN max_seq_id m ON m.segment_id = s.id
WHERE s.scope = 'VECTOR' AND c.name = ?
"""
_QUEUED_VECTORS = """
SELECT id, vector FROM embeddings_queue
WHERE topic LIKE '%/' || :key AND seq_id > :last ORDER BY seq_id
"""
# Collections with a queue in which something was replaced or deleted, or after which HNSW files are
# older than the queue.
_UNWRITTEN = """
SELECT c.name FROM embeddings_queue q JOIN collections c ON c.id = substr(q.topic, -36)
JOIN segments s ON s.collection = c.id AND s.scope = 'VECTOR'
LEFT JOIN max_seq_id m ON m.segment_id = s.id
WHERE q.seq_id > COALESCE(m.seq_id, -1) AND (c.name = :name OR c.name LIKE :name || '-%')
GROUP BY c.name
HAVING max(q.operation) = 3 OR count(*) > count(DISTINCT q.id) OR max(m.seq_id) IS NOT NULL
"""
_SEARCHED = """
SELECT s.id, s.collection, m.seq_id FROM segments s JOIN max_seq_id m ON m.segment_id = s.id
JOIN collections c ON c.id = s.collection
WHERE s.scope = 'VECTOR' AND (c.name = ? OR c.name LIKE ? || '-%')
"""


def read_collections(path: Path) -> dict[str, set[str]]:
    """Read the ids of the vectors in a directory of Chroma, by collection."""
    if not (path / CATALOGUE_FILE).is_file():
        msg = f"there are no vectors at {path}"
        raise StoreError(msg)
    with _read_catalogue(path) as connection:
        known = connection.execute("SELECT name, id FROM collections").fetchall()
        return {
            name: _read_column(connection, f"{_HELD} SELECT id FROM held", key=key)
            for name, key in known
        }


def read_collection_names(path: Path) -> list[str]:
    """Read the names of the collections in a directory of Chroma; none if unreadable."""
    try:
        with _read_catalogue(path) as connection:
            return [name for (name,) in connection.execute("SELECT name FROM collections")]
    except StoreError:
        return []


def peek_collection(path: Path, name: str, ids: Sequence[str]) -> tuple[int, set[str]]:
    """Count the vectors in the collection ``name``, and select the ids that exist.

    The files are read: Chroma itself would load the whole index first.
    """
    with _read_catalogue(path) as connection:
        row = connection.execute("SELECT id FROM collections WHERE name = ?", (name,)).fetchone()
        if row is None:
            return 0, set()
        (count,) = _read_column(connection, f"{_HELD} SELECT count(*) FROM held", key=row[0])
        some = f"{_HELD} SELECT id FROM held WHERE id IN (SELECT value FROM json_each(:ids))"
        return count, _read_column(connection, some, key=row[0], ids=json.dumps(list(ids)))


def open_vectors(path: Path, name: str) -> "Callable[[Sequence[str]], dict[str, Vector]]":
    """Return a function that reads vectors of a collection by id, from the files."""
    queued, labels, rows = dict[str, Vector](), dict[str, int](), dict[int, int]()
    elements: Any = ()
    with _read_catalogue(path) as connection:
        found = connection.execute(_SEGMENT, (name,)).fetchone()
        segment, key, last = found or ("", "", -1)
        for one, vector in connection.execute(_QUEUED_VECTORS, {"key": key, "last": last}):
            if vector is not None:
                queued[one] = np.frombuffer(vector, dtype="<f4")
    directory = path / segment
    if found and (directory / "index_metadata.pickle").is_file():  # else all of them are queued
        header = _read_header(directory)
        elements = _open_elements(directory, header, "r")[: header["count"]]
        labels = _read_labels(directory)
        rows = {label: row for row, label in enumerate(elements["label"].tolist())}

    def read_some(ids: Sequence[str]) -> dict[str, Vector]:
        known = {one: rows.get(labels[one]) for one in ids if one in labels}
        stored = {one: elements["vector"][row] for one, row in known.items() if row is not None}
        return {**stored, **{one: queued[one] for one in ids if one in queued}}

    return read_some


def find_unwritten(path: Path, name: str) -> set[str]:
    """Find the collections with deletions that wait in the queue: ``name`` and its siblings."""
    with _read_catalogue(path) as connection:
        return _read_column(connection, _UNWRITTEN, name=name)


def rewrite_files(path: Path, name: str) -> None:
    """Erase deleted vectors from the files of the collection ``name`` and of its siblings.

    Deleted data stay in free pages of SQLite, and in HNSW, whose searches lead through deleted
    elements: each gets the vector of its nearest neighbour that is left. Nobody may use the
    directory meanwhile, and no deletion may wait in the queue.
    """
    try:
        with _open_writable(path / CATALOGUE_FILE) as connection:
            connection.execute("VACUUM")
            segments = connection.execute(_SEARCHED, (name, name)).fetchall()
    except sqlite3.Error as error:
        msg = f"the vectors at {path} cannot be written anew ({error}): try again"
        raise StoreError(msg) from error
    for segment, *_ in segments:
        _overwrite_deleted(path / segment)


def _overwrite_deleted(directory: Path) -> None:
    header = _read_header(directory)
    if header.get("version") != _FORMAT:
        msg = (
            f"vectors of deleted documents stay in {directory}, whose format is not known: index "
            "the memory in an empty directory with `crabpath reindex PATH --vectors DIRECTORY`, "
            "and delete this one"
        )
        raise StoreError(msg)
    if not (directory / "data_level0.bin").stat().st_size:
        return
    every = _open_elements(directory, header, "r+")
    every[header["count"] :] = 0  # whatever was in the memory of which it is a copy
    elements = every[: header["count"]]
    gone = (elements["flags"] & 1).astype(bool)
    left = np.flatnonzero(~gone)
    anything = np.eye(1, elements["vector"].shape[1], dtype=np.float32)[0]
    if len(left):
        anything = elements["vector"][left[0]]
    for place in np.flatnonzero(gone):
        element = elements[place]
        near = element["near"][: element["many"]]
        near = near[~gone[near]]
        elements["vector"][place] = elements["vector"][near[0]] if len(near) else anything
    every.flush()


def _read_column(connection: sqlite3.Connection, query: str, **values: object) -> set[Any]:
    return {value for (value,) in connection.execute(query, values)}


@contextmanager
def _read_catalogue(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        with _open_read_only(path / CATALOGUE_FILE) as connection:
            yield connection
    except (sqlite3.Error, OSError) as error:
        msg = f"the vectors at {path} cannot be read ({error})"
        raise StoreError(msg) from error


@contextmanager
def _open_read_only(file: Path) -> Iterator[sqlite3.Connection]:
    """Open a connection that writes nothing, and does not see interrupted writes."""
    journal = file.with_name(f"{file.name}-journal")
    if not journal.exists() or not journal.stat().st_size:
        with _connect(build_readonly_uri(file)) as connection:
            yield connection
        return
    with _connect(f"{file.resolve().as_uri()}?mode=ro") as connection:
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


def _open_writable(file: Path) -> closing[sqlite3.Connection]:
    return _connect(f"{file.resolve().as_uri()}?mode=rw")


def _connect(uri: str) -> closing[sqlite3.Connection]:
    require_engine("sqlite")
    return closing(sqlite3.connect(uri, uri=True, timeout=1.0))


def find_damage(path: Path, name: str, *, whole: bool = False) -> str | None:
    """Find damage in the files of a collection and of its siblings; None without damage.

    Args:
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
            return next(_find_damages(connection, path, name, whole=whole), None)
    except sqlite3.OperationalError:  # locked, or without tables: Chroma reports it itself
        return None
    except sqlite3.DatabaseError as error:
        return f"{CATALOGUE_FILE} is damaged ({error})"


def _find_damages(
    connection: sqlite3.Connection, path: Path, name: str, *, whole: bool
) -> Iterator[str]:
    if whole:
        (result,) = connection.execute("PRAGMA quick_check(1)").fetchone()
        if result != "ok":
            yield f"{CATALOGUE_FILE} is damaged ({' '.join(str(result).split())})"
    for segment, key, last in connection.execute(_SEARCHED, (name, name)).fetchall():
        ids, query = None, _INDEXED if whole else f"SELECT count(*) FROM ({_INDEXED})"
        found = _read_column(connection, query, key=key, last=last)
        if whole:
            ids, count = found, len(found)
        else:
            (count,) = found
        for problem in _find_hnsw_damages(path / segment, count, ids):
            yield f"{segment}/{problem}"


def _find_hnsw_damages(directory: Path, applied: int, ids: set[str] | None) -> Iterator[str]:
    """Yield damage in the HNSW files of a collection, and contradictions between them.

    The files must hold at least ``applied`` vectors. ``ids`` are those of all vectors, so that
    everything is read; None reads a sample.
    """
    yield from (f"{name} is missing" for name in _FILES if not (directory / name).is_file())
    if not (header := _read_header(directory)):
        yield "header.bin is cut off"
        return
    if header["version"] != _FORMAT:
        if not 0 <= header["version"] < 100:  # noqa: PLR2004  a later format cannot be checked
            yield "header.bin is damaged"
        return
    yield from _find_contradictions(directory, header, applied)
    if count := header["count"]:
        if not _are_elements_valid(directory, header, whole=ids is not None):
            yield "data_level0.bin is damaged"
        if not _are_links_valid(directory, count, header["links"], whole=ids is not None):
            yield "link_lists.bin is damaged"
    if ids is not None and (problem := _check_labels(directory, count, ids)):
        yield f"index_metadata.pickle {problem}"


def _read_header(directory: Path) -> dict[str, int]:
    """Read the fields of ``header.bin``; none if the file is cut off."""
    raw = (directory / "header.bin").read_bytes()
    if len(raw) < _HEADER.itemsize:
        return {}
    fields = np.frombuffer(raw, _HEADER, 1)[0].tolist()
    return dict(zip(_HEADER.names or (), fields, strict=True))


def _open_elements(directory: Path, header: dict[str, int], mode: Literal["r", "r+"]) -> Any:
    """Open the elements of ``data_level0.bin``, laid out as ``header`` says, as a file map."""
    dimension = (header["label"] - header["vector"]) // 4
    layout = [("many", "<u2"), ("flags", "<u2"), ("near", "<u4", header["links0"])]
    element = np.dtype([*layout, ("vector", "<f4", dimension), ("label", "<u8")])
    return np.memmap(directory / "data_level0.bin", dtype=element, mode=mode)


def _find_contradictions(directory: Path, header: dict[str, int], applied: int) -> Iterator[str]:
    count, rest = header["count"], header["label"] - header["vector"]
    offsets = (header["vector"], header["label"])
    if (
        count < 0
        or rest <= 0
        or rest % 4
        or offsets != (4 + 4 * header["links0"], header["size"] - 8)
    ):
        yield "header.bin is damaged"
    sizes = {name: (directory / name).stat().st_size for name in _FILES}
    higher = sizes["link_lists.bin"] - 4 * count
    places = (count, header["most"])  # Chroma also writes places that are not taken yet
    agreements = {
        "data_level0.bin": sizes["data_level0.bin"] in {header["size"] * n for n in places},
        "length.bin": sizes["length.bin"] in {4 * n for n in places},
        "link_lists.bin": higher >= 0 and higher % (4 * header["links"] + 4) == 0,
        "index_metadata.pickle": _count_labels(directory) in {None, count},
    }
    for name, agrees in agreements.items():
        if not agrees:
            yield f"{name} is not of the same moment as header.bin"
    if count < applied:
        yield f"data_level0.bin holds {count} of {applied} vectors"


def _are_elements_valid(directory: Path, header: dict[str, int], *, whole: bool) -> bool:
    """Whether vectors have length 1, and their labels and neighbours exist.

    ``header`` has the layout. All elements are read if ``whole``, else a sample.
    """
    count, links = header["count"], header["links0"]
    elements = _open_elements(directory, header, "r")[:count]
    parts: Iterator[Any] = (elements[at : at + _CHUNK] for at in range(0, count, _CHUNK))
    if not whole:
        sample = np.random.default_rng().integers(0, count, _SAMPLE)
        parts = iter([elements[np.sort(sample)]])
    return all(_are_rows_valid(rows, count, links) for rows in parts)


def _are_rows_valid(rows: Any, count: int, links: int) -> bool:
    with np.errstate(all="ignore"):  # damaged bytes may decode to any number
        lengths = np.linalg.norm(rows["vector"].astype(np.float64), axis=1)
    used = np.arange(links) < rows["many"][:, None]
    return bool(
        np.all(np.abs(lengths - 1.0) < _TOLERANCE)
        and np.all(rows["label"] <= count)
        and np.all(rows["many"] <= links)
        and np.all(rows["near"][used] < count)
    )


def _are_links_valid(directory: Path, count: int, links: int, *, whole: bool) -> bool:
    """Whether neighbours on higher levels exist: of all elements if ``whole``, else of a few."""
    words = np.memmap(directory / "link_lists.bin", dtype="<u4", mode="r")
    at, step = 0, links + 1
    for _ in range(count if whole else min(count, _SAMPLE)):
        levels, rest = divmod(int(words[at]), 4 * step) if at < len(words) else (0, 1)
        end = at + 1 + levels * step
        if rest or levels > _MAX_LEVELS or end > len(words):
            return False
        rows = words[at + 1 : end].reshape(-1, step)
        many = rows[:, :1] & 0xFFFF
        if np.any(many > links) or np.any(rows[:, 1:][np.arange(links) < many] >= count):
            return False
        at = end
    return not whole or at == len(words)


def _count_labels(directory: Path) -> int | None:
    """Count the labels at the beginning of the pickle; None if missing, -1 if unreadable."""
    with (directory / "index_metadata.pickle").open("rb") as file:
        found = False
        try:
            for operation, argument, _ in islice(pickletools.genops(file), _MAX_OPERATIONS):
                if found and isinstance(argument, int) and "INT" in operation.name:
                    return argument
                found = found or argument == "total_elements_added"
        except Exception as error:  # truncated, or not a pickle
            raise_interruption(error)
            return -1
    return None


class _PlainUnpickler(pickle.Unpickler):
    """Reads numbers, strings and containers; refuses all classes, so no code can run."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse any class."""
        msg = f"{module}.{name}"
        raise pickle.UnpicklingError(msg)


def _read_labels(directory: Path) -> dict[str, int]:
    """Read the labels by id from the pickle; raises any error if it is damaged."""
    raw = (directory / "index_metadata.pickle").read_bytes()
    labels: dict[str, int] = _PlainUnpickler(io.BytesIO(raw)).load()["id_to_label"]
    return labels


def _check_labels(directory: Path, count: int, ids: set[str]) -> str | None:
    """Check the map from ids to labels; return its problem, None without one.

    There must be ``count`` labels, and one for each of ``ids``.
    """
    try:
        labels = _read_labels(directory)
        known = all(0 < label <= count for label in labels.values())
    except Exception as error:  # a damaged pickle may raise anything
        raise_interruption(error)
        return "is damaged"
    if not known or len(set(labels.values())) != len(labels):
        return "is damaged"
    lost = len(ids - labels.keys())
    return f"lacks {lost} vectors" if lost else None
