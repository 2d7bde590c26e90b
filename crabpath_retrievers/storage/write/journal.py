"""The journal of changes: what each did, and the row images by which it is undone.

A row image is a row before and after. Everything that can be undone from the journal is stored as
images: dropped weights, added edges, merges, knobs. Undo keeps what changed since.
"""

import json
import time
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import resolve_alias_keys
from crabpath_retrievers.storage.registry import COUNTERS, TABLES
from crabpath_retrievers.storage.sql_tools import find_existing_keys, split_batches
from crabpath_retrievers.storage.write.learned import add_credit
from crabpath_retrievers.storage.write.transaction import Transaction

Row = dict[str, Any]
RowChange = tuple[str, Row | None, Row | None]
"""Name of the table, the row before, the row after; None for no row."""

_EDGE = ("namespace", "source", "target", "kind")
_ENDS = ("source", "target", "node")
# Weight changes come before the weights, which depend on them.
_IN_ORDER = ("namespaces", "weight_changes", "edges", "overlay", "pair_counts", "usage")
_AT_ONCE = 500


def write_journal(
    tx: Transaction,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Add a row to the journal. It must never hold texts, which could not be forgotten then.

    Args:
        tx: The transaction.
        change: Kind of the change.
        payload: What it did, JSON-safe.
        namespace: Name of the namespace that it concerns; None for several or none.
        inverse: What undo needs, JSON-safe; None for changes that cannot be undone.
    """
    row = {
        "created": time.time(),
        "namespace": namespace,
        "change": change,
        "payload": json.dumps(payload),
        "inverse": None if inverse is None else json.dumps(inverse),
    }
    tx.run(s.journal.insert().values(row))


def get_primary_key(table: str, row: Any) -> tuple[Any, ...]:
    """The primary key of a row."""
    return tuple(row[column.name] for column in TABLES[table].primary_key)


def read_rows(
    tx: Transaction, table: str, keys: Iterable[tuple[Any, ...]]
) -> dict[tuple[Any, ...], Row]:
    """The rows with these primary keys, by key."""
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
    """Write the rows after; deletions come first. Rows of ``namespaces`` are only updated."""
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


def restore_rows(tx: Transaction, images: Sequence[RowChange]) -> list[RowChange]:
    """Undo row changes, but keep what was learned since.

    A row that changed since is kept as it is. Counters keep what was added since, and what was
    subtracted since is not restored. A weight is restored with the changes that led to it, unless
    their feedback was undone or the weight was learned anew.

    Args:
        tx: The transaction.
        images: The row changes; for counters, deleted rows come before the row that they were
            added to.

    Returns:
        The row changes that were written.
    """
    written: list[RowChange] = []
    learned_anew = _find_learned_anew(tx, images)
    for table in _IN_ORDER:
        of_table = [image for image in images if image[0] == table]
        now = read_rows(tx, table, (get_primary_key(table, b or a or {}) for _, b, a in of_table))
        changes: list[RowChange] = []
        shortfall: dict[str, float] = {}  # subtracted since from a sum of several rows
        for _, before, after in reversed(of_table):
            current = _keep_columns(now.get(get_primary_key(table, before or after or {})), after)
            shortfall = (
                shortfall if after is None else _find_shortfall(table, before, after, current)
            )
            previous = (
                before if current == after else _subtract_change(table, before, after, current)
            )
            previous = _subtract_shortfall(previous, shortfall) if after is None else previous
            if previous != current:
                changes.append((table, current, previous))
        found = _filter_writable(tx, table, changes, learned_anew)
        write_rows(tx, found)
        written += found
    return written


def _keep_columns(row: Row | None, image: Row | None) -> Row | None:
    """A row with the columns of its image, which need not be all."""
    return row if row is None or image is None else {name: row[name] for name in image}


def _find_learned_anew(tx: Transaction, images: Sequence[RowChange]) -> set[tuple[Any, ...]]:
    """Edges that have another weight now than after the changes."""
    after = {get_primary_key("overlay", b or a): a for t, b, a in images if t == "overlay"}
    now = read_rows(tx, "overlay", after)
    return {edge for edge, row in after.items() if now.get(edge) != row}


def _subtract_change(
    table: str, before: Row | None, after: Row | None, now: Row | None
) -> Row | None:
    """A row that changed since; counters without what the undone change had added."""
    if table not in COUNTERS:
        return now
    some = now or before or after or {}
    left = {
        name: max(0.0, _value(before, name) + _value(now, name) - _value(after, name))
        for name in COUNTERS[table]
    }
    return {**some, **left} if any(left.values()) else None


def _find_shortfall(
    table: str, before: Row | None, after: Row, now: Row | None
) -> dict[str, float]:
    """By how much a counter is below its value before the undone change."""
    missing = {
        n: _value(after, n) - _value(before, n) - _value(now, n) for n in COUNTERS.get(table, ())
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
    tx: Transaction,
    table: str,
    images: Sequence[RowChange],
    learned_anew: Collection[tuple[Any, ...]],
) -> list[RowChange]:
    """The changes that can be written: nodes, namespaces and weight changes exist."""
    restored = [after for _, _, after in images if after is not None]
    if not restored:
        return list(images)
    ends = {row[name] for row in restored for name in _ENDS if name in row}
    replaced = resolve_alias_keys(tx.connection, ends).keys()
    existing = (find_existing_keys(tx.connection, ends) | {0}) - replaced
    spaces = {row["namespace"] for row in restored if "namespace" in row}
    query = sa.select(s.namespaces.c.key)
    namespaces = {key for (key,) in tx.select_in(query, s.namespaces.c.key, spaces)}
    undone: set[str] = set()
    if table == "weight_changes":
        query = sa.select(s.feedback.c.id).where(s.feedback.c.status == "undone")
        causes = {row["cause"] for row in restored}
        undone = {cause for (cause,) in tx.select_in(query, s.feedback.c.id, causes)}
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
            and row.get("cause") not in undone
            and (changed_edges is None or tuple(row[name] for name in _EDGE) in changed_edges)
            and (table != "weight_changes" or tuple(row[n] for n in _EDGE) not in learned_anew)
        )

    return [image for image in images if image[2] is None or is_writable(image[2])]


EpisodeChange = tuple[str, str, str]
"""An episode: its id, and its credit before and after, as JSON."""


def transfer_episode_credit(tx: Transaction, old: str, heir: str) -> list[EpisodeChange]:
    """Transfer the credit of a document in all episodes to another one.

    Args:
        tx: The transaction.
        old: Id of the document.
        heir: Id of the other document.

    Returns:
        The episodes that were changed.
    """
    episodes = s.episodes.c
    named = episodes.documents.contains(json.dumps(old), autoescape=True)
    query = sa.select(episodes.id, episodes.documents).where(named)
    found: list[EpisodeChange] = []
    for identity, text in tx.run(query).all():
        documents = json.loads(text)
        if old in documents:
            credit = documents.pop(old)
            after = json.dumps({**documents, heir: documents.get(heir, 0.0) + credit})
            found.append((identity, text, after))
    _write_documents(tx, [(identity, after) for identity, _, after in found])
    return found


def restore_episode_credit(tx: Transaction, changed: Sequence[Sequence[str]]) -> None:
    """Undo :func:`transfer_episode_credit`; credit that was added since is not moved back."""
    restored: list[tuple[str, str]] = []
    for identity, before, after in changed:
        now = tx.scalar(sa.select(s.episodes.c.documents).where(s.episodes.c.id == identity))
        if now == after:
            restored.append((identity, before))
        elif now is not None:
            was, became = json.loads(before), json.loads(after)
            difference = {n: was.get(n, 0.0) - became.get(n, 0.0) for n in {**was, **became}}
            restored.append((identity, json.dumps(add_credit(json.loads(now), difference))))
    _write_documents(tx, restored)


def _write_documents(tx: Transaction, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        own = s.episodes.c.id == sa.bindparam("episode")
        update = s.episodes.update().where(own).values(documents=sa.bindparam("now"))
        tx.run(update, [{"episode": name, "now": text} for name, text in rows])


def redact_journal(tx: Transaction, namespace: int) -> None:
    """Remove a namespace, whose episodes are deleted already, from undo data of merges.

    Other rows of the journal concern one namespace, with which they are deleted.
    """
    journal = s.journal.c
    query = sa.select(journal.sequence, journal.inverse)
    of_all = journal.change == "merge_nodes"
    for sequence, text in tx.run(query.where(of_all, journal.inverse != "")).all():
        inverse = json.loads(text)
        images = [image for image in inverse.get("images", ()) if not _concerns(image, namespace)]
        ids = [identity for identity, _, _ in inverse.get("episodes", ())]
        rows = tx.select_in(sa.select(s.episodes.c.id), s.episodes.c.id, ids)
        known = {identity for (identity,) in rows}
        episodes = [episode for episode in inverse.get("episodes", ()) if episode[0] in known]
        remaining = json.dumps({**inverse, "images": images, "episodes": episodes})
        tx.update(s.journal, journal.sequence == sequence, inverse=remaining)


def _concerns(image: Sequence[Any], namespace: int) -> bool:
    """Whether a row change concerns a namespace."""
    return any(row is not None and row.get("namespace") == namespace for row in image[1:])
