"""Sources as clients see them: files are named from their common directory on.

Where documents lie on the machine of a server is nobody's business; what is shown finds them too.
"""

import asyncio
import posixpath
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import CrabPathError
from crabpath_server.queries import ServerQueries

_FRESH_SECONDS = 1.0  # for which the common directory is not looked for again
_TEXTS = frozenset({"text", "content", "query"})  # fields whose values are not changed
_MOST_NAMES = 10_000  # in one request; the memory refuses more
_MOST_PARENTS = 4  # how far the common directory may have moved down


class SourceNames:
    """Shortens sources in answers, and finds the stored ones of requests."""

    def __init__(self, memory: CrabPath) -> None:
        """Shorten the sources of ``memory``."""
        self._memory = memory
        self._root, self._until = "", 0.0

    async def refresh(self) -> None:
        """Look for the common directory of all sources that are absolute paths."""
        if time.monotonic() < self._until:
            return
        try:
            ends = await asyncio.to_thread(ServerQueries(self._memory.store).find_outer_sources)
        except CrabPathError:  # the request itself says so
            return
        folders = [posixpath.dirname(source) for source in ends]
        self._root = posixpath.join(posixpath.commonpath(folders), "") if folders else ""
        self._until = time.monotonic() + _FRESH_SECONDS

    def renew(self) -> None:
        """Look for the common directory again at once, as there are new sources."""
        self._until = 0.0

    def show(self, value: Any) -> Any:
        """Remove the common directory from JSON-safe data, except from texts of documents."""
        if not self._root:
            return value
        if isinstance(value, str):
            return self.hide(value) if self._root != "/" else value.removeprefix("/") or value
        if isinstance(value, Mapping):
            return {
                self.show(key): each if key in _TEXTS else self.show(each)
                for key, each in value.items()
            }
        return [self.show(each) for each in value] if isinstance(value, (list, tuple)) else value

    def hide(self, message: str) -> str:
        """Remove the common directory from a name or message."""
        return message.replace(self._root, "") if len(self._root) > 1 else message

    async def find(self, names: Iterable[str]) -> dict[str, str]:
        """Map shown names to stored sources and documents; unknown names stay."""
        await self.refresh()
        given = list(dict.fromkeys(names))
        if not self._root or not given or len(given) > _MOST_NAMES:
            return dict(zip(given, given, strict=True))
        return await asyncio.to_thread(self._find, given)

    async def find_one(self, name: str) -> str:
        """Map one shown name, as :meth:`find`."""
        return (await self.find([name]))[name]

    async def find_start(self, start: str | None) -> str | None:
        """Return the stored form of a text with which shown names of sources begin."""
        await self.refresh()
        if start is None or not self._root:
            return start
        known = await self._memory.aio.sources(under=start, limit=1)
        return start if known else self._root + start

    async def find_in_filter(self, condition: Any) -> Any:
        """Replace shown values of ``source`` in a filter by the stored ones."""
        names: dict[str, str] = {}
        _replace_sources(condition, lambda name: names.setdefault(name, name))
        known = await self.find(names)
        return _replace_sources(condition, lambda name: known[name])

    def _find(self, names: list[str]) -> dict[str, str]:
        found = self._find_under(names, [""])
        for roots in ([self._root], _list_parents(self._root)):
            missing = [name for name in names if name not in found]
            found |= self._find_under(missing, roots)
        return {name: found.get(name, name) for name in names}

    def _find_under(self, names: list[str], roots: list[str]) -> dict[str, str]:
        """Map names to stored names, by the first of ``roots`` under which they exist."""
        if not names or not roots:
            return {}
        wanted = [root + name for root in roots for name in names]
        chunks = self._memory.store.catalog.find_chunks(documents=wanted, sources=wanted)
        known = {name for chunk in chunks for name in (chunk.source, chunk.document)}
        return {
            name: root + name for root in reversed(roots) for name in names if root + name in known
        }


def _list_parents(folder: str) -> list[str]:
    """List the directories above, the nearest first: one may have been the common one before."""
    parts = folder.split("/")[:-2]
    return ["/".join([*parts[:count], ""]) for count in range(len(parts), 1, -1)][:_MOST_PARENTS]


def _replace_sources(condition: Any, find: Callable[[str], str], *, inside: bool = False) -> Any:
    if isinstance(condition, str):
        return find(condition) if inside else condition
    if isinstance(condition, Mapping):
        return {
            key: _replace_sources(value, find, inside=inside or key == "source")
            for key, value in condition.items()
        }
    if isinstance(condition, list):
        return [_replace_sources(value, find, inside=inside) for value in condition]
    return condition
