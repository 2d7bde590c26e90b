"""Reads files as documents: of a folder all of them, or none.

A file that cannot be read must not look deleted, so an error refuses the whole folder.
"""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from langchain_core.documents import Document

from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.errors import InvalidInputError, MissingExtraError
from crabpath_retrievers.ingest.chunking import name_first
from crabpath_retrievers.ingest.parsers import parse_file

NO_NAME = "its name is not in UTF-8: rename it"
"""Why a file is not read."""
_ATTEMPTS = 3  # attempts to read a file that is being written
_GRAPH_FILE = "graph.sqlite"  # a directory with this file is a memory, not a source


@dataclass(frozen=True, slots=True)
class ChosenRoot:
    """The names of the files of a directory, or of one file.

    Attributes:
        name: What the sources of its files begin with.
        inner: Known directories below it, by path relative to it; their files keep their names.
        former: Other names of what it holds, which its files no longer have.
        unprefixed: Directory in it whose files, so far, are named from there, relative to it.
    """

    name: str
    inner: Mapping[Path, str] = field(default_factory=dict)
    former: tuple[str, ...] = ()
    unprefixed: Path | None = None

    def name_file(self, below: Path) -> str:
        """Name a file, given by its path relative to the directory."""
        for above in (below, *below.parents):
            if above in self.inner:
                return Path(self.inner[above], below.relative_to(above)).as_posix()
        return Path(self.name, below).as_posix()

    def list_unprefixed(self, sources: Iterable[str]) -> list[str]:
        """The names so far of those of its files that were named from their own directory."""
        if self.unprefixed is None:
            return []
        above = Path(self.name, self.unprefixed)
        below = [Path(source) for source in sources if Path(source).is_relative_to(above)]
        return [source.relative_to(above).as_posix() for source in below]


@dataclass(slots=True)
class SourceFolder:
    """Content of one file or directory.

    Attributes:
        root: The names of its files.
        documents: One document per file, also per empty one; of a PDF file one per page.
        skipped: Why files, and parts of files, were not read, by source and place.
    """

    root: ChosenRoot
    documents: list[Document] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_documents(
    paths: Iterable[Path], choose: Callable[[Path], ChosenRoot] | None = None
) -> tuple[list[Document], dict[str, str]]:
    """The documents of files and directories; and why others, or parts, were not read.

    Args:
        paths: Files and directories.
        choose: Chooses the names of the files of each; None names them as they are written.

    Raises:
        InvalidInputError: As for :func:`read_folder`.
    """
    choose = choose or (lambda path: ChosenRoot(path.as_posix()))
    folders = [read_folder(path, root=choose(path)) for path in paths]
    documents = [document for folder in folders for document in folder.documents]
    return documents, {name: why for folder in folders for name, why in folder.skipped.items()}


def read_folder(path: Path, *, root: ChosenRoot, largest: int | None = None) -> SourceFolder:
    """Read a file, or all files of a directory except hidden files and memories.

    Args:
        path: File or directory.
        root: The names of its files.
        largest: Size of the largest file that is read, in bytes; None for no bound.

    Raises:
        InvalidInputError: The path does not exist, or a file cannot be read or keeps changing.
    """
    folder = SourceFolder(root)
    try:
        require_path(path)
        for file in _list_source_files(path):
            below = file.relative_to(path)
            source = folder.root.name_file(below)
            if not is_utf8(source):
                folder.skipped[to_readable(source)] = NO_NAME
                continue
            data = _read_unchanged(file, largest)
            if data is None:
                folder.skipped[source] = f"larger than {largest:,} bytes"
                continue
            try:
                documents, skipped = parse_file(source, data)
            except (InvalidInputError, MissingExtraError) as error:
                folder.skipped[source] = str(error)
                continue
            folder.documents += documents
            folder.skipped |= skipped
    except OSError as error:
        _refuse(error)
    return folder


class SourceFile(NamedTuple):
    """A file, and its source: the path under which its documents are known."""

    path: Path
    source: str


def list_files(paths: Iterable[Path], choose: Callable[[Path], ChosenRoot]) -> list[SourceFile]:
    """The files that :func:`read_documents` reads, without reading them.

    Args:
        paths: Files and directories.
        choose: Chooses the names of the files of each.

    Raises:
        InvalidInputError: A path does not exist, or a directory cannot be read.
    """
    found: dict[str, SourceFile] = {}
    for path in paths:
        require_path(path)
        root = choose(path)
        for file in _list_source_files(path):
            source = root.name_file(file.relative_to(path))
            found[source] = SourceFile(file, to_readable(source))
    return list(found.values())


def read_source(file: SourceFile) -> tuple[list[Document], dict[str, str]]:
    """The documents of a file; and why it, or parts of it, cannot be read.

    Of a bulk ingest one file does not stop the others: it may change or vanish meanwhile.
    """
    if not is_utf8(str(file.path)):
        return [], {file.source: NO_NAME}
    try:
        data = _read_unchanged(file.path, None)
        assert data is not None  # noqa: S101  there is no bound
        return parse_file(file.source, data)
    except OSError as error:
        return [], {file.source: f"cannot be read ({error.strerror})"}
    except (InvalidInputError, MissingExtraError) as error:
        return [], {file.source: str(error)}


def describe_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Describe files that were not read, one line per reason.

    Args:
        skipped: Reasons by source.
    """
    sources: dict[str, list[str]] = {}
    for source, why in skipped.items():
        sources.setdefault(why, []).append(source)
    return [f"{name_first(names)}: {why}" for why, names in sources.items()]


def require_path(path: Path) -> None:
    """Refuse a path that does not exist.

    Raises:
        InvalidInputError: The path does not exist.
    """
    if not path.exists():
        msg = f"{path} does not exist: give a file or a directory; nothing was changed"
        raise InvalidInputError(msg)


def require_documents(folders: Iterable[SourceFolder]) -> None:
    """Refuse folders without documents: a wrong path is more likely than an emptied source.

    Raises:
        InvalidInputError: A folder has no documents with text.
    """
    for folder in folders:
        if all(is_blank(document.page_content) for document in folder.documents):
            unread = "; ".join(describe_skipped(folder.skipped))
            but = f" (not read: {unread})" if unread else ""
            msg = (
                f"{folder.root.name} contains no documents{but}: check the path, or pass "
                "--allow-empty (allow_empty=True) to remove what the memory holds of it"
            )
            raise InvalidInputError(msg)


def _list_source_files(path: Path) -> Iterator[Path]:
    """Yield the files of a directory; links to directories and memories are skipped."""
    if path.is_file():
        yield path
        return
    if not path.is_dir():
        msg = f"{path} is neither a file nor a directory: give a file or a directory"
        raise InvalidInputError(msg)
    for place, folders, names in os.walk(path, onerror=_refuse):
        if _GRAPH_FILE in names:
            folders.clear()
            continue
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        files = [Path(place, name) for name in sorted(names) if not name.startswith(".")]
        yield from (file for file in files if file.is_file())


def is_utf8(name: str) -> bool:
    """Whether no byte of a name stands outside UTF-8; any such byte would look the same."""
    return to_readable(name) == name


def to_readable(name: str) -> str:
    """A name with its bytes outside UTF-8 as escape sequences."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


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


def _refuse(error: OSError) -> NoReturn:
    msg = f"{error.filename} cannot be read ({error.strerror}): nothing was changed"
    raise InvalidInputError(msg) from error
