"""How far a replay is: a small file beside the sessions, so that a killed one can go on."""

import json
import os
import tempfile
from pathlib import Path
from typing import NamedTuple

from crabpath_retrievers.errors import InvalidInputError


class Checkpoint(NamedTuple):
    """What was replayed.

    Attributes:
        line: Number of the last line.
        digest: SHA-256 of all lines up to it.
        name: Tells the last line that was asked from all others; empty where none was.
    """

    line: int = 0
    digest: str = ""
    name: str = ""

    def write(self, path: Path) -> None:
        """Keep it in a private file, which is never half written.

        Raises:
            InvalidInputError: The file cannot be written.
        """
        try:
            number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
            with os.fdopen(number, "w", encoding="utf-8") as file:
                json.dump(self._asdict(), file)
                file.flush()
                os.fsync(number)  # else a power loss may leave an empty file under its name
            Path(name).replace(path)
        except OSError as error:
            msg = f"the checkpoint {path} cannot be written ({error.strerror}): choose another"
            raise InvalidInputError(msg) from error

    @classmethod
    def load(cls, path: Path) -> "Checkpoint":
        """What was kept; nothing yet where there is no file.

        Raises:
            InvalidInputError: It is no checkpoint.
        """
        if not path.exists():
            return cls()
        try:
            found = cls(**json.loads(path.read_bytes()))
            if not isinstance(found.line, int):
                raise TypeError  # noqa: TRY301  as any other odd content
        except (OSError, ValueError, TypeError) as error:
            msg = f"{path} is no checkpoint of a replay: give another file, or delete it"
            raise InvalidInputError(msg) from error
        return found

    read = load  # until every caller uses the new name
