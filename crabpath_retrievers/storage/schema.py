"""All tables of the graph store: integer surrogate keys inside, stable string ids outside.

First those of the corpus, which all namespaces share; then, from ``namespaces``, those of what each
of them asked and learned.

Last what the rows of each table refer to: forgetting, removal, copies and checks follow this.
"""

import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
    TypeDecorator,
)


def compress_text(text: bytes) -> bytes:
    """Compress a text in UTF-8 as :class:`CompressedText` does."""
    return zlib.compress(text, level=1)


class CompressedText(TypeDecorator[str]):
    """Text that is stored compressed; statements that bypass SQLAlchemy read it as bytes."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> bytes | None:
        """Compress a text that is written; None stays."""
        del dialect
        return None if value is None else compress_text(value.encode())

    def process_result_value(self, value: bytes | None, dialect: Any) -> str | None:
        """Decompress a text that was read; None stays."""
        del dialect
        return None if value is None else zlib.decompress(value).decode()


metadata = MetaData()
# SQLite only autoincrements a column declared INTEGER; PostgreSQL needs 64 bits spelled out.
Key = BigInteger().with_variant(Integer, "sqlite")

meta = Table(
    "crabpath_meta",
    metadata,
    Column("name", String(64), primary_key=True),
    Column("value", Text, nullable=False),
)

# The columns that retrieval reads of every node; everything else about it is in ``contents``.
nodes = Table(
    "crabpath_nodes",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("mentions", Integer, nullable=False, default=0),
    Column("title", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    Column("terms", LargeBinary, nullable=False),
    # Key of the namespace that alone sees the node; 0: all do; below 0: hidden (see ``retired``).
    Column("owner", BigInteger, nullable=False, server_default="0"),
    # Number of its ``graph.Authority``, which sets how fast learned weights to it decay.
    Column("authority", SmallInteger, nullable=False, server_default="0"),
    # A node is a hub of all levels from 1 to this one; notes have level 0.
    Column("level", SmallInteger, nullable=False, server_default="0"),
    sqlite_autoincrement=True,
)
# Ids of notes belong to their namespace. A document hides a note with its id.
Index("ix_crabpath_nodes_id", nodes.c.id, nodes.c.owner, unique=True)
Index("ix_crabpath_nodes_level", nodes.c.level)

contents = Table(
    "crabpath_contents",
    metadata,
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False, index=True),
    # Compared by code points, as on SQLite: sources that begin alike stand together.
    Column(
        "source",
        Text().with_variant(Text(collation="C"), "postgresql"),
        nullable=False,
        index=True,
    ),
    Column("position", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("length", Integer, nullable=False),
    Column("content", Text, nullable=False),
    Column("metadata", Text, nullable=False),
    # Id of the node that this one is a part of, copied from its metadata, for the partial index.
    Column("split_from", Text),
)
Index(
    "ix_crabpath_contents_split_from",
    contents.c.split_from,
    sqlite_where=contents.c.split_from.is_not(None),
    postgresql_where=contents.c.split_from.is_not(None),
)

# Names by which other texts mention a node: titles, headings, aliases of the document.
names = Table(
    "crabpath_names",
    metadata,
    # Compared by code points, as on SQLite: names that begin alike stand together.
    Column("name", Text().with_variant(Text(collation="C"), "postgresql"), primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_names_node", names.c.node)

# Link targets that lead to a node: file names, URLs, anchors.
addresses = Table(
    "crabpath_addresses",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_addresses_node", addresses.c.node)

# Link targets that occur in the text of a node.
references = Table(
    "crabpath_references",
    metadata,
    Column("address", Text, primary_key=True),
    Column("node", Key, primary_key=True, autoincrement=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_references_node", references.c.node)

# Structural edges, derived from the text; learned weights are in ``overlay``.
edges = Table(
    "crabpath_edges",
    metadata,
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("prior", Float, nullable=False),
    # Weight to which decay brings the edge back.
    Column("floor", Float, nullable=False),
    # Decay exponent from which its weight decays in a namespace without a learned weight.
    Column("decay_at", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_edges_target", edges.c.target, edges.c.kind)

# Document frequency of each term.
terms = Table(
    "crabpath_terms",
    metadata,
    Column("term", Text, primary_key=True),
    Column("frequency", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)

# Queue of unfinished ingest work; a restart finishes it.
staging = Table(
    "crabpath_staging",
    metadata,
    Column("id", Text, primary_key=True),
    # Before publication: "put", "remove", "retire", "move". After it: "link" waits for
    # edges, "index" for its vector in the index, "return" for its vector and then for edges.
    Column("operation", String(8), nullable=False),
    Column("payload", Text),
    Column("embedding", LargeBinary),
    # Where it stood in its batch: nodes get their keys in this order.
    Column("place", Integer, nullable=False, server_default="0"),
)

# Ids whose vectors must still be deleted from the vector index.
index_deletions = Table("crabpath_index_deletions", metadata, Column("id", Text, primary_key=True))

# Who asks and learns.
namespaces = Table(
    "crabpath_namespaces",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    # Number of its last turn.
    Column("turn", BigInteger, nullable=False, default=0),
    # Accumulated decay exponent.
    Column("exponent", Float, nullable=False, default=0.0),
    # Incremented by every change of learned state: for optimistic locking and for caches.
    Column("version", BigInteger, nullable=False, server_default="0"),
    # 1 while the namespace must not learn.
    Column("frozen", SmallInteger, nullable=False, server_default="0"),
    # Its ranking model as JSON; null before it first learned.
    Column("model", Text),
    Column("note_count", BigInteger, nullable=False, server_default="0"),
    # Settings that the autotuner changed for this namespace, and its state, as JSON.
    Column("knobs", Text),
    Column("tuning", Text),
    # Keys are never reused: vectors of a deleted namespace must not be found by a new one.
    sqlite_autoincrement=True,
)

# Learned weights of edges, by namespace.
overlay = Table(
    "crabpath_overlay",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("weight", Float, nullable=False),
    # Decay exponent of the namespace when the weight was written.
    Column("decay_at", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_overlay_source", overlay.c.source)
# The target comes first, so that the index serves the removal of nodes too.
Index("ix_crabpath_overlay_target", overlay.c.target, overlay.c.namespace)

turns = Table(
    "crabpath_turns",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("namespace", Key, nullable=False),
    # Number of the turn within its namespace, from 1.
    Column("clock", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    # Id of the LangChain run that asked.
    Column("run_id", String(64), index=True),
    # Copied from the record: ``trial:arm`` of its trial, and the conversation.
    Column("arm", Text),
    Column("record", CompressedText, nullable=False),
    Column("embedding", LargeBinary),
    Column("session", Text),
)
Index("ix_crabpath_turns_clock", turns.c.namespace, turns.c.clock)
Index(
    "ix_crabpath_turns_session",
    turns.c.namespace,
    turns.c.session,
    turns.c.clock,
    sqlite_where=turns.c.session.is_not(None),
    postgresql_where=turns.c.session.is_not(None),
)

journal = Table(
    "crabpath_journal",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("created", Float, nullable=False),
    Column("namespace", Text),
    Column("change", String(32), nullable=False),
    Column("payload", Text, nullable=False),
    Column("inverse", Text),
)

feedback = Table(
    "crabpath_feedback",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False),
    Column("created", Float, nullable=False),
    Column("payload", Text, nullable=False),
    # "waiting", "applied", "undone", "refused" or "repeated"; the note gives the reason.
    Column("status", String(8), nullable=False, index=True),
    Column("note", Text),
    # Null while the turn is not known.
    Column("namespace", Text),
    # Vector of the correction; null without a correction or without an embedder.
    Column("embedding", LargeBinary),
    # Copied from the payload, for the indexes.
    Column("user", Text),
    Column("source", String(16)),
    # Id of the token of the server that gave it.
    Column("token", Text),
    sqlite_autoincrement=True,
)
Index("ix_crabpath_feedback_id", feedback.c.id, feedback.c.namespace, unique=True)
Index("ix_crabpath_feedback_user", feedback.c.user, feedback.c.sequence)
Index("ix_crabpath_feedback_namespace", feedback.c.namespace, feedback.c.sequence)

# Turns that feedback was learned from; the feedback is of the namespace of the turn.
consumed_turns = Table(
    "crabpath_consumed_turns",
    metadata,
    Column("turn", String(64), primary_key=True),
    Column("feedback", Text, primary_key=True, index=True),
)

# Evidence for edges that do not exist yet: turns in which both nodes were used, or in which the
# source led to a target that was blamed for a failure.
pair_counts = Table(
    "crabpath_pair_counts",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("count", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_pair_counts_source", pair_counts.c.source)
Index("ix_crabpath_pair_counts_target", pair_counts.c.target)

# Returned documents: how often each was used (wins) and not used (losses).
usage = Table(
    "crabpath_usage",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("wins", Float, nullable=False),
    Column("losses", Float, nullable=False),
    # By how many nats failures lowered its reward, which they multiply by exp(-decay).
    Column("decay", Float, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_usage_node", usage.c.node)

# Past queries with credit by document; similar queries recall them.
episodes = Table(
    "crabpath_episodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("query", Text, nullable=False),
    # Turns with this query.
    Column("turns", Float, nullable=False),
    # Those of them for which the host named the used documents.
    Column("labelled_turns", Float, nullable=False, server_default="1"),
    # JSON: credit by node id, below 0 for documents that were not used; ids may be outdated.
    Column("documents", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    # 1 once the vector index holds its vector.
    Column("indexed", SmallInteger, nullable=False),
    # JSON: the same credit by user id and node id, for feedback with a known user.
    Column("credit_by_user", Text),
)
# With the id, which every query after a feedback reads of all episodes.
Index("ix_crabpath_episodes_clock", episodes.c.namespace, episodes.c.clock, episodes.c.id)
Index("ix_crabpath_episodes_indexed", episodes.c.indexed)

# The changes that add up to the weights in the overlay: each of those rows has at least one here.
weight_changes = Table(
    "crabpath_weight_changes",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("namespace", Key, nullable=False),
    Column("source", Key, nullable=False),
    Column("target", Key, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    # Id of the feedback or note that caused it; empty when that is not known.
    Column("cause", Text, nullable=False, index=True),
    Column("created", Float, nullable=False),
    # After clipping the weight to [-1, 1].
    Column("delta", Float, nullable=False),
    # Decay exponent of the namespace at the time.
    Column("decay_at", Float, nullable=False),
    sqlite_autoincrement=True,
)
# The source comes first, so that the index serves the removal of nodes too.
Index(
    "ix_crabpath_weight_changes_edge",
    weight_changes.c.source,
    weight_changes.c.target,
    weight_changes.c.kind,
    weight_changes.c.namespace,
)
Index("ix_crabpath_weight_changes_target", weight_changes.c.target)

# What each feedback added to learned state beside its weight changes, for undo; in learning order.
feedback_effects = Table(
    "crabpath_feedback_effects",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("feedback", Text, nullable=False),
    Column("namespace", Key, nullable=False),
    # How many outcomes entered the baseline.
    Column("outcome_count", Integer, nullable=False),
    # What it added to the decay exponent.
    Column("exponent", Float, nullable=False),
    # JSON of ``changes.history.Taught`` but for the ranker.
    Column("record", Text, nullable=False),
    # What it added to the posterior of the ranker, encoded by ``rerank.learned``.
    Column("ranker", LargeBinary),
    sqlite_autoincrement=True,
)
Index(
    "ix_crabpath_feedback_effects_feedback",
    feedback_effects.c.feedback,
    feedback_effects.c.namespace,
    unique=True,
)
Index(
    "ix_crabpath_feedback_effects_namespace",
    feedback_effects.c.namespace,
    feedback_effects.c.sequence,
)

snapshots = Table(
    "crabpath_snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("name", Text),
    Column("created", Float, nullable=False),
    # Version of the namespace.
    Column("version", BigInteger, nullable=False),
    # Highest sequence numbers of the namespace when the snapshot was taken.
    Column("last_weight_change", BigInteger, nullable=False),
    Column("last_feedback_effect", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)
Index("ix_crabpath_snapshots_name", snapshots.c.namespace, snapshots.c.name, unique=True)

notes = Table(
    "crabpath_notes",
    metadata,
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("namespace", Key, nullable=False),
    # "teaching", "correction", "directive", "auto" or "state".
    Column("kind", String(16), nullable=False),
    # Turn numbers of its namespace: when it was made, and when it was last used.
    Column("created_turn", BigInteger, nullable=False),
    Column("last_turn", BigInteger, nullable=False),
    # Successful turns that used it.
    Column("uses", BigInteger, nullable=False),
    # 1 once the vector index holds its vector.
    Column("indexed", SmallInteger, nullable=False),
    # The query that it answers, and the ids of the turn and feedback that it was made from.
    Column("query", Text),
    Column("turn", String(64)),
    Column("feedback", Text),
    # Its place among all that was said in its namespace: the last time, and by a user directly.
    Column("said", BigInteger, nullable=False, server_default="0"),
    Column("said_directly", BigInteger),
    # Id of the token of the server that said it directly.
    Column("token", Text),
)
Index("ix_crabpath_notes_namespace", notes.c.namespace, notes.c.created_turn)
Index("ix_crabpath_notes_indexed", notes.c.indexed)

# Transition counts of the region MDP: an action in a region, and the region that it led to.
# Region 0 sums over all regions of the namespace, on level 0 for all levels of the documents and on
# level -1 for the states of agents; task "" sums over all task types.
transitions = Table(
    "crabpath_transitions",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("level", SmallInteger, primary_key=True, autoincrement=False),
    Column("region", Key, primary_key=True, autoincrement=False),
    Column("task", String(200), primary_key=True, autoincrement=False),
    # "" counts turns and episodes that passed through the region, whatever they did.
    Column("action", String(200), primary_key=True, autoincrement=False),
    Column("next", Key, primary_key=True, autoincrement=False),
    Column("trials", Float, nullable=False),
    Column("wins", Float, nullable=False),
    # Transitions that ended their episode, and their successes. For action "": the number of turns,
    # and the sum of the mean credit of what they returned, scaled to [0, 1].
    Column("ends", Float, nullable=False),
    Column("end_wins", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_transitions_region", transitions.c.region)

# The latest health reports of each namespace.
health_reports = Table(
    "crabpath_health_reports",
    metadata,
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("report", Text, nullable=False),
    sqlite_autoincrement=True,
)
Index("ix_crabpath_health_reports_namespace", health_reports.c.namespace, health_reports.c.sequence)

EMBEDDED = {
    "nodes": (nodes.c.embedding, nodes.c.key),
    "turns": (turns.c.embedding, turns.c.id),
    "feedback": (feedback.c.embedding, feedback.c.sequence),
    "episodes": (episodes.c.embedding, episodes.c.id),
}
"""Vectors of texts by table, and the keys of their rows."""

# New vectors, while the embedder is changed; the table exists only meanwhile.
reembedded = Table(
    "crabpath_reembedded",
    MetaData(),
    # One of ``EMBEDDED``; "embedder" for the row with the embedder that is changed to.
    Column("kind", String(8), primary_key=True),
    Column("key", Text, primary_key=True),
    # Changes with the text.
    Column("mark", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)


RETIRED = -1
"""Owner of retired nodes: hidden from queries, while what was learned about them is kept.

