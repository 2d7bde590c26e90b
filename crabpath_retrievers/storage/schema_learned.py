"""Tables of namespaces: their turns, the feedback on them, and what was learned from it."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    String,
    Table,
    Text,
)

from crabpath_retrievers.storage.schema_corpus import Key, metadata

namespaces = Table(
    "crabpath_namespaces",
    metadata,
    Column("key", Key, primary_key=True, autoincrement=True),
    Column("name", Text, nullable=False, unique=True),
    Column("turn", BigInteger, nullable=False, default=0),
    Column("exponent", Float, nullable=False, default=0.0),
    # How often it learned; what it learned of the ranking; whether it may learn.
    Column("learned", BigInteger, nullable=False, server_default="0"),
    Column("frozen", SmallInteger, nullable=False, server_default="0"),
    Column("mind", Text),
    # How many notes it has.
    Column("notes", BigInteger, nullable=False, server_default="0"),
    # Knobs of its own, and what is known of turning them, as JSON.
    Column("knobs", Text),
    Column("tuning", Text),
    # A key is never used again: what is remembered of a forgotten namespace must not be found.
    sqlite_autoincrement=True,
)

overlay = Table(
    "crabpath_overlay",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("weight", Float, nullable=False),
    Column("mark", Float, nullable=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_overlay_source", overlay.c.source)

Index("ix_crabpath_overlay_target", overlay.c.target)

turns = Table(
    "crabpath_turns",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("run_id", String(64), index=True),
    Column("record", Text, nullable=False),
    Column("embedding", LargeBinary),
)

Index("ix_crabpath_turns_clock", turns.c.namespace, turns.c.clock)

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
    Column("id", Text, nullable=False, unique=True),
    Column("created", Float, nullable=False),
    Column("payload", Text, nullable=False),
    # "waiting", "applied", "undone", or "refused" with a note that says why.
    Column("status", String(8), nullable=False, index=True),
    Column("note", Text),
    Column("namespace", Text),
    # Vector of the correction, where one was given to a process with an embedder.
    Column("embedding", LargeBinary),
    # Who gave it, and in what quality, as the payload says.
    Column("user", Text),
    Column("source", String(16)),
    sqlite_autoincrement=True,
)
Index("ix_crabpath_feedback_user", feedback.c.user, feedback.c.sequence)

Index("ix_crabpath_feedback_namespace", feedback.c.namespace, feedback.c.sequence)

consumed = Table(
    "crabpath_consumed",
    metadata,
    Column("turn", String(64), primary_key=True),
    Column("feedback", Text, nullable=False, index=True),
)

counts = Table(
    "crabpath_counts",
    metadata,
    # Turns in which two nodes were used together, or one led to another that was blamed.
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("source", Key, primary_key=True, autoincrement=False),
    Column("target", Key, primary_key=True, autoincrement=False),
    Column("kind", SmallInteger, primary_key=True, autoincrement=False),
    Column("count", Float, nullable=False),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_counts_source", counts.c.source)

Index("ix_crabpath_counts_target", counts.c.target)

usage = Table(
    "crabpath_usage",
    metadata,
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("wins", Float, nullable=False),
    Column("losses", Float, nullable=False),
    # How far failures have lowered its reward, in nats: what is left of it is exp(-decay).
    Column("decay", Float, nullable=False, server_default="0"),
    sqlite_with_rowid=False,
)

Index("ix_crabpath_usage_node", usage.c.node)

episodes = Table(
    "crabpath_episodes",
    metadata,
    Column("id", Text, primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("query", Text, nullable=False),
    # How many it remembers, whatever came of them.
    Column("turns", Float, nullable=False),
    # Of how many among them the host said what was used.
    Column("told", Float, nullable=False, server_default="1"),
    # Credit by node id, below 0 where it was not used; a node that is gone is passed over.
    Column("documents", Text, nullable=False),
    Column("embedding", LargeBinary, nullable=False),
    # 0 until its vector can be searched.
    Column("indexed", SmallInteger, nullable=False),
    # The same credit by user, of those who are known.
    Column("voices", Text),
)

Index("ix_crabpath_episodes_clock", episodes.c.namespace, episodes.c.clock)

Index("ix_crabpath_episodes_indexed", episodes.c.indexed)

moves = Table(
    "crabpath_moves",
    metadata,
    # What moved the weights that stand in the overlay: every row there has at least one here.
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("namespace", Key, nullable=False),
    Column("source", Key, nullable=False),
    Column("target", Key, nullable=False),
    Column("kind", SmallInteger, nullable=False),
    # Id of the feedback; empty when none is known.
    Column("cause", Text, nullable=False, index=True),
    Column("created", Float, nullable=False),
    # By how much, within the bounds, and the decay exponent of the namespace then.
    Column("delta", Float, nullable=False),
    Column("mark", Float, nullable=False),
    sqlite_autoincrement=True,
)
# The source first: so it serves the removal of nodes too.

Index("ix_crabpath_moves_edge", moves.c.source, moves.c.target, moves.c.kind, moves.c.namespace)

Index("ix_crabpath_moves_target", moves.c.target)

taught = Table(
    "crabpath_taught",
    metadata,
    # What one feedback has taught beside its moves, to be taken back; in the order of learning.
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("feedback", Text, nullable=False, unique=True),
    Column("namespace", Key, nullable=False),
    Column("outcomes", Integer, nullable=False),
    Column("exponent", Float, nullable=False),
    Column("record", Text, nullable=False),
    Column("ranker", LargeBinary),
    sqlite_autoincrement=True,
)

Index("ix_crabpath_taught_namespace", taught.c.namespace, taught.c.sequence)

snapshots = Table(
    "crabpath_snapshots",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("namespace", Key, nullable=False),
    Column("name", Text),
    Column("created", Float, nullable=False),
    Column("learned", BigInteger, nullable=False),
    # The last rows of moves and taught that it knows.
    Column("moves", BigInteger, nullable=False),
    Column("taught", BigInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
)

Index("ix_crabpath_snapshots_name", snapshots.c.namespace, snapshots.c.name, unique=True)

notes = Table(
    "crabpath_notes",
    metadata,
    Column("node", Key, primary_key=True, autoincrement=False),
    Column("namespace", Key, nullable=False),
    # "teaching", "correction", "directive" or "auto".
    Column("kind", String(16), nullable=False),
    # Turn numbers of its namespace; in how many successful turns it was used.
    Column("born", BigInteger, nullable=False),
    Column("last", BigInteger, nullable=False),
    Column("uses", BigInteger, nullable=False),
    # 0 until its vector can be searched.
    Column("indexed", SmallInteger, nullable=False),
    # What it was made from.
    Column("query", Text),
    Column("turn", String(64)),
    Column("feedback", Text),
)

Index("ix_crabpath_notes_namespace", notes.c.namespace, notes.c.born)

Index("ix_crabpath_notes_indexed", notes.c.indexed)

steps = Table(
    "crabpath_steps",
    metadata,
    # What became of steps: an action taken in a region, and the region that it led to. Level and
    # region 0 count all regions of the namespace together; the task is empty for all tasks.
    Column("namespace", Key, primary_key=True, autoincrement=False),
    Column("level", SmallInteger, primary_key=True, autoincrement=False),
    Column("region", Key, primary_key=True, autoincrement=False),
    Column("task", String(200), primary_key=True, autoincrement=False),
    # Empty for the turns and episodes that came by, whatever they did.
    Column("action", String(200), primary_key=True, autoincrement=False),
    Column("next", Key, primary_key=True, autoincrement=False),
    Column("trials", Float, nullable=False),
    Column("wins", Float, nullable=False),
    # Those that were the last of their episode. Where the action is empty: the credit of what was
    # returned, as its count and its sum, scaled to [0, 1].
    Column("ends", Float, nullable=False),
    Column("end_wins", Float, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_crabpath_steps_region", steps.c.region)

health = Table(
    "crabpath_health",
    metadata,
    # Reports on the health of namespaces, the latest of each.
    Column("sequence", Key, primary_key=True, autoincrement=True),
    Column("namespace", Key, nullable=False),
    Column("clock", BigInteger, nullable=False),
    Column("created", Float, nullable=False),
    Column("report", Text, nullable=False),
    sqlite_autoincrement=True,
)

Index("ix_crabpath_health_namespace", health.c.namespace, health.c.sequence)
