"""Reads text files as documents: of a folder all of them, or none.

A file that cannot be read must not look deleted, so an error refuses the whole folder.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from langchain_core.documents import Document

from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.chunking import is_markdown, make_title

_ATTEMPTS = 3  # attempts to read a file that is being written
_GRAPH_FILE = "graph.sqlite"  # a directory with this file is a memory, not a source


@dataclass(slots=True)
class SourceFolder:
    """Content of one file or directory.

    Attributes:
        root: Prefix of the sources of all documents below it.
        documents: One document per text file, also per empty one.
        skipped: Sources of files that are not text or too large.
        aliases: If the root is the working directory: the sources that ``add`` gives its files.
    """

    root: str
    documents: list[Document] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    aliases: list[str] = field(default_factory=list)


def read_documents(paths: Iterable[Path]) -> tuple[list[Document], list[str]]:
    """The documents of text files and directories, and the sources of files that are not text.

    Raises:
        InvalidInputError: As for :func:`read_folder`.
    """
    folders = [read_folder(path) for path in paths]
    documents = [document for folder in folders for document in folder.documents]
    return documents, [source for folder in folders for source in folder.skipped]


def read_folder(path: Path, *, root: str | None = None, largest: int | None = None) -> SourceFolder:
    """Read a file, or all text files of a directory except hidden files and memories.

    Args:
        path: File or directory.
        root: Prefix of the sources; None for the path as it is written.
        largest: Size of the largest file that is read, in bytes; None for no bound.

    Raises:
        InvalidInputError: The path does not exist, or a file cannot be read or keeps changing.
    """
    folder = SourceFolder(path.as_posix() if root is None else root)
    try:
        require_path(path)
        for file in _list_source_files(path):
            below = file.relative_to(path)
            source = Path(folder.root, below).as_posix()
            data = _read_unchanged(file, largest)
            text = None if data is None else _decode_text(data)
            if text is None:
                folder.skipped.append(source)
                continue
            folder.documents.append(_make_document(source, text))
            if path == Path():
                folder.aliases.append(below.as_posix())
    except OSError as error:
        _refuse(error)
    return folder


def choose_root(path: Path, held: Callable[[str], bool]) -> str:
    """Choose the spelling of a root that the memory uses already: relative or absolute.

    Args:
        path: File or directory.
        held: Tells whether the memory holds documents under a root.
    """
    absolute = Path(os.path.abspath(path))  # noqa: PTH100  links stay as they are
    here = Path.cwd()
    ways = [path.as_posix(), absolute.as_posix()]
    if absolute.is_relative_to(here):
        ways.append(absolute.relative_to(here).as_posix())
    named = [way for way in ways if way != "."]  # "." would match every source
    return next(filter(held, named), named[0])


def require_path(path: Path) -> None:
    """Refuse a path that does not exist.

    Raises:
        InvalidInputError: The path does not exist.
    """
    if not path.exists():
        msg = f"{path} does not exist: give a text file or a directory; nothing was changed"
        raise InvalidInputError(msg)


def require_documents(folders: Iterable[SourceFolder]) -> None:
    """Refuse folders without documents: a wrong path is more likely than an emptied source.

    Raises:
        InvalidInputError: A folder has no documents with text.
    """
    for folder in folders:
        if all(is_blank(document.page_content) for document in folder.documents):
            msg = (
                f"{folder.root} contains no documents: check the path, or pass --allow-empty "
                "(allow_empty=True) to remove what the memory holds of it"
            )
            raise InvalidInputError(msg)


def _list_source_files(path: Path) -> Iterator[Path]:
    """Yield the files of a directory; links to directories and memories are skipped."""
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


def _read_unchanged(file: Path, largest: int | None) -> bytes | None:
    """Read a file that does not change meanwhile; None if it is too large."""
    for _ in range(_ATTEMPTS):
        before = file.stat()
        if largest is not None and before.st_size > largest:
            return None
        data = file.read_bytes()
        if _get_state(before) == _get_state(file.stat()) and len(data) == before.st_size:
            return data
    msg = f"{file} changed while it was read: try again when it is complete"
    raise InvalidInputError(msg)


def _get_state(found: os.stat_result) -> tuple[int, ...]:
    return found.st_size, found.st_mtime_ns, found.st_ino


def _decode_text(data: bytes) -> str | None:
    """Decode the content of a file; None if it is not text."""
    if b"\x00" in data:
        return None
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return None


def _make_document(source: str, text: str) -> Document:
    metadata = {"source": source}
    # The title of a Markdown file is its first heading, that of another file its name.
    if not is_markdown(source, metadata):
        metadata["title"] = make_title(source)
    return Document(page_content=text, metadata=metadata)


def _refuse(error: OSError) -> NoReturn:
    msg = f"{error.filename} cannot be read ({error.strerror}): nothing was changed"
    raise InvalidInputError(msg) from error
