"""Reads files as documents: of a folder all of them, or none; and knows the folders of a memory.

A file that cannot be read must not look deleted, so an error refuses the whole folder.

A directory is known by its resolved path, a fact of this store alone: from another working
directory, or through a link, it is the same one, and nothing of it is added twice. The sources of
its files begin with its name.
"""

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple, NoReturn

from langchain_core.documents import Document

from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.errors import InvalidInputError, MissingExtraError
from crabpath_retrievers.ingest.chunking import name_first
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.write.nodes import put_meta

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
        former: Names that files in it had before, and no longer have.
        unprefixed: A directory in it, by relative path, whose files were so far named from that
            directory; None if there is none.
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
        """Return the former names of the sources that were named from ``unprefixed``."""
        if self.unprefixed is None:
            return []
        above = Path(self.name, self.unprefixed)
        below = [Path(source) for source in sources if Path(source).is_relative_to(above)]
        return [source.relative_to(above).as_posix() for source in below]


@dataclass(slots=True)
class SourceFolder:
    """Content of one file or directory.

    Attributes:
        documents: One document per file, even if the file is empty; of a PDF file one per page.
        skipped: Why files, and parts of files, were not read, by source and place.
    """

    root: ChosenRoot
    documents: list[Document] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)


def read_documents(
    paths: Iterable[Path], choose: Callable[[Path], ChosenRoot] | None = None
) -> tuple[list[Document], dict[str, str]]:
    """Read the documents of files and directories; also return why others could not be read.

    ``choose`` chooses the names of the files of each path; None keeps them as they are written.
    """
    choose = choose or (lambda path: ChosenRoot(path.as_posix()))
    folders = [read_folder(path, root=choose(path)) for path in paths]
    documents = [document for folder in folders for document in folder.documents]
    return documents, {name: why for folder in folders for name, why in folder.skipped.items()}


def read_folder(path: Path, *, root: ChosenRoot, largest: int | None = None) -> SourceFolder:
    """Read a file, or all files of a directory except hidden files and memories.

    ``root`` names the files. Files of more than ``largest`` bytes are left out; None sets no bound.

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
                documents, skipped = _parse(source, data)
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
    """List the files that :func:`read_documents` would read; ``choose`` is as there.

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
    """Read the documents of a file; also return why the file, or parts of it, cannot be read.

    In a bulk ingest a failing file must not stop the others: it may vanish in the meantime.
    """
    if not is_utf8(str(file.path)):
        return [], {file.source: NO_NAME}
    try:
        data = _read_unchanged(file.path, None)
        assert data is not None  # noqa: S101  there is no bound
        return _parse(file.source, data)
    except OSError as error:
        return [], {file.source: f"cannot be read ({error.strerror})"}
    except (InvalidInputError, MissingExtraError) as error:
        return [], {file.source: str(error)}


def _parse(source: str, data: bytes) -> tuple[list[Document], dict[str, str]]:
    """Parse the content of a file; also return why parts of it cannot be read."""
    part = load_part("crabpath_retrievers.parts.file_formats")
    parse: Callable[[str, bytes], tuple[list[Document], dict[str, str]]] = part.parse_file
    return parse(source, data)


def describe_skipped(skipped: Mapping[str, str]) -> list[str]:
    """Describe files that were not read, one line per reason."""
    sources: dict[str, list[str]] = {}
    for source, why in skipped.items():
        sources.setdefault(why, []).append(source)
    return [f"{name_first(names)}: {why}" for why, names in sources.items()]


def require_path(path: Path) -> None:
    """Refuse a path that does not exist."""
    if not path.exists():
        msg = f"{path} does not exist: give a file or a directory; nothing was changed"
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
    """Whether a name is valid UTF-8; names with other bytes could not be told apart."""
    return to_readable(name) == name


def to_readable(name: str) -> str:
    """Write the bytes of a name that are not UTF-8 as escape sequences."""
    return name.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _read_unchanged(file: Path, largest: int | None) -> bytes | None:
    """Read a file that does not change meanwhile; None if it has more than ``largest`` bytes.

    Raises:
        InvalidInputError: The file changed during three attempts.
    """
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


_log = logging.getLogger(__name__)
_FACT = "roots"


