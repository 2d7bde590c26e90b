"""Rows of a namespace by ids of nodes, as they travel; keys differ between stores.

Pure functions between rows as a store holds them and rows as they travel. There node 0, which
stands for STOP, for everywhere or for unknown, is None.
"""

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic_core import to_json

from crabpath_retrievers.changes.archive import Block, Row

NODES: Mapping[str, tuple[str, ...]] = {
    "contents": ("node",),
    "notes": ("node",),
    "overlay": ("source", "target"),
    "weight_changes": ("source", "target"),
    "pair_counts": ("source", "target"),
    "usage": ("node",),
    "transitions": ("region", "next"),
}
"""Columns that name nodes, by table."""

LOCAL = frozenset({"namespace", "owner", "indexed", "sequence", "key"})
"""Columns that only mean something in their own store."""

# Of the lists in the record of a lesson: the places of their items that name nodes.
_IN_LESSONS = {"usage": (0,), "pair_counts": (0, 1), "transitions": (1, 4)}
_LED, _LED_TO = 4, ("transitions", "next")  # where a step led
_NOTED = "note-"  # how the ids of episodes begin that recall a note; the key or id of it follows


class _UnknownNodeError(LookupError):
    """A node that does not exist here."""


class Naming(NamedTuple):
    """What nodes are called on the other side: of those that exist there."""

    names: Mapping[Any, Any]
    nothing: Any
    nothing_there: Any
    read: type

    @classmethod
    def leaving(cls, ids: Mapping[int, str]) -> "Naming":
        """For rows that leave a store: ids by key."""
        return cls(ids, 0, None, int)

    @classmethod
    def coming(cls, keys: Mapping[str, int]) -> "Naming":
        """For rows that come into a store: keys by id."""
        return cls(keys, None, 0, str)

    def of(self, node: Any) -> Any:
        """What a node is called there."""
        if node == self.nothing:
            return self.nothing_there
        if node not in self.names:
            raise _UnknownNodeError
        return self.names[node]

    def if_known(self, node: Any) -> Any:
        """What a node is called there; nothing where it does not exist."""
        return self.names.get(node, self.nothing_there)


def nodes_in(block: Block, read: type) -> set[Any]:
    """All nodes that rows speak of.

    Args:
        block: Rows of one table.
        read: ``int`` where they are named by key, ``str`` where by id.
    """
    table, rows = block
    found = {row[column] for column in NODES.get(table, ()) for row in rows}
    if table == "feedback_effects":
        for row in rows:
            found |= _in_lesson(json.loads(row["record"]), read)
    if table == "episodes":
        found |= {read(note) for row in rows if (note := _noted(row["id"]))}
    return found - {0, None}


def needed(table: str, row: Row) -> set[str]:
    """Ids of the nodes without which a row on its way means nothing."""
    columns = (column for column in NODES.get(table, ()) if (table, column) != _LED_TO)
    return {row[column] for column in columns} - {None}


def translated(block: Block, naming: Naming) -> list[dict[str, Any]]:
    """Rows by what their nodes are called on the other side.

    Rows that speak of a node that does not exist there are left out; lessons go without it.
    """
    table, rows = block
    found = []
    for row in rows:
        try:
            found.append(_translated(table, row, naming))
        except _UnknownNodeError:
            continue
    return found


def _translated(table: str, row: Row, naming: Naming) -> dict[str, Any]:
    new = {column: value for column, value in row.items() if column not in LOCAL}
    for column in NODES.get(table, ()):
        # Where a step led may be forgotten, that it was taken may not.
        led = (table, column) == _LED_TO
        new[column] = naming.if_known(row[column]) if led else naming.of(row[column])
    if table == "feedback_effects":
        new["record"] = to_json(_lesson(json.loads(row["record"]), naming)).decode()
    if table == "episodes":
        new["id"] = _episode(row["id"], naming)
    return new


def _in_lesson(record: Mapping[str, Any], read: type) -> set[Any]:
    found = {
        item[place]
        for name, places in _IN_LESSONS.items()
        for item in record[name]
        for place in places
    }
    return found | {read(note) for episode in record["episodes"] if (note := _noted(episode[0]))}


def _lesson(record: Mapping[str, Any], naming: Naming) -> dict[str, Any]:
    new = dict(record)
    for name, places in _IN_LESSONS.items():
        items = (list(item) for item in record[name])
        new[name] = [item for item in items if _renamed(item, places, naming)]
    episodes = []
    for name, *rest in record["episodes"]:
        try:
            episodes.append([_episode(name, naming), *rest])
        except _UnknownNodeError:
            continue
    return {**new, "episodes": episodes}


def _renamed(item: list[Any], places: tuple[int, ...], naming: Naming) -> bool:
    """Whether all nodes of an item exist there, by whose names it goes now."""
    try:
        for place in places:
            item[place] = (naming.if_known if place == _LED else naming.of)(item[place])
    except _UnknownNodeError:
        return False
    return True


def _noted(episode: str) -> str:
    """The key, or id, of the note that an episode recalls; empty where it recalls none."""
    if not episode.startswith(_NOTED):
        return ""
    return episode.removeprefix(_NOTED).rpartition("-")[0]


def _episode(episode: str, naming: Naming) -> str:
    if not (note := _noted(episode)):
        return episode
    return f"{_NOTED}{naming.of(naming.read(note))}-{episode.rpartition('-')[2]}"
