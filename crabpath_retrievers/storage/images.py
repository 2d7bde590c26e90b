"""Rows as they were and as they became: written, and taken back to the last bit."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.alive import alive_of
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.replaced import standing_keys

Row = dict[str, Any]
Image = tuple[str, Row | None, Row | None]
"""Table, the row before, the row after; None where there was or is none."""

TABLES: Mapping[str, sa.Table] = {
    "weight_changes": s.weight_changes,
    "edges": s.edges,
    "overlay": s.overlay,
    "pair_counts": s.pair_counts,
    "usage": s.usage,
}
"""Rows that speak of nodes and move with them. Moves first: weights stand on them."""

SUMS: Mapping[str, tuple[str, ...]] = {
    "pair_counts": ("count",),
    "usage": ("wins", "losses", "decay"),
}
"""Columns that add up, by table."""

_AT_ONCE = 500
_ENDS = ("source", "target", "node")


def key_of(table: str, row: Any) -> tuple[Any, ...]:
    """The primary key of a row."""
    return tuple(row[column.name] for column in TABLES[table].primary_key)


def rows_at(
    connection: sa.Connection, table: str, keys: Iterable[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """The rows with these primary keys, by key."""
    columns = list(TABLES[table].primary_key.columns)
    found: dict[tuple[Any, ...], Row] = {}
    for part in parts(dict.fromkeys(keys), _AT_ONCE):
        query = sa.select(TABLES[table]).where(sa.tuple_(*columns).in_(part))
        for place, column in enumerate(columns):  # SQLite finds no index for rows of values
            query = query.where(column.in_({key[place] for key in part}))
        for row in connection.execute(query).mappings():
            found[key_of(table, row)] = dict(row)
    return found


def write(connection: sa.Connection, insert: Callable[..., Any], images: Iterable[Image]) -> None:
    """Let rows be as they are after; those that go, go first."""
    gone: dict[str, list[Row]] = defaultdict(list)
    come: dict[str, list[Row]] = defaultdict(list)
    for table, before, after in images:
        if after is not None:
            come[table].append(after)
        elif before is not None:
            gone[table].append(before)
    for name, rows in gone.items():
        key = TABLES[name].primary_key.columns
        own = [column == sa.bindparam(f"the_{column.name}") for column in key]
        keys = [{f"the_{column.name}": row[column.name] for column in key} for row in rows]
        connection.execute(TABLES[name].delete().where(*own), keys)
    for name, rows in come.items():
        key = TABLES[name].primary_key.columns
        new = insert(TABLES[name])
        others = {c.name: new.excluded[c.name] for c in TABLES[name].c if c.name not in key}
        statement = new.on_conflict_do_update(index_elements=list(key), set_=others)
        connection.execute(statement, rows)


def restore(
    connection: sa.Connection, insert: Callable[..., Any], images: Sequence[Image]
) -> list[Image]:
    """Let rows be as they were before, but for what was learned since.

    A row that is not as it was left stays as it is; of counts, what came since is kept, and what
    was taken back since does not come back. A weight comes back with what had moved it, unless
    that was undone.

    Args:
        connection: An open transaction.
        insert: The dialect's insert with ON CONFLICT.
        images: What was changed; of sums, the rows that went are followed by that which they
            went into.

    Returns:
        What was written.
    """
    written: list[Image] = []
    for table in TABLES:
        mine = [image for image in images if image[0] == table]
        now = rows_at(connection, table, (key_of(table, b or a or {}) for _, b, a in mine))
        wanted: list[Image] = []
        owed: dict[str, float] = {}  # what was taken back since from a sum of several rows
        for _, before, after in reversed(mine):
            current = now.get(key_of(table, before or after or {}))
            owed = owed if after is None else _owed(table, before, after, current)
            then = before if current == after else _since(table, before, after, current)
            then = _without(then, owed) if after is None else then
            if then != current:
                wanted.append((table, current, then))
        found = _possible(connection, table, wanted)
        write(connection, insert, found)
        written += found
    return written


def _since(table: str, before: Row | None, after: Row | None, now: Row | None) -> Row | None:
    """A row that was changed since: of counts without what the change had added."""
    if table not in SUMS:
        return now
    some = now or before or after or {}
    left = {
        name: max(0.0, _of(before, name) + _of(now, name) - _of(after, name))
        for name in SUMS[table]
    }
    return {**some, **left} if any(left.values()) else None


def _owed(table: str, before: Row | None, after: Row, now: Row | None) -> dict[str, float]:
    """By how much more has gone from a sum than it had before."""
    short = {n: _of(after, n) - _of(before, n) - _of(now, n) for n in SUMS.get(table, ())}
    return {name: amount for name, amount in short.items() if amount > 0}


def _without(row: Row | None, owed: dict[str, float]) -> Row | None:
    """A row that comes back, less what is owed, which is less then; None where nothing is left."""
    if row is None or not owed:
        return row
    new = dict(row)
    for name, amount in owed.items():
        new[name] = max(0.0, row[name] - amount)
        owed[name] = max(0.0, amount - row[name])
    return new if any(new[name] for name in owed) else None


def _of(row: Row | None, name: str) -> float:
    return 0.0 if row is None else float(row[name])


def _possible(connection: sa.Connection, table: str, images: Sequence[Image]) -> list[Image]:
    """Those that can be written: their nodes and namespaces are there, and what moved them."""
    back = [after for _, _, after in images if after is not None]
    if not back:
        return list(images)
    ends = {row[name] for row in back for name in _ENDS if name in row}
    seen = (alive_of(connection, ends) | {0}) - standing_keys(connection, ends).keys()
    query = sa.select(s.namespaces.c.key)
    spaces = {row["namespace"] for row in back if "namespace" in row}
    known = set(connection.scalars(query.where(s.namespaces.c.key.in_(spaces))))
    undone = _undone(connection, back) if table == "weight_changes" else set()
    moved = _moved(connection, back) if table == "overlay" else None

    def fits(row: Row) -> bool:
        return (
            all(row[name] in seen for name in _ENDS if name in row)
            and ("namespace" not in row or row["namespace"] in known)
            and row.get("cause") not in undone
            and (moved is None or key_of("overlay", row) in moved)
        )

    return [image for image in images if image[2] is None or fits(image[2])]


def _undone(connection: sa.Connection, moves: Sequence[Row]) -> set[str]:
    """Feedback among the causes that was undone."""
    query = sa.select(s.feedback.c.id).where(s.feedback.c.status == "undone")
    return {
        cause
        for part in parts({row["cause"] for row in moves})
        for cause in connection.scalars(query.where(s.feedback.c.id.in_(part)))
    }


def _moved(connection: sa.Connection, weights: Sequence[Row]) -> set[tuple[Any, ...]]:
    """The edges among these that something has moved."""
    columns = (
        s.weight_changes.c.namespace,
        s.weight_changes.c.source,
        s.weight_changes.c.target,
        s.weight_changes.c.kind,
    )
    return {
        tuple(row)
        for part in parts({row["source"] for row in weights})
        for row in connection.execute(
            sa.select(*columns).where(s.weight_changes.c.source.in_(part)).distinct()
        )
    }
