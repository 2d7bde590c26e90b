"""The journal of changes, from which maintenance is undone.

Row changes, as pairs of before and after: how they are written, and undone exactly.

Transfer of episode credit from a merged or split document to the nodes that replace it.

Remove the data of a deleted namespace from journal rows that concern all namespaces.
"""

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import resolve_alias_keys
from crabpath_retrievers.storage.schema import journal
from crabpath_retrievers.storage.sql_tools import decode_vector, find_existing_keys, split_batches
from crabpath_retrievers.storage.write.learned import add_credit


def write_journal(
    connection: sa.Connection,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Add a row to the journal. It must never hold texts, which could not be forgotten then.

    Args:
        connection: An open transaction.
        change: Kind of the change.
        payload: What it did, JSON-safe.
        namespace: Name of the namespace that it concerns; None for several or none.
        inverse: What undo needs, JSON-safe; None for changes that cannot be undone.
    """
    connection.execute(
        journal.insert().values(
            created=time.time(),
            namespace=namespace,
            change=change,
            payload=json.dumps(payload),
            inverse=None if inverse is None else json.dumps(inverse),
        )
    )


Row = dict[str, Any]
RowChange = tuple[str, Row | None, Row | None]
"""Name of the table, the row before, the row after; None for no row."""

NODE_TABLES: Mapping[str, sa.Table] = {
    "weight_changes": s.weight_changes,
    "edges": s.edges,
    "overlay": s.overlay,
    "pair_counts": s.pair_counts,
    "usage": s.usage,
}
"""Tables of rows that move with a node. Weight changes come first: weights depend on them."""

COUNTER_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "pair_counts": ("count",),
    "usage": ("wins", "losses", "decay"),
}
"""Counter columns by table."""

_AT_ONCE = 500
_ENDS = ("source", "target", "node")


def get_primary_key(table: str, row: Any) -> tuple[Any, ...]:
    """The primary key of a row."""
    return tuple(row[column.name] for column in NODE_TABLES[table].primary_key)


def read_rows(
    connection: sa.Connection, table: str, keys: Iterable[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """The rows with these primary keys, by key."""
    columns = list(NODE_TABLES[table].primary_key.columns)
    found: dict[tuple[Any, ...], Row] = {}
    for part in split_batches(dict.fromkeys(keys), _AT_ONCE):
        query = sa.select(NODE_TABLES[table]).where(sa.tuple_(*columns).in_(part))
        # SQLite uses no index for comparisons of row values.
        for place, column in enumerate(columns):
            query = query.where(column.in_({key[place] for key in part}))
        for row in connection.execute(query).mappings():
            found[get_primary_key(table, row)] = dict(row)
    return found


def write_rows(
    connection: sa.Connection, insert: Callable[..., Any], images: Iterable[RowChange]
) -> None:
    """Write the rows after; deletions come first."""
    deleted: dict[str, list[Row]] = defaultdict(list)
    upserted: dict[str, list[Row]] = defaultdict(list)
    for table, before, after in images:
        if after is not None:
            upserted[table].append(after)
        elif before is not None:
            deleted[table].append(before)
    for name, rows in deleted.items():
        key = NODE_TABLES[name].primary_key.columns
        own = [column == sa.bindparam(f"the_{column.name}") for column in key]
        keys = [{f"the_{column.name}": row[column.name] for column in key} for row in rows]
        connection.execute(NODE_TABLES[name].delete().where(*own), keys)
    for name, rows in upserted.items():
        key = NODE_TABLES[name].primary_key.columns
        new = insert(NODE_TABLES[name])
        others = {c.name: new.excluded[c.name] for c in NODE_TABLES[name].c if c.name not in key}
        statement = new.on_conflict_do_update(index_elements=list(key), set_=others)
        connection.execute(statement, rows)


def restore_rows(
    connection: sa.Connection, insert: Callable[..., Any], images: Sequence[RowChange]
) -> list[RowChange]:
    """Undo row changes, but keep what was learned since.

    A row that changed since is kept as it is. Counters keep what was added since, and what was
    subtracted since is not restored. A weight is restored with the changes that led to it, unless
    their feedback was undone.

    Args:
        connection: An open transaction.
        insert: The insert function of the dialect, with ON CONFLICT.
        images: The row changes; for counters, deleted rows come before the row that they were
            added to.

    Returns:
        The row changes that were written.
    """
    written: list[RowChange] = []
    for table in NODE_TABLES:
        of_table = [image for image in images if image[0] == table]
        now = read_rows(
            connection, table, (get_primary_key(table, b or a or {}) for _, b, a in of_table)
        )
        changes: list[RowChange] = []
        shortfall: dict[str, float] = {}  # subtracted since from a sum of several rows
        for _, before, after in reversed(of_table):
            current = now.get(get_primary_key(table, before or after or {}))
            shortfall = (
                shortfall if after is None else _find_shortfall(table, before, after, current)
            )
            previous = (
                before if current == after else _subtract_change(table, before, after, current)
            )
            previous = _subtract_shortfall(previous, shortfall) if after is None else previous
            if previous != current:
                changes.append((table, current, previous))
        found = _filter_writable(connection, table, changes)
        write_rows(connection, insert, found)
        written += found
    return written


def _subtract_change(
    table: str, before: Row | None, after: Row | None, now: Row | None
) -> Row | None:
    """A row that changed since; counters without what the undone change had added."""
    if table not in COUNTER_COLUMNS:
        return now
    some = now or before or after or {}
    left = {
        name: max(0.0, _value(before, name) + _value(now, name) - _value(after, name))
        for name in COUNTER_COLUMNS[table]
    }
    return {**some, **left} if any(left.values()) else None


def _find_shortfall(
    table: str, before: Row | None, after: Row, now: Row | None
) -> dict[str, float]:
    """By how much a counter is below its value before the undone change."""
    missing = {
        n: _value(after, n) - _value(before, n) - _value(now, n)
        for n in COUNTER_COLUMNS.get(table, ())
    }
    return {name: amount for name, amount in missing.items() if amount > 0}


def _subtract_shortfall(row: Row | None, shortfall: dict[str, float]) -> Row | None:
    """A restored row minus the shortfall, which is reduced by that; None if no count is left."""
    if row is None or not shortfall:
        return row
    new = dict(row)
    for name, amount in shortfall.items():
        new[name] = max(0.0, row[name] - amount)
        shortfall[name] = max(0.0, amount - row[name])
    return new if any(new[name] for name in shortfall) else None


def _value(row: Row | None, name: str) -> float:
    return 0.0 if row is None else float(row[name])


def _filter_writable(
    connection: sa.Connection, table: str, images: Sequence[RowChange]
) -> list[RowChange]:
    """The changes that can be written: nodes, namespaces and weight changes exist."""
    restored = [after for _, _, after in images if after is not None]
    if not restored:
        return list(images)
    ends = {row[name] for row in restored for name in _ENDS if name in row}
    existing = (find_existing_keys(connection, ends) | {0}) - resolve_alias_keys(
        connection, ends
    ).keys()
    query = sa.select(s.namespaces.c.key)
    namespace_keys = {row["namespace"] for row in restored if "namespace" in row}
    namespaces = set(connection.scalars(query.where(s.namespaces.c.key.in_(namespace_keys))))
    undone = _find_undone(connection, restored) if table == "weight_changes" else set()
    changed_edges = _find_changed_edges(connection, restored) if table == "overlay" else None

    def is_writable(row: Row) -> bool:
        return (
            all(row[name] in existing for name in _ENDS if name in row)
            and ("namespace" not in row or row["namespace"] in namespaces)
            and row.get("cause") not in undone
            and (changed_edges is None or get_primary_key("overlay", row) in changed_edges)
        )

    return [image for image in images if image[2] is None or is_writable(image[2])]


def _find_undone(connection: sa.Connection, moves: Sequence[Row]) -> set[str]:
    """Ids of undone feedback among the causes."""
    query = sa.select(s.feedback.c.id).where(s.feedback.c.status == "undone")
    return {
        cause
        for part in split_batches({row["cause"] for row in moves})
        for cause in connection.scalars(query.where(s.feedback.c.id.in_(part)))
    }


def _find_changed_edges(connection: sa.Connection, weights: Sequence[Row]) -> set[tuple[Any, ...]]:
    """The edges among these for which weight changes are stored."""
    columns = (
        s.weight_changes.c.namespace,
        s.weight_changes.c.source,
        s.weight_changes.c.target,
        s.weight_changes.c.kind,
    )
    return {
        tuple(row)
        for part in split_batches({row["source"] for row in weights})
        for row in connection.execute(
            sa.select(*columns).where(s.weight_changes.c.source.in_(part)).distinct()
        )
    }


EpisodeChange = tuple[str, str, str]
"""An episode: its id, and its credit before and after, as JSON."""


def transfer_episode_credit(
    connection: sa.Connection, old: str, heir: Callable[[Vector], str]
) -> list[EpisodeChange]:
    """Transfer the credit of a document in all episodes to another one.

    Args:
        connection: An open transaction.
        old: Id of the document.
        heir: Gives the id of the other document for the unit query vector of an episode,
            shape ``[d]``.

    Returns:
        The episodes that were changed.
    """
    episodes = s.episodes.c
    named = episodes.documents.contains(json.dumps(old), autoescape=True)
    query = sa.select(episodes.id, episodes.documents, episodes.embedding).where(named)
    found: list[EpisodeChange] = []
    for identity, text, embedding in connection.execute(query).all():
        documents = json.loads(text)
        if old not in documents:
            continue
        credit, new = documents.pop(old), heir(decode_vector(embedding))
        after = json.dumps({**documents, new: documents.get(new, 0.0) + credit})
        found.append((identity, text, after))
    _write_documents(connection, [(identity, after) for identity, _, after in found])
    return found


def restore_episode_credit(connection: sa.Connection, changed: Sequence[Sequence[str]]) -> None:
    """Undo :func:`transfer_episode_credit`; credit that was added since is not moved back."""
    restored: list[tuple[str, str]] = []
    for identity, before, after in changed:
        query = sa.select(s.episodes.c.documents).where(s.episodes.c.id == identity)
        now = connection.scalar(query)
        if now == after:
            restored.append((identity, before))
        elif now is not None:
            was, became = json.loads(before), json.loads(after)
            difference = {n: was.get(n, 0.0) - became.get(n, 0.0) for n in {**was, **became}}
            restored.append((identity, json.dumps(add_credit(json.loads(now), difference))))
    _write_documents(connection, restored)


def _write_documents(connection: sa.Connection, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        own = s.episodes.c.id == sa.bindparam("episode")
        update = s.episodes.update().where(own).values(documents=sa.bindparam("now"))
        connection.execute(update, [{"episode": name, "now": text} for name, text in rows])


_GLOBAL_CHANGES = ("merge_nodes", "split_node")


def redact_journal(connection: sa.Connection, namespace: int) -> None:
    """Remove a namespace from the undo data of merges and splits.

    Args:
        connection: An open transaction that has deleted the episodes of the namespace already.
        namespace: Key of the namespace.
    """
    journal = s.journal.c
    query = sa.select(journal.sequence, journal.inverse)
    rows = connection.execute(
        query.where(journal.change.in_(_GLOBAL_CHANGES), journal.inverse != "")
    )
    for sequence, text in rows.all():
        inverse = json.loads(text)
        images = [image for image in inverse.get("images", ()) if not _concerns(image, namespace)]
        known = _find_existing_episodes(
            connection, [identity for identity, _, _ in inverse.get("episodes", ())]
        )
        episodes = [episode for episode in inverse.get("episodes", ()) if episode[0] in known]
        remaining = json.dumps({**inverse, "images": images, "episodes": episodes})
        update = s.journal.update().where(journal.sequence == sequence)
        connection.execute(update.values(inverse=remaining))


def _concerns(image: list[dict[str, int] | None], namespace: int) -> bool:
    """Whether a row change concerns a namespace."""
    _, *rows = image
    return any(row is not None and row.get("namespace") == namespace for row in rows)


def _find_existing_episodes(connection: sa.Connection, ids: list[str]) -> set[str]:
    query = sa.select(s.episodes.c.id)
    return {
        identity
        for part in split_batches(ids)
        for identity in connection.scalars(query.where(s.episodes.c.id.in_(part)))
    }
