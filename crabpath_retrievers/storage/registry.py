"""What the rows of each table refer to: forgetting, removal, copies and checks all follow this."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s

TABLES: Mapping[str, sa.Table] = {
    table.name.removeprefix("crabpath_"): table
    for table in sorted(s.metadata.sorted_tables, key=lambda table: table.name)
}
"""All tables by their names without prefix."""

NODE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "contents": ("node",),
    "names": ("node",),
    "addresses": ("node",),
    "references": ("node",),
    "edges": ("source", "target"),
    "notes": ("node",),
    "overlay": ("source", "target"),
    "weight_changes": ("source", "target"),
    "pair_counts": ("source", "target"),
    "usage": ("node",),
    "transitions": ("region",),
}
"""Columns with the key of a node without which a row means nothing; 0 is none (STOP, all regions).

``transitions.next`` is not among them: the region that an action led to may be unknown.
"""

OPTIONAL_NODE = ("transitions", "next")
"""The column with the key of a node that may be missing."""

REFERENCES = {**NODE_COLUMNS, "transitions": ("region", "next")}
"""All columns that refer to nodes, by table."""

COUNTERS: Mapping[str, tuple[str, ...]] = {
    "pair_counts": ("count",),
    "usage": ("wins", "losses", "decay"),
    "transitions": ("trials", "wins", "ends", "end_wins"),
}
"""Columns that count, by table: values start at 0, and rows of zeros are deleted.

While evidence that lowered a pair is in effect, and what it lowered is undone, its count is below
0: readers take 0.
"""

NAMESPACE_TABLES = (
    *("namespaces", "nodes", "contents", "episodes", "turns", "feedback", "consumed_turns"),
    *("feedback_effects", "notes", "overlay", "weight_changes", "pair_counts", "usage"),
    "transitions",
)
"""Tables in the archive of a namespace, each after those that it refers to by key or id.

Snapshots, health reports and the journal are left out: they describe their own store.
"""

SNAPSHOT_TABLES = (
    *("namespaces", "nodes", "contents", "notes", "overlay", "pair_counts", "usage"),
    *("transitions", "episodes"),
)
"""Tables in a snapshot: the state that was learned, not what was asked and recorded."""

NOTE_TABLES = {"nodes": "key", "contents": "node", "notes": "node"}
"""Tables with a row for each note, and the column with its key."""

KEYED_BY_NAMESPACE = tuple(
    table
    for table in s.metadata.sorted_tables
    if "namespace" in table.c and isinstance(table.c.namespace.type, sa.BigInteger)
)
"""Tables with the key of a namespace in each row."""

LOCAL_COLUMNS = frozenset({"namespace", "owner", "indexed", "sequence", "key"})
"""Columns that depend on the store, so that a row of a namespace gets others elsewhere."""

REEMBEDDED_AT = "reembedded"
"""Fact about the graph store: when its embedder was changed, in seconds since the epoch."""

LOCAL_META = ("schema_version", "origin", "vectors", "corpus", "identity", "indexed", "roots")
"""Metadata that is not copied to another store."""

EXPORTED = {name: t for name, t in TABLES.items() if name not in {"staging", "index_deletions"}}
"""Tables in the archive of a whole store: all but the queues of unfinished work."""


def list_node_columns(*tables: str) -> list[sa.Column[int]]:
    """The columns of these tables, or of all tables, that refer to nodes."""
    return [
        TABLES[name].c[column] for name in tables or NODE_COLUMNS for column in NODE_COLUMNS[name]
    ]


def list_orphans() -> dict[str, sa.ColumnElement[bool]]:
    """Conditions on rows, by table, whose namespace, node, turn or feedback is gone.

    Rows of a table refer to those of tables before it. Feedback that waits may be about a turn that
    is not written yet.
    """

    def lacks(column: sa.Column[Any], of: sa.Column[Any]) -> sa.ColumnElement[bool]:
        return ~sa.exists().where(of == column)

    nameless = {t: lacks(t.c.namespace, s.namespaces.c.name) for t in (s.feedback, s.journal)}
    found: dict[str, sa.ColumnElement[bool]] = {
        "nodes": (s.nodes.c.owner > 0) & lacks(s.nodes.c.owner, s.namespaces.c.key),
        "journal": s.journal.c.namespace.is_not(None) & nameless[s.journal],
        "feedback": (s.feedback.c.status != "waiting") & nameless[s.feedback],
    }
    for name, table in TABLES.items():
        ends = [table.c[column] for column in NODE_COLUMNS.get(name, ())]
        lost: list[sa.ColumnElement[bool]] = []
        lost += [(end != 0) & lacks(end, s.nodes.c.key) for end in ends]
        if table in KEYED_BY_NAMESPACE:
            lost.append(lacks(table.c.namespace, s.namespaces.c.key))
        if lost:
            found[name] = sa.or_(*lost)
    e, of, space = s.feedback_effects.c, s.feedback.c, s.namespaces.c
    kept = sa.exists().where(
        of.id == e.feedback, of.namespace == space.name, space.key == e.namespace
    )
    found["feedback_effects"] |= ~kept
    found["consumed_turns"] = lacks(s.consumed_turns.c.turn, s.turns.c.id)
    return found


OWNER_COLUMNS: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys(NAMESPACE_TABLES, ("namespace", "key")),
    "namespaces": ("key", "key"),
    "nodes": ("owner", "key"),
    "contents": ("node", "note"),
    "notes": ("node", "note"),
    "feedback": ("namespace", "name"),
    "consumed_turns": ("turn", "turn"),
}
"""The column that tells whose a row is, by table, and what it holds.

It is the key or the name of the namespace, the key of a note, or the id of a turn.
"""


def find_own_rows(namespace: int, name: str) -> dict[str, sa.ColumnElement[bool]]:
    """Conditions: a row of each of ``NAMESPACE_TABLES`` belongs to a namespace, by key and name."""
    own: Mapping[str, Any] = {
        "key": [namespace],
        "name": [name],
        "note": sa.select(s.nodes.c.key).where(s.nodes.c.owner == namespace),
        "turn": sa.select(s.turns.c.id).where(s.turns.c.namespace == namespace),
    }
    return {
        table: TABLES[table].c[column].in_(own[what])
        for table, (column, what) in OWNER_COLUMNS.items()
    }
