"""What a run writes: places that are checked before the work begins, figures, cached vectors."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from crabpath_retrievers.errors import InvalidInputError


def make_folder(folder: Path, use: str) -> Path:
    """Make a directory unless it exists; InvalidInputError where that fails.

    ``use`` is its purpose, as it reads after "cannot", such as "hold the report".
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        msg = f"{folder} cannot {use} ({error.strerror}): give a writable directory"
        raise InvalidInputError(msg) from error
    return folder


def check_outputs(json_file: Path | None, folder: Path | None = None) -> None:
    """Check that figures and report can be written; the directories are created.

    A path of None is not written; what cannot be written raises InvalidInputError.
    """
    if json_file is not None:
        make_folder(json_file.parent, "hold the figures")
        if json_file.is_dir():
            msg = f"{json_file} is a directory: give the name of a file for --json"
            raise InvalidInputError(msg)
    if folder is not None:
        make_folder(folder, "hold the report")


def write_json(figures: Mapping[str, Any], file: Path | None) -> None:
    """Write figures as JSON; None writes nothing.

    The file is moved into place, so a run that is killed leaves the previous file intact.
    """
    if file is not None:
        part = file.with_name(f"{file.name}.part")
        part.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        part.replace(file)


@contextmanager
def report_damaged_cache(cache: Path | None) -> Iterator[None]:
    """Turn the error of a half-written cached vector into a sentence that says what to do."""
    try:
        yield
    except json.JSONDecodeError as error:  # data sets are validated; cached vectors are not
        msg = f"{cache} holds a vector that was written in part: delete the directory"
        raise InvalidInputError(msg) from error
