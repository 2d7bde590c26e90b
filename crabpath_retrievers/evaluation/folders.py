"""Places that a run writes into."""

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


def usable_file(file: Path | None) -> None:
    """See that figures can be written to a file, before the work begins; None is no file.

    Raises:
        InvalidInputError: Its directory cannot be made, or it is a directory itself.
    """
    if file is None:
        return
    usable_folder(file.parent, "hold the figures")
    if file.is_dir():
        msg = f"{file} is a directory: give the name of a file for --json"
        raise InvalidInputError(msg)
