"""Reading files plain or gzipped, and checking them against their official format."""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from crabpath_retrievers.config.base import explain_first_error
from crabpath_retrievers.errors import InvalidInputError

T = TypeVar("T")


def read_json(path: Path, adapter: TypeAdapter[T], expected: str) -> T:
    """Read a JSON file as the type that the adapter describes; ``.gz`` may be missing in its name.

    A file that is missing, truncated or of another format than ``expected`` raises
    InvalidInputError.
    """
    with _open(path) as stream:
        data = stream.read()
    return _validate(path, adapter, data, expected)


def read_json_lines(path: Path, adapter: TypeAdapter[T], expected: str) -> Iterator[T]:
    """Yield the objects of a JSON-lines file; as :func:`read_json`."""
    with _open(path) as stream:
        for number, line in enumerate(stream, start=1):
            if line.strip():
                yield _validate(path, adapter, line, f"{expected}, line {number}")


def read_text(path: Path) -> str:
    """Read the text of a file."""
    with _open(path) as stream:
        return stream.read().decode("utf-8")


def find_file(path: Path, *endings: str) -> Path:
    """Return the file itself, or the only one in a folder with one of these endings."""
    if not path.is_dir():
        return path
    wanted = tuple(f"{ending}{zipped}" for ending in endings for zipped in ("", ".gz"))
    found = sorted(file for file in path.iterdir() if file.name.endswith(wanted))
    if len(found) == 1:
        return found[0]
    names = ", ".join(file.name for file in found) or f"none that ends in {' or '.join(wanted)}"
    msg = f"{path} does not hold exactly one file of the data set ({names}): name the file itself"
    raise InvalidInputError(msg)


def _validate(path: Path, adapter: TypeAdapter[T], data: bytes, expected: str) -> T:
    try:
        return adapter.validate_json(data)
    except ValidationError as error:
        what = explain_first_error(error)
        msg = f"{path} is not {expected} ({what}): give the official file, whole and unchanged"
        raise InvalidInputError(msg) from error


@contextmanager
def _open(path: Path) -> Iterator[IO[bytes]]:
    """Open the file, or the same file with ``.gz`` behind its name."""
    zipped = path if path.suffix == ".gz" else path.with_name(path.name + ".gz")
    found = path if path.exists() else zipped
    if not found.exists():
        msg = f"{path} does not exist: give the folder or file of the data set, plain or .gz"
        raise InvalidInputError(msg)
    try:
        with cast(
            "IO[bytes]", gzip.open(found) if found.suffix == ".gz" else found.open("rb")
        ) as stream:
            yield stream
    except (EOFError, gzip.BadGzipFile, zlib.error, UnicodeDecodeError) as error:
        msg = f"{found} is truncated or damaged ({error}): download it again"
        raise InvalidInputError(msg) from error
    except OSError as error:
        msg = f"{found} cannot be read ({error.strerror or error}): give a readable file"
        raise InvalidInputError(msg) from error