They have neither structural edges nor full text nor an indexed vector. When the same text is added
again, it is found by an address that is a hash of the text, and the node becomes visible.
"""


def build_retired_address(content: str) -> str:
    """Build the address of a retired node with this text, to which no link leads."""
    return f"retired:{hashlib.sha256(content.encode()).hexdigest()[:32]}"


TABLES: Mapping[str, sa.Table] = {
    table.name.removeprefix("crabpath_"): table
    for table in sorted(metadata.sorted_tables, key=lambda table: table.name)
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
    for table in metadata.sorted_tables
    if "namespace" in table.c and isinstance(table.c.namespace.type, sa.BigInteger)
)
"""Tables with the key of a namespace in each row."""

LOCAL_COLUMNS = frozenset({"namespace", "owner", "indexed", "sequence", "key"})
"""Columns that depend on the store, so that a row of a namespace gets others elsewhere."""

REEMBEDDED_AT = "reembedded"
"""Fact about the graph store: when its embedder was changed, in seconds since the epoch."""


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

    nameless = {t: lacks(t.c.namespace, namespaces.c.name) for t in (feedback, journal)}
    found: dict[str, sa.ColumnElement[bool]] = {
        "nodes": (nodes.c.owner > 0) & lacks(nodes.c.owner, namespaces.c.key),
        "journal": journal.c.namespace.is_not(None) & nameless[journal],
        "feedback": (feedback.c.status != "waiting") & nameless[feedback],
    }
    for name, table in TABLES.items():
        ends = [table.c[column] for column in NODE_COLUMNS.get(name, ())]
        lost: list[sa.ColumnElement[bool]] = []
        lost += [(end != 0) & lacks(end, nodes.c.key) for end in ends]
        if table in KEYED_BY_NAMESPACE:
            lost.append(lacks(table.c.namespace, namespaces.c.key))
        if lost:
            found[name] = sa.or_(*lost)
    e, of, space = feedback_effects.c, feedback.c, namespaces.c
    kept = sa.exists().where(
        of.id == e.feedback, of.namespace == space.name, space.key == e.namespace
    )
    found["feedback_effects"] |= ~kept
    found["consumed_turns"] = lacks(consumed_turns.c.turn, turns.c.id)
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
        "note": sa.select(nodes.c.key).where(nodes.c.owner == namespace),
        "turn": sa.select(turns.c.id).where(turns.c.namespace == namespace),
    }
    return {
        table: TABLES[table].c[column].in_(own[what])
        for table, (column, what) in OWNER_COLUMNS.items()
    }
