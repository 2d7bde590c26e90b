"""The journal of changes: what each did, and what undoes it.

Archives and snapshots hold rows of a namespace as they are in their tables, with the keys of their
store. Whoever writes them back says which node of the store each key means.
"""

import json
import re
import time
import zlib
from base64 import urlsafe_b64decode
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from pydantic_core import from_json, to_json

from crabpath_retrievers.core.calls import find_token
from crabpath_retrievers.errors import StoreError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import (
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


def write_journal(
    tx: Transaction,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Add a row to the journal, without texts, names or ids: the journal could not forget them.

    The id of the token that asked for it is added.

    Args:
        payload: What was changed, JSON-safe.
        namespace: Name of the one namespace that is concerned; None for several or none.
        inverse: What undoes the change, JSON-safe; None if nothing does.
    """
    token = find_token()
    if token is not None:
        payload = {**payload, "token": token}
    row = {
        "created": time.time(),
        "namespace": namespace,
        "change": change,
        "payload": json.dumps(payload),
        "inverse": None if inverse is None else json.dumps(inverse),
    }
    tx.run(s.journal.insert().values(row))


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


def add_counts(
    tx: Transaction, table: str, namespace: int, rows: Iterable[Mapping[str, Any]]
) -> None:
    """Add ``rows`` to the counters of a namespace in ``table``, one of ``COUNTERS``."""
    given = [{**row, "namespace": namespace} for row in rows]
    _COUNTERS[table].add(tx.connection, given, undo=True)


def read_snapshot(tx: Transaction, namespace: int, name: str) -> bytes:
    """Read the learned state of a namespace, given by key and name, as compressed bytes."""
    own = find_own_rows(namespace, name)
    queries = {table: sa.select(TABLES[table]).where(own[table]) for table in SNAPSHOT_TABLES}
    return _compress({table: tx.dicts(query) for table, query in queries.items()})


def _compress(rows: SnapshotRows) -> bytes:
    return zlib.compress(encode_rows(rows), _COMPRESSION_LEVEL)


def decode_snapshot(data: bytes) -> SnapshotRows:
    """The inverse of :func:`read_snapshot`."""
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
    """Remove the notes with these keys from the compressed ``data`` of a snapshot."""
    rows = decode_snapshot(data)
    for table, column in NOTE_TABLES.items():
        rows[table] = [row for row in rows[table] if row[column] not in keys]
    return _compress(rows)
