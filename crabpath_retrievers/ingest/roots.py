"""The directories whose files a memory holds, each with the name that their sources begin with.

A directory is known by its resolved path, a fact of this store alone: from another working
directory, or through a link, it is the same one, and nothing of it is added twice.
"""

import json
import logging
import os
from pathlib import Path

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.files import NO_NAME, ChosenRoot, is_utf8, to_readable
from crabpath_retrievers.storage import GraphStore

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
            path: File or directory.
            follow: Whether what is gone below it retires: then it needs a name to find that by.

        Raises:
            InvalidInputError: What is followed has a name that is not in UTF-8.
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
        """Give up the root "." where it is ``place`` or below it: it would match every source.

        Returns:
            Its directory, relative to ``place``; None where there is none.
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
                self._store.apply([PutMeta(((_FACT, json.dumps(new)),))])

    def _read_known(self) -> dict[str, str]:
        found: dict[str, str] = json.loads(self._store.catalog.meta().get(_FACT, "{}"))
        return found

    def _find_name(self, place: Path) -> str | None:
        """The name of a place, which is a known one or below one; None for others."""
        names = {known: name for name, known in self._places.items()}
        for above in (place, *place.parents):
            if above.as_posix() in names:
                name = Path(names[above.as_posix()], place.relative_to(above)).as_posix()
                if self._locate(name) == place.as_posix():
                    return name
        return None

    def _locate(self, name: str) -> str | None:
        """The place that a name stands for; None for a name that is not known."""
        for above in _list_above(name):
            if above in self._places:
                return Path(self._places[above], Path(name).relative_to(above)).as_posix()
        return None

    def _choose_spelling(self, path: Path, place: Path, *, follow: bool) -> str:
        """The spelling that sources in the memory have already; else the path as it is written."""
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
        """Whether a directory is probably the one of this name, whose place is unknown or gone."""
        former = self._locate(name)
        if not place.is_dir() or (former is not None and os.path.exists(former)):  # noqa: PTH110
            return False
        held = {chunk.source for chunk in self._store.catalog.find_under_source(name)} - {name}
        there = [Path(place, Path(source).relative_to(name)).exists() for source in held]
        return 2 * sum(there) > len(there)

    def _holds(self, name: str) -> bool:
        return bool(self._store.catalog.find_under_source(name))

    def _warn_of_other(self, name: str, place: Path) -> None:
        """Say that a name stands for another directory from now on, where the former one exists."""
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
    """A name and those of the directories above it."""
    return [above.as_posix() for above in (Path(name), *Path(name).parents)]
