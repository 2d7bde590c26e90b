"""Row images, by which changes of maintenance are undone: dropped weights, added edges, knobs.

A row image is a row before and after. Undo keeps what changed since.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.parts.operation.rows import Row
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.schema import TABLES
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.transaction import Transaction

RowChange = tuple[str, Row | None, Row | None]
"""Name of the table, the row before, the row after; None for no row."""

_EDGE = ("namespace", "source", "target", "kind")
_ENDS = ("source", "target")
# Weight changes come before the weights, which depend on them.
_IN_ORDER = ("namespaces", "weight_changes", "edges", "overlay")
_AT_ONCE = 500


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
