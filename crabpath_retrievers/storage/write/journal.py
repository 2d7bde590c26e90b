"""The journal of changes: what each did, and the row images by which it is undone.

A row image is a row before and after. Everything that can be undone from the journal is stored as
images: dropped weights, added edges, knobs. Undo keeps what changed since.

Archives and snapshots hold rows of a namespace as they are in their tables, with the keys of their
store. Whoever writes them back says which node of the store each key means.
"""

import json
import re
import time
import zlib
from base64 import urlsafe_b64decode
from collections import defaultdict
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
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
from crabpath_retrievers.storage.sql_tools import CounterTable, split_batches
from crabpath_retrievers.storage.write.transaction import Transaction

Row = Mapping[str, Any]
"""A row: values by column name; vectors and other binary values as bytes."""
RowChange = tuple[str, Row | None, Row | None]
"""Name of the table, the row before, the row after; None for no row."""

_EDGE = ("namespace", "source", "target", "kind")
_ENDS = ("source", "target")
# Weight changes come before the weights, which depend on them.
_IN_ORDER = ("namespaces", "weight_changes", "edges", "overlay")
_AT_ONCE = 500


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


def get_primary_key(table: str, row: Any) -> tuple[Any, ...]:
    """Return the primary key of a row of a table."""
    return tuple(row[column.name] for column in TABLES[table].primary_key)


def read_rows(
    tx: Transaction, table: str, keys: Iterable[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """Read the rows with these primary keys, by key."""
    columns = list(TABLES[table].primary_key.columns)
    found: dict[tuple[Any, ...], Row] = {}
    for part in split_batches(dict.fromkeys(keys), _AT_ONCE):
        query = sa.select(TABLES[table]).where(sa.tuple_(*columns).in_(part))
        # SQLite uses no index for comparisons of row values.
        for place, column in enumerate(columns):
            query = query.where(column.in_({key[place] for key in part}))
        found |= {get_primary_key(table, row): row for row in tx.dicts(query)}
    return found


def write_rows(tx: Transaction, images: Iterable[RowChange]) -> None:
    """Write the rows ``images`` as they are after the changes, deletions first.

    Rows of namespaces are only updated, not created.
    """
    deleted: dict[str, list[Row]] = defaultdict(list)
    written: dict[str, list[Row]] = defaultdict(list)
    for table, before, after in images:
        if after is not None:
            written[table].append(after)
        elif before is not None:
            deleted[table].append(before)
    for name, rows in deleted.items():
        key = TABLES[name].primary_key.columns
        own = [column == sa.bindparam(f"the_{column.name}") for column in key]
        keys = [{f"the_{column.name}": row[column.name] for column in key} for row in rows]
        tx.run(TABLES[name].delete().where(*own), keys)
    for row in written.pop("namespaces", ()):
        tx.update(s.namespaces, s.namespaces.c.key == row["key"], **row)
    for name, rows in written.items():
        tx.upsert(TABLES[name], rows)


def restore_rows(tx: Transaction, images: Sequence[RowChange]) -> None:
    """Undo row changes, but keep what was learned since.

    Rows that changed since, and rows whose node or namespace is gone, stay as they are. Entries of
    ``weight_changes`` come back unless their feedback was undone or their edge has another weight
    by now; a weight only comes back if its edge has entries.
    """
    learned_anew = _find_learned_anew(tx, images)
    for table in _IN_ORDER:
        of_table = [image for image in images if image[0] == table]
        now = read_rows(tx, table, (get_primary_key(table, b or a or {}) for _, b, a in of_table))
        changes: list[RowChange] = []
        for _, before, after in reversed(of_table):
            current = _keep_columns(now.get(get_primary_key(table, before or after or {})), after)
            if current == after != before:
                changes.append((table, current, before))
        write_rows(tx, _filter_writable(tx, table, changes, learned_anew))


def _keep_columns(row: Row | None, image: Row | None) -> Row | None:
    """Select the columns of a row that ``image`` has, which may be only some.

    If the row or the image is None, the row is returned as it is.
    """
    return row if row is None or image is None else {name: row[name] for name in image}


def _find_learned_anew(tx: Transaction, images: Sequence[RowChange]) -> set[tuple[Any, ...]]:
    """Find the edges whose weight now is not the one that the changes ``images`` left."""
    after = {get_primary_key("overlay", b or a): a for t, b, a in images if t == "overlay"}
    now = read_rows(tx, "overlay", after)
    return {edge for edge, row in after.items() if now.get(edge) != row}


def _filter_writable(
    tx: Transaction,
    table: str,
    images: Sequence[RowChange],
    learned_anew: Collection[tuple[Any, ...]],
) -> list[RowChange]:
    """Select the changes to rows of ``table`` that may be written.

    Deletions may. A row may if its nodes and its namespace exist; an entry of ``weight_changes``
    also needs feedback that was not undone, and an edge that is not in ``learned_anew``; a weight
    needs an entry.
    """
    restored = [after for _, _, after in images if after is not None]
    if not restored:
        return list(images)
    ends = {row[name] for row in restored for name in _ENDS if name in row}
    existing = tx.hold_nodes(ends)
    spaces = {row["namespace"] for row in restored if "namespace" in row}
    query = sa.select(s.namespaces.c.key).with_for_update(read=True, key_share=True)
    namespaces = {key for (key,) in tx.select_in(query, s.namespaces.c.key, spaces)}
    undone: set[tuple[str, int]] = set()
    if table == "weight_changes":
        query = sa.select(s.feedback.c.id, s.namespaces.c.key).where(
            s.feedback.c.status == "undone", s.feedback.c.namespace == s.namespaces.c.name
        )
        causes = {row["cause"] for row in restored}
        undone = {(cause, key) for cause, key in tx.select_in(query, s.feedback.c.id, causes)}
    changed_edges: set[tuple[Any, ...]] | None = None
    if table == "overlay":
        query = sa.select(*(s.weight_changes.c[name] for name in _EDGE)).distinct()
        sources = {row["source"] for row in restored}
        rows = tx.select_in(query, s.weight_changes.c.source, sources)
        changed_edges = {tuple(row) for row in rows}

    def is_writable(row: Row) -> bool:
        return (
            all(row[name] in existing for name in _ENDS if name in row)
            and ("namespace" not in row or row["namespace"] in namespaces)
            and (row.get("cause"), row.get("namespace")) not in undone
            and (changed_edges is None or tuple(row[name] for name in _EDGE) in changed_edges)
            and (table != "weight_changes" or tuple(row[n] for n in _EDGE) not in learned_anew)
        )

    return [image for image in images if image[2] is None or is_writable(image[2])]


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
