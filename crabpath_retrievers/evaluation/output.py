"""Directories that a run writes to, checked before the work begins."""

from pathlib import Path

from crabpath_retrievers.errors import InvalidInputError


def make_folder(folder: Path, use: str) -> Path:
    """The directory, created where it is missing; InvalidInputError where that fails.

    ``use`` is its purpose, as it reads after "cannot", such as "hold the report".
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot {use} ({error.strerror}): give a writable directory"
        raise InvalidInputError(msg) from error
    return folder
