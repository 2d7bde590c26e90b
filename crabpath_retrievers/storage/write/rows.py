"""Rows of a namespace as archives and snapshots hold them, and their way back into a store.

They stand there as in their tables, with the keys of their store. Whoever writes them back says
which node of the store each key means.
"""

import re
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage.registry import (
    COUNTERS,
    LOCAL_COLUMNS,
    NOTE_TABLES,
    OPTIONAL_NODE,
    REFERENCES,
    SNAPSHOT_TABLES,
    TABLES,
    find_own_rows,
)
from crabpath_retrievers.storage.sql_tools import CounterTable
from crabpath_retrievers.storage.write.transaction import Transaction

Row = Mapping[str, Any]
"""A row: values by column name; vectors and other binary values as bytes."""

SnapshotRows = dict[str, list[dict[str, Any]]]
"""Rows by table."""

_COUNTERS = {table: CounterTable(TABLES[table], names) for table, names in COUNTERS.items()}
_COMPRESSION_LEVEL = 1  # of zlib: the highest level is six times slower and saves a tenth
# Lists in the record of ``feedback_effects``: positions of node keys in their items.
_NODES_IN_EFFECTS = {"usage": (0,), "pair_counts": (0, 1), "transitions": (1, 4)}
_NEXT_POSITION = 4  # of the region that a transition led to
# Id of the episode of a note, with the key of the note.
_NOTE_EPISODE = re.compile(r"note-([0-9]{1,18})-(.*)", re.DOTALL)


def encode_rows(rows: object) -> bytes:
    """JSON of rows; bytes are base64."""
    return to_json(rows, bytes_mode="base64", inf_nan_mode="constants")


class NodeCollector(dict[int, int]):
    """Maps each key of a node to itself, and holds those that were asked for."""

    def __getitem__(self, key: int) -> int:
        """Collect a key."""
        self[key] = key
        return key


def translate_row(table: str, row: Row, keys: Mapping[int, int]) -> dict[str, Any]:
    """A row with the keys that nodes have elsewhere; effects of feedback lose unknown nodes.

    Args:
        table: Name of its table.
        row: The row.
        keys: New key of each node by its key in the row; 0, which is no node, is 0.

    Raises:
        KeyError: A node that the row means nothing without is unknown.
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
    """Rows with the keys that nodes have elsewhere, without those of unknown nodes."""
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
    """Insert rows of a namespace, by key and name; the store generates their own keys."""
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


def add_counts(
    tx: Transaction, table: str, namespace: int, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Add to the counters of a namespace in one of the tables of ``COUNTERS``."""
    given = [{**row, "namespace": namespace} for row in rows]
    _COUNTERS[table].add(tx.connection, given, undo=True)


def read_snapshot(tx: Transaction, namespace: int, name: str) -> bytes:
    """Read and compress the learned state of a namespace."""
    own = find_own_rows(namespace, name)
    queries = {table: sa.select(TABLES[table]).where(own[table]) for table in SNAPSHOT_TABLES}
    return _compress({table: tx.dicts(query) for table, query in queries.items()})


def _compress(rows: SnapshotRows) -> bytes:
    return zlib.compress(encode_rows(rows), _COMPRESSION_LEVEL)


def decode_snapshot(data: bytes) -> SnapshotRows:
    """The inverse of :func:`read_snapshot`.

    Raises:
        StoreError: The content is damaged.
    """
    try:
        found = from_json(zlib.decompress(data), allow_inf_nan=False)
        return {table: _decode_rows(table, found[table]) for table in SNAPSHOT_TABLES}
    except (ValueError, TypeError, LookupError, AttributeError, zlib.error) as error:
        msg = f"the snapshot is damaged ({error}): delete it, and restore another one"
        raise StoreError(msg) from error


def _decode_rows(table: str, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    binary = [c.name for c in TABLES[table].c if isinstance(c.type, sa.LargeBinary)]
    return [{**row, **{name: urlsafe_b64decode(row[name]) for name in binary}} for row in rows]


def remove_notes_from_snapshot(data: bytes, keys: Container[int]) -> bytes:
    """Remove the notes with these keys from compressed content."""
    rows = decode_snapshot(data)
    for table, column in NOTE_TABLES.items():
        rows[table] = [row for row in rows[table] if row[column] not in keys]
    return _compress(rows)
