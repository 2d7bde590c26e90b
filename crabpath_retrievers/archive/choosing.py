"""Selects one namespace from an archive of a namespace or of a whole store."""

from collections.abc import Callable, Iterator
from typing import Any

from crabpath_retrievers.archive.reading import Archive
from crabpath_retrievers.changes.archive import Block, Row
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage.dump import NAMESPACE_TABLES
from crabpath_retrievers.storage.portable import NodeNames, translate_rows


def select_namespace(archive: Archive, namespace: str | None) -> str | None:
    """Return the namespace to import; None for the whole store.

    Raises:
        InvalidInputError: The archive does not contain the namespace.
    """
    own = archive.manifest.namespace
    if namespace is None or namespace == own:
        return own
    held = {own} if own is not None else {row["name"] for row in _iterate_namespaces(archive)}
    if namespace not in held:
        names = ", ".join(sorted(map(repr, held))) or "none"
        msg = f"the archive does not contain namespace {namespace!r}: it contains {names}"
        raise InvalidInputError(msg)
    return namespace


def make_block_reader(archive: Archive, namespace: str) -> Callable[[], Iterator[Block]]:
    """Make a function that yields the rows of a namespace, with nodes by id, on every call."""
    if archive.manifest.namespace is not None:
        return lambda: archive.blocks(list(NAMESPACE_TABLES))
    return _NamespaceBlocks(archive, namespace)


def _iterate_namespaces(archive: Archive) -> Iterator[Row]:
    for _, rows in archive.blocks(["namespaces"]):
        yield from rows


class _NamespaceBlocks:
    """Yields the rows of one namespace from the archive of a whole store."""

    def __init__(self, archive: Archive, namespace: str) -> None:
        self._archive, self._name = archive, namespace
        found = (row["key"] for row in _iterate_namespaces(archive) if row["name"] == namespace)
        self._key = next(found)
        nodes = [(row["key"], row["id"], row["owner"]) for row in self._iterate_rows("nodes")]
        self._naming = NodeNames.for_export({key: name for key, name, _ in nodes})
        self._own_nodes = {key for key, _, owner in nodes if owner == self._key}
        own = (row["id"] for row in self._iterate_rows("feedback") if row["namespace"] == namespace)
        self._feedback_ids = set(own)

    def __call__(self) -> Iterator[Block]:
        for table in NAMESPACE_TABLES:
            for name, rows in self._archive.blocks([table]):
                own = [row for row in rows if self._is_own(name, row)]
                if own:
                    yield name, list(translate_rows((name, own), self._naming))

    def _iterate_rows(self, table: str) -> Iterator[Row]:
        for _, rows in self._archive.blocks([table]):
            yield from rows

    def _is_own(self, table: str, row: Row) -> bool:
        tests: dict[str, Any] = {
            "namespaces": lambda: row["key"] == self._key,
            "nodes": lambda: row["owner"] == self._key,
            "contents": lambda: row["node"] in self._own_nodes,
            "feedback": lambda: row["namespace"] == self._name,
            "consumed_turns": lambda: row["feedback"] in self._feedback_ids,
        }
        return bool(tests[table]() if table in tests else row["namespace"] == self._key)
