"""Progress of a replay in a small file, so that an interrupted replay can continue."""

import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.errors import InvalidInputError


class ReplayCheckpoint(NamedTuple):
    """Progress of a replay.

    Attributes:
        line: Number of the last replayed line; 0 for none.
        digest: SHA-256 of all lines up to it.
        name: Id of the last line whose query was asked; empty for none.
    """

    line: int = 0
    digest: str = ""
    name: str = ""

    def write(self, path: Path) -> None:
        """Write the checkpoint atomically to a private file.

        Raises:
            InvalidInputError: The file cannot be written.
        """
        try:
            number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(self._asdict(), file)
                file.flush()
                os.fsync(number)  # otherwise a power loss may leave an empty file
            Path(name).replace(path)
        except OSError as error:
            msg = f"the checkpoint {path} cannot be written ({error.strerror}): choose another"
            raise InvalidInputError(msg) from error

    @classmethod
    def load(cls, path: Path) -> "ReplayCheckpoint":
        """Load a checkpoint; an empty one if the file does not exist.

        Raises:
            InvalidInputError: The file is not a checkpoint.
        """
        if not path.exists():
            return cls()
        try:
            found = cls(**json.loads(path.read_bytes()))
            if not isinstance(found.line, int):
                raise TypeError  # noqa: TRY301  handled like other invalid content
        except (OSError, ValueError, TypeError) as error:
            msg = f"{path} is not a checkpoint of a replay: give another file, or delete it"
            raise InvalidInputError(msg) from error
        return found
