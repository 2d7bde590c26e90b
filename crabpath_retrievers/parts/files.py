"""Files that are never half written: they get their name when they are complete."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from crabpath_retrievers.errors import InvalidInputError


@contextmanager
def open_replacement(path: Path, name: str) -> Iterator[IO[bytes]]:
    """Open a private temporary file that replaces ``path`` on success and is deleted on errors.

    Args:
        path: The file to replace.
        name: Name of the file in messages.

    Raises:
        InvalidInputError: The path cannot be written.
    """
    temporary = None
    try:
        with tempfile.NamedTemporaryFile(
            prefix=f".{path.name}.", dir=path.parent, delete=False
        ) as file:
            temporary = Path(file.name)
            yield file
            file.flush()
            os.fsync(file.fileno())  # otherwise a power loss may leave an empty file
        temporary.replace(path)
    except BaseException as error:
        if temporary is not None:
            temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            msg = f"{name} cannot be written ({error.strerror}): choose another path"
            raise InvalidInputError(msg) from error
        raise
