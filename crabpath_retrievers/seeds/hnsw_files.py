"""Whether the files in which Chroma searches vectors are whole and of one moment.

Chroma rewrites them one after the other, so a process that dies then leaves files of two moments;
and it reads past the ends of files that hold nonsense. ``header.bin`` says how many elements of
which size there are; ``data_level0.bin`` holds for each its neighbours, its vector and its label,
``length.bin`` four bytes for each, ``link_lists.bin`` its neighbours on higher levels, and
``index_metadata.pickle`` which label stands for which id.
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
_LOOKED_AT = 64  # elements that are looked at where not all are
_AT_ONCE = 4096  # elements that are read at once where all are
_OFF = 0.05  # by which the length of a vector may differ from 1
_BEGINNING = 64  # steps of the pickle among which the number of labels stands


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


def hnsw_damage(place: Path, applied: int, ids: set[str] | None = None) -> str | None:
    """What is wrong with the files of one collection; None where nothing is found.

    Args:
        place: Their directory.
        applied: How many vectors they must hold at least.
        ids: Of these vectors; then everything is read, else the same few places of any index.
    """
    for name in _FILES:
        if not (place / name).is_file():
            return f"{name} is missing"
    raw = (place / "header.bin").read_bytes()
    if len(raw) < _HEADER.size:
        return "header.bin is cut off"
    header = _Header(*_HEADER.unpack_from(raw))
    if header.version != _FORMAT:
        # What a later release of Chroma writes is not ours to judge.
        return None if 0 <= header.version < 100 else "header.bin is damaged"  # noqa: PLR2004
    return next(_damages(place, header, applied, ids), None)


def _damages(place: Path, header: _Header, applied: int, ids: set[str] | None) -> Iterator[str]:
    count = header.elements
    rest = header.label - header.vector
    if count < 0 or rest <= 0 or rest % 4 or header.label + 8 != header.size:
        yield "header.bin is damaged"
        return
    higher = (place / "link_lists.bin").stat().st_size - 4 * count
    sizes = {"data_level0.bin": header.size * count, "length.bin": 4 * count}
    if higher < 0 or higher % (4 * header.links + 4):
        yield "link_lists.bin is not of the same moment as header.bin"
    for name, size in sizes.items():
        if (place / name).stat().st_size != size:
            yield f"{name} is not of the same moment as header.bin"
            return
    if _labels(place) not in {None, count}:
        yield "index_metadata.pickle is not of the same moment as header.bin"
    if count < applied:
        yield f"data_level0.bin holds {count} of {applied} vectors"
    with (place / "data_level0.bin").open("rb") as file:
        if any(_nonsense(rows, header) for rows in _elements(file, header, whole=ids is not None)):
            yield "data_level0.bin is damaged"
    with (place / "link_lists.bin").open("rb") as file:
        if not _linked(file, header, None if ids is not None else _LOOKED_AT):
            yield "link_lists.bin is damaged"
    if ids is not None:
        yield from _named(place, count, ids)


def _elements(file: BinaryIO, header: _Header, *, whole: bool) -> Iterator[np.ndarray[Any, Any]]:
    """Elements as bytes, some rows at a time."""
    starts = range(0, header.elements, _AT_ONCE)
    length = _AT_ONCE
    if not whole:
        drawn = np.random.default_rng().integers(0, max(1, header.elements), _LOOKED_AT)
        starts, length = sorted(drawn.tolist()), 1  # type: ignore[assignment]
    for start in starts:
        file.seek(start * header.size)
        raw = file.read(header.size * min(length, header.elements - start))
        yield np.frombuffer(raw, dtype=np.uint8).reshape(-1, header.size)


def _nonsense(rows: np.ndarray[Any, Any], header: _Header) -> bool:
    """Whether elements cannot be: vectors of another length than 1, unknown labels, neighbours."""
    with np.errstate(all="ignore"):  # bytes that are no vector may be anything
        vectors = rows[:, header.vector : header.label].copy().view("<f4").astype(np.float64)
        lengths = np.linalg.norm(vectors, axis=1)
    labels = rows[:, header.label :].copy().view("<u8")
    many = rows[:, :2].copy().view("<u2")[:, 0]
    near = rows[:, 4 : header.vector].copy().view("<u4")
    used = np.arange(near.shape[1]) < many[:, None]
    return bool(
        not np.all(np.abs(lengths - 1.0) < _OFF)
        or np.any(labels > header.elements)
        or np.any(many > header.links0)
        or np.any(near[used] >= header.elements)
    )


def _linked(file: BinaryIO, header: _Header, most: int | None) -> bool:
    """Whether neighbours on higher levels can be."""
    step = 4 * header.links + 4
    for _ in islice(range(header.elements), most):
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
    return most is not None or not file.read(1)


def _labels(place: Path) -> int | None:
    """How many labels were given, as the beginning of the pickle says; None where it does not."""
    with (place / "index_metadata.pickle").open("rb") as file:
        found = False
        try:
            for operation, argument, _ in islice(pickletools.genops(file), _BEGINNING):
                if found and isinstance(argument, int) and "INT" in operation.name:
                    return argument
                found = found or argument == "total_elements_added"
        except Exception:  # cut off, or no pickle at all
            return -1
    return None


class _Plain(pickle.Unpickler):
    """Reads numbers, texts and what holds them; nothing that could act."""

    def find_class(self, module: str, name: str) -> NoReturn:
        """Refuse any class."""
        msg = f"{module}.{name}"
        raise pickle.UnpicklingError(msg)


def _named(place: Path, count: int, ids: set[str]) -> Iterator[str]:
    try:
        read = _Plain(io.BytesIO((place / "index_metadata.pickle").read_bytes())).load()
        labels = read["id_to_label"]
        known = all(0 < label <= count for label in labels.values())
    except Exception:  # a damaged pickle may raise anything
        yield "index_metadata.pickle is damaged"
        return
    if not known or len(set(labels.values())) != len(labels):
        yield "index_metadata.pickle is damaged"
    elif lost := len(ids - labels.keys()):
        yield f"index_metadata.pickle lacks {lost} vectors"
