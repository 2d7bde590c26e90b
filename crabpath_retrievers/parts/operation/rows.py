"""Rows of a namespace in archives and snapshots, which hold them as they are in their tables.

They have the keys of their store: whoever writes them back says which node each key means.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import from_json, to_json

from crabpath_retrievers.storage.schema import (
    COUNTERS,
    LOCAL_COLUMNS,
    OPTIONAL_NODE,
    REFERENCES,
    TABLES,
)
from crabpath_retrievers.storage.write.history import add_counts
from crabpath_retrievers.storage.write.transaction import Transaction

Row = Mapping[str, Any]
"""A row: values by column name; vectors and other binary values as bytes."""

# Lists in the record of ``feedback_effects``: positions of node keys in their items.
_NODES_IN_EFFECTS = {"usage": (0,), "pair_counts": (0, 1), "transitions": (1, 4)}
_NEXT_POSITION = 4  # of the region that a transition led to
# Id of the episode of a note, with the key of the note.
_NOTE_EPISODE = re.compile(r"note-([0-9]{1,18})-(.*)", re.DOTALL)


def encode_rows(rows: object) -> bytes:
    """Encode rows as JSON; bytes are base64."""
    return to_json(rows, bytes_mode="base64", inf_nan_mode="constants")


class NodeCollector(dict[int, int]):
    """Maps each node key to itself, and collects the keys that were looked up."""

    def __getitem__(self, key: int) -> int:
        """Collect a key."""
        self[key] = key
        return key


def translate_row(table: str, row: Row, keys: Mapping[int, int]) -> dict[str, Any]:
    """Replace keys of nodes in a row of ``table`` by new ones.

    ``keys`` maps former to new keys; 0 is no node. Effects of feedback lose nodes that are unknown.

    Raises:
        KeyError: The row cannot do without a node that is unknown.
    """
    new = dict(row)
    for column in REFERENCES.get(table, ()):
        new[column] = _translate_key(row[column], keys, optional=(table, column) == OPTIONAL_NODE)
    if table == "feedback_effects":
        new["record"] = to_json(_translate_effects(from_json(row["record"]), keys)).decode()
    if table == "episodes":
        new["id"] = _translate_episode_id(row["id"], keys)
    return new


def _translate_key(key: int, keys: Mapping[int, int], *, optional: bool = False) -> int:
    try:
        return keys[key]
    except KeyError:
        if optional:
            return 0
        raise


def _translate_effects(record: Mapping[str, Any], keys: Mapping[int, int]) -> dict[str, Any]:
    new: dict[str, Any] = {**record, **{name: [] for name in (*_NODES_IN_EFFECTS, "episodes")}}
    for name, places in _NODES_IN_EFFECTS.items():
        for item in record[name]:
            try:
                new[name].append(_translate_item(item, places, keys))
            except KeyError:
                continue
    for name, *rest in record["episodes"]:
        try:
            new["episodes"].append([_translate_episode_id(name, keys), *rest])
        except KeyError:
            continue
    return new


def _translate_item(
    item: Sequence[Any], places: Sequence[int], keys: Mapping[int, int]
) -> list[Any]:
    new = list(item)
    for place in places:
        new[place] = _translate_key(item[place], keys, optional=place == _NEXT_POSITION)
    return new


def _translate_episode_id(episode: str, keys: Mapping[int, int]) -> str:
    found = _NOTE_EPISODE.fullmatch(episode)
    return episode if found is None else f"note-{keys[int(found[1])]}-{found[2]}"


def translate_rows(
    table: str, rows: Iterable[Row], keys: Mapping[int, int]
) -> list[dict[str, Any]]:
    """Replace keys of nodes in rows of ``table``; rows of unknown nodes are left out.

    ``keys`` maps former to new keys; 0 is no node.
    """
    found = []
    for row in rows:
        try:
            found.append(translate_row(table, row, keys))
        except KeyError:
            continue
    return found


def insert_rows(
    tx: Transaction, table: str, rows: Iterable[Row], namespace: int, name: str
) -> None:
    """Insert rows of a namespace, given by key and name, into ``table``.

    The store generates keys of its own for the rows.
    """
    here: dict[str, Any] = {"owner": namespace, "indexed": 0, "namespace": namespace}
    if table == "feedback":
        here["namespace"] = name
    columns = TABLES[table].c
    own = {column: value for column, value in here.items() if column in columns}
    kept = [column.name for column in columns if column.name not in LOCAL_COLUMNS]
    new = [{**{column: row[column] for column in kept}, **own} for row in rows]
    if table in COUNTERS:  # keys may coincide where regions are missing
        add_counts(tx, table, namespace, new)
    else:
        tx.add(TABLES[table], new)