class KnownRoots:
    """Chooses the names of files and directories, and remembers them."""

    def __init__(self, store: GraphStore) -> None:
        """Read what a store remembers."""
        self._store = store
        self._places = self._read_known()  # by name
        self._chosen: dict[str, str] = {}
        self._left: set[str] = set()

    def choose(self, path: Path, *, follow: bool = False) -> ChosenRoot:
        """Choose the names of a file, or of the files of a directory; known files keep theirs.

        Args:
            follow: Whether a sync retires what is missing below the path, and so needs a name for
                it.

        Raises:
            InvalidInputError: A followed path has a name that is not in UTF-8.
        """
        whole = os.path.isdir(path)  # noqa: PTH112  what cannot be read is refused later
        place = Path(os.path.realpath(path if whole else path.parent))
        place = place if whole else place / path.name
        if follow and path == Path() and self._find_name(place) is None:
            self._places.setdefault(".", place.as_posix())  # whose files add may have brought
        unprefixed = self._give_up_unprefixed(place) if follow and whole else None
        known = self._find_name(place)
        name = known or self._choose_spelling(path, place, follow=follow)
        if follow and not is_utf8(name):
            msg = f"{to_readable(os.path.abspath(path))} cannot be followed: {NO_NAME}"  # noqa: PTH100
            raise InvalidInputError(msg)
        if known is None:
            self._warn_of_other(name, place)
            folder = Path(name).parent.as_posix()
            by_folder = not whole and folder not in self._places  # else any number of files
            own, at = (folder, place.parent) if by_folder else (name, place)
            self._chosen[own] = self._places[own] = at.as_posix()
        below = {n: Path(p) for n, p in self._places.items() if Path(p).is_relative_to(place)}
        inner = {at.relative_to(place): other for other, at in below.items() if at != place}
        former = [other for other, at in below.items() if at == place and other != name]
        if follow and (spelling := path.as_posix()) != name and self._has_moved(spelling, place):
            former.append(spelling)
        return ChosenRoot(name, inner, tuple(former), unprefixed)

    def _give_up_unprefixed(self, place: Path) -> Path | None:
        """Forget the root "." if it is ``place`` or below it, since it would match every source.

        Returns:
            Directory of that root, relative to ``place``; None if there was none to forget.
        """
        if "." not in self._places or not Path(self._places["."]).is_relative_to(place):
            return None
        self._left.add(".")
        return Path(self._places.pop(".")).relative_to(place)

    def remember(self) -> None:
        """Store what was chosen; in a sync, the caller holds the ingest lock."""
        with self._store.hold_ingest_lock():
            known = self._read_known()
            replaced = self._chosen.keys() - {"."}  # which all relative names stand below
            new = {
                name: place
                for name, place in known.items()
                if name not in self._left and replaced.isdisjoint(_list_above(name))
            }
            new |= self._chosen
            if new != known:
                self._store.write(put_meta, {_FACT: json.dumps(new)})

    def _read_known(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._store.catalog.meta().get(_FACT, "{}"))
        return found

    def _find_name(self, place: Path) -> str | None:
        """Find the name of a place at or below a known root; None for any other place."""
        names = {known: name for name, known in self._places.items()}
        for above in (place, *place.parents):
            if above.as_posix() in names:
                name = Path(names[above.as_posix()], place.relative_to(above)).as_posix()
                if self._locate(name) == place.as_posix():
                    return name
        return None

    def _locate(self, name: str) -> str | None:
        """Find the place that a name stands for; None for an unknown name."""
        for above in _list_above(name):
            if above in self._places:
                return Path(self._places[above], Path(name).relative_to(above)).as_posix()
        return None

    def _choose_spelling(self, path: Path, place: Path, *, follow: bool) -> str:
        """Choose the spelling of a path that stored sources have; if none, the path as written.

        ``place`` is where the path leads; ``follow`` says whether a sync needs a name other than
        ".".
        """
        absolute = Path(os.path.abspath(path))  # noqa: PTH100  links stay as they are
        ways = [path, absolute]
        if absolute.is_relative_to(here := Path.cwd()):
            ways.append(absolute.relative_to(here))
        named = [way.as_posix() for way in ways if is_utf8(way.as_posix())]
        if follow:
            named = [way for way in named if way != "."]
        held = next(filter(self._holds, named), None)
        if held is None:
            ends = (Path(*absolute.parts[at:]).as_posix() for at in range(1, len(absolute.parts)))
            held = next((end for end in ends if is_utf8(end) and self._has_moved(end, place)), None)
        return held or (*named, path.as_posix())[0]

    def _has_moved(self, name: str, place: Path) -> bool:
        """Whether ``place`` is probably the directory of a name whose place is unknown or gone.

        More than half of the files of that name must exist in it.
        """
        former = self._locate(name)
        if not place.is_dir() or (former is not None and os.path.exists(former)):  # noqa: PTH110
            return False
        held = {chunk.source for chunk in self._store.catalog.find_under_source(name)} - {name}
        there = [Path(place, Path(source).relative_to(name)).exists() for source in held]
        return 2 * sum(there) > len(there)

    def _holds(self, name: str) -> bool:
        return bool(self._store.catalog.find_under_source(name))

    def _warn_of_other(self, name: str, place: Path) -> None:
        """Warn if ``name`` stands for ``place`` from now on, and its former directory exists."""
        former = self._locate(name)
        if former in (None, place.as_posix()) or not os.path.exists(former):  # noqa: PTH110
            return
        if name == "." or self._holds(name):
            _log.warning(
                "%r of this memory now stands for another place than before, which still exists: "
                "files replace those of the same names, and a sync retires what is missing here",
                name,
            )


def _list_above(name: str) -> list[str]:
    """List a name and the names of the directories above it."""
    return [above.as_posix() for above in (Path(name), *Path(name).parents)]
