"""Folders as they are now: listed and read so that nothing is missed and nothing is torn.

What cannot be read must not look as if it had been deleted: then the whole reading is refused.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from langchain_core.documents import Document

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.files import decoded, document_of

_ATTEMPTS = 3  # to read a file that is being written
_GRAPH_FILE = "graph.sqlite"  # a directory that holds it is a memory, not a source


@dataclass(slots=True)
class Folder:
    """One file or directory as it is now.

    Attributes:
        root: As sources under it begin.
        documents: One per text file.
        blank: Those of files without text.
        skipped: Sources of files that are no text or too large.
        aliases: How ``add`` calls the documents of the working directory, where that is the root.
    """

    root: str
    documents: list[Document] = field(default_factory=list)
    blank: list[Document] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)


def read_folder(path: Path, *, held: Callable[[str], bool], largest: int) -> Folder:
    """Read a file, or all text files of a directory but hidden ones and those of a memory.

    Args:
        path: Of the file or directory.
        held: Whether the memory holds anything under a root.
        largest: Bytes of the largest file that is read.

    Raises:
        InvalidInputError: It does not exist, it or something in it cannot be read or changes all
            the time; a single file is no text or too large.
    """
    try:
        require_path(path)
        folder = _read_files(path, Folder(_choose_root(path, held)), largest)
    except OSError as error:
        _refuse(error)
    if path.is_file() and folder.skipped:
        msg = f"{path} is no text of at most {largest:,} bytes: leave it out, or convert it"
        raise InvalidInputError(msg)
    return folder


def require_path(path: Path) -> None:
    """Refuse a path that does not exist.

    Raises:
        InvalidInputError: It does not.
    """
    if not path.exists():
        msg = f"{path} does not exist: give a text file or a directory; nothing was changed"
        raise InvalidInputError(msg)


def _read_files(path: Path, folder: Folder, largest: int) -> Folder:
    for file in _list_source_files(path):
        below = file.relative_to(path).as_posix()
        source = folder.root if file == path else f"{folder.root}/{below}"
        data = _read_unchanged(file, largest)
        text = None if data is None else decoded(data)
        if text is None:
            folder.skipped.append(source)
        elif not text.strip():
            folder.blank.append(document_of(source, text))
        else:
            folder.documents.append(document_of(source, text))
            if path == Path():
                folder.aliases.append(below)
    return folder


def _choose_root(path: Path, held: Callable[[str], bool]) -> str:
    """The root as the memory knows it already: the same folder may be written in several ways."""
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  links stay as they are
    here = Path.cwd()
    ways = [path.as_posix(), absolute.as_posix()]
    if absolute.is_relative_to(here):
        ways.append(absolute.relative_to(here).as_posix())
    named = [way for way in ways if way != "."]  # under "." would be everything
    return next(filter(held, named), named[0])


def _list_source_files(path: Path) -> Iterator[Path]:
    """The files of a directory; links to directories are not followed, memories left out."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        msg = f"{path} is neither a file nor a directory: give a text file or a directory"
        raise InvalidInputError(msg)
    for place, folders, names in os.walk(path, onerror=_refuse):
        if _GRAPH_FILE in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = [Path(place, name) for name in sorted(names) if not name.startswith(".")]
        yield from (file for file in files if file.is_file())


def _refuse(error: OSError) -> NoReturn:
    msg = f"{error.filename} cannot be read ({error.strerror}): nothing was changed"
    raise InvalidInputError(msg) from error


def _read_unchanged(file: Path, largest: int) -> bytes | None:
    """What a file holds, read while nobody wrote it; None where it is too large."""
    for _ in range(_ATTEMPTS):
        before = file.stat()
        if before.st_size > largest:
            return None
        data = file.read_bytes()
        if _get_state(before) == _get_state(file.stat()) and len(data) == before.st_size:
            return data
    msg = f"{file} changes while it is read: run sync again when it is complete"
    raise InvalidInputError(msg)


def _get_state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ino


def require_documents(folders: Iterable[Folder]) -> None:
    """Refuse folders without documents: rather a wrong path than a source that was emptied.

    Raises:
        InvalidInputError: One has none.
    """
    for folder in folders:
        if not folder.documents:
            msg = (
                f"{folder.root} holds no documents: check the path, or pass --allow-empty "
                "(allow_empty=True) to retire what the memory holds of it"
            )
            raise InvalidInputError(msg)
