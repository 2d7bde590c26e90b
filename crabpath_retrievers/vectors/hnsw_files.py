"""Checking the HNSW files of Chroma for damage and for consistency with each other.

Chroma rewrites them one by one, so a process killed meanwhile leaves files of two versions; and it
reads past the ends of damaged files. ``header.bin`` has number and size of the elements;
``data_level0.bin`` has neighbours, vector and label of each element, ``length.bin`` four bytes for
each, ``link_lists.bin`` the neighbours on higher levels, and ``index_metadata.pickle`` maps ids to
labels.
"""

import io
import pickle
import pickletools
import struct
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np

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
