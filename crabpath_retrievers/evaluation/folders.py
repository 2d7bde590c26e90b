"""Directories that a run writes into."""

from pathlib import Path

from crabpath_retrievers.errors import InvalidInputError


def usable_folder(folder: Path, use: str) -> Path:
    """The directory, made where it is missing.

    Args:
        folder: Where to write.
        use: What it is for, as a user says it after "cannot", such as "hold the report".

    Raises:
        InvalidInputError: It cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot {use} ({error.strerror}): give a writable directory"
        raise InvalidInputError(msg) from error
    return folder
