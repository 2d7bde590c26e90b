"""The tables of the first release."""

import sqlalchemy as sa
from alembic import op

revision = "1"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create all tables in an empty database."""
    _create_nodes()
    _create_names()
    _create_edges()
    _create_namespaces()
    _create_turns()
    _create_feedback()
    _create_counts()
    _create_episodes()
    _create_weight_changes()
    _create_effects()
    _create_notes()
    _create_transitions()
    _create_fulltext()


def _create_nodes() -> None:
    op.create_table(
        "crabpath_meta",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )
    op.create_table(
        "crabpath_nodes",
        sa.Column("key", _KEY, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("mentions", sa.Integer(), nullable=False),
        sa.Column("title", sa.Text(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.Column("terms", sa.LargeBinary(), nullable=False),
        sa.Column("owner", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("authority", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("level", sa.SmallInteger(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_crabpath_nodes_level", "crabpath_nodes", ["level"])
    op.create_table(
        "crabpath_contents",
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.Column(
            "source", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("position", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=64), nullable=False),
        sa.Column("length", sa.Integer(), nullable=False),
        sa.Column("content", sa.Text(), nullable=False),
        sa.Column("metadata", sa.Text(), nullable=False),
        sa.Column("split_from", sa.Text()),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_index("ix_crabpath_contents_document", "crabpath_contents", ["document"])
    op.create_index("ix_crabpath_contents_source", "crabpath_contents", ["source"])
    op.create_index(
        "ix_crabpath_contents_split_from",
        "crabpath_contents",
        ["split_from"],
        sqlite_where=sa.text("split_from IS NOT NULL"),
        postgresql_where=sa.text("split_from IS NOT NULL"),
    )


def _create_names() -> None:
    op.create_table(
        "crabpath_names",
        sa.Column(
            "name", sa.Text().with_variant(sa.Text(collation="C"), "postgresql"), nullable=False
        ),
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("name", "node"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_names_node", "crabpath_names", ["node"])
    op.create_table(
        "crabpath_addresses",
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("address", "node"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_addresses_node", "crabpath_addresses", ["node"])
    op.create_table(
        "crabpath_references",
        sa.Column("address", sa.Text(), nullable=False),
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.PrimaryKeyConstraint("address", "node"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_references_node", "crabpath_references", ["node"])


def _create_edges() -> None:
    op.create_table(
        "crabpath_edges",
        sa.Column("source", _KEY, autoincrement=False, nullable=False),
        sa.Column("target", _KEY, autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("prior", sa.Float(), nullable=False),
        sa.Column("floor", sa.Float(), nullable=False),
        sa.Column("decay_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("source", "target", "kind"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_edges_target", "crabpath_edges", ["target", "kind"])
    op.create_table(
        "crabpath_terms",
        sa.Column("term", sa.Text(), nullable=False),
        sa.Column("frequency", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("term"),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "crabpath_staging",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("operation", sa.String(length=8), nullable=False),
        sa.Column("payload", sa.Text()),
        sa.Column("embedding", sa.LargeBinary()),
        sa.Column("place", sa.Integer(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "crabpath_index_deletions",
        sa.Column("id", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )


def _create_namespaces() -> None:
    op.create_table(
        "crabpath_namespaces",
        sa.Column("key", _KEY, autoincrement=True, nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("turn", sa.BigInteger(), nullable=False),
        sa.Column("exponent", sa.Float(), nullable=False),
        sa.Column("version", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("frozen", sa.SmallInteger(), server_default="0", nullable=False),
        sa.Column("model", sa.Text()),
        sa.Column("note_count", sa.BigInteger(), server_default="0", nullable=False),
        sa.Column("knobs", sa.Text()),
        sa.Column("tuning", sa.Text()),
        sa.PrimaryKeyConstraint("key"),
        sa.UniqueConstraint("name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "crabpath_overlay",
        sa.Column("namespace", _KEY, autoincrement=False, nullable=False),
        sa.Column("source", _KEY, autoincrement=False, nullable=False),
        sa.Column("target", _KEY, autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("decay_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "source", "target", "kind"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_overlay_source", "crabpath_overlay", ["source"])
    op.create_index("ix_crabpath_overlay_target", "crabpath_overlay", ["target", "namespace"])


def _create_turns() -> None:
    op.create_table(
        "crabpath_turns",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("run_id", sa.String(length=64)),
        sa.Column("arm", sa.Text()),
        sa.Column("record", sa.LargeBinary(), nullable=False),
        sa.Column("embedding", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_crabpath_turns_clock", "crabpath_turns", ["namespace", "clock"])
    op.create_index("ix_crabpath_turns_run_id", "crabpath_turns", ["run_id"])
    op.create_table(
        "crabpath_journal",
        sa.Column("sequence", _KEY, autoincrement=True, nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("namespace", sa.Text()),
        sa.Column("change", sa.String(length=32), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("inverse", sa.Text()),
        sa.PrimaryKeyConstraint("sequence"),
    )


def _create_feedback() -> None:
    op.create_table(
        "crabpath_feedback",
        sa.Column("sequence", _KEY, autoincrement=True, nullable=False),
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("status", sa.String(length=8), nullable=False),
        sa.Column("note", sa.Text()),
        sa.Column("namespace", sa.Text()),
        sa.Column("embedding", sa.LargeBinary()),
        sa.Column("user", sa.Text()),
        sa.Column("source", sa.String(length=16)),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("id"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_crabpath_feedback_namespace", "crabpath_feedback", ["namespace", "sequence"]
    )
    op.create_index("ix_crabpath_feedback_status", "crabpath_feedback", ["status"])
    op.create_index("ix_crabpath_feedback_user", "crabpath_feedback", ["user", "sequence"])
    op.create_table(
        "crabpath_consumed_turns",
        sa.Column("turn", sa.String(length=64), nullable=False),
        sa.Column("feedback", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("turn"),
    )
    op.create_index("ix_crabpath_consumed_turns_feedback", "crabpath_consumed_turns", ["feedback"])


def _create_counts() -> None:
    op.create_table(
        "crabpath_pair_counts",
        sa.Column("namespace", _KEY, autoincrement=False, nullable=False),
        sa.Column("source", _KEY, autoincrement=False, nullable=False),
        sa.Column("target", _KEY, autoincrement=False, nullable=False),
        sa.Column("kind", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("count", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "source", "target", "kind"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_pair_counts_source", "crabpath_pair_counts", ["source"])
    op.create_index("ix_crabpath_pair_counts_target", "crabpath_pair_counts", ["target"])
    op.create_table(
        "crabpath_usage",
        sa.Column("namespace", _KEY, autoincrement=False, nullable=False),
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.Column("wins", sa.Float(), nullable=False),
        sa.Column("losses", sa.Float(), nullable=False),
        sa.Column("decay", sa.Float(), server_default="0", nullable=False),
        sa.PrimaryKeyConstraint("namespace", "node"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_usage_node", "crabpath_usage", ["node"])


def _create_episodes() -> None:
    op.create_table(
        "crabpath_episodes",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("query", sa.Text(), nullable=False),
        sa.Column("turns", sa.Float(), nullable=False),
        sa.Column("labelled_turns", sa.Float(), server_default="1", nullable=False),
        sa.Column("documents", sa.Text(), nullable=False),
        sa.Column("embedding", sa.LargeBinary(), nullable=False),
        sa.Column("indexed", sa.SmallInteger(), nullable=False),
        sa.Column("credit_by_user", sa.Text()),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_crabpath_episodes_clock", "crabpath_episodes", ["namespace", "clock", "id"])
    op.create_index("ix_crabpath_episodes_indexed", "crabpath_episodes", ["indexed"])


def _create_weight_changes() -> None:
    op.create_table(
        "crabpath_weight_changes",
        sa.Column("sequence", _KEY, autoincrement=True, nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("source", _KEY, nullable=False),
        sa.Column("target", _KEY, nullable=False),
        sa.Column("kind", sa.SmallInteger(), nullable=False),
        sa.Column("cause", sa.Text(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("delta", sa.Float(), nullable=False),
        sa.Column("decay_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_crabpath_weight_changes_cause", "crabpath_weight_changes", ["cause"])
    op.create_index(
        "ix_crabpath_weight_changes_edge",
        "crabpath_weight_changes",
        ["source", "target", "kind", "namespace"],
    )
    op.create_index("ix_crabpath_weight_changes_target", "crabpath_weight_changes", ["target"])


def _create_effects() -> None:
    op.create_table(
        "crabpath_feedback_effects",
        sa.Column("sequence", _KEY, autoincrement=True, nullable=False),
        sa.Column("feedback", sa.Text(), nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("outcome_count", sa.Integer(), nullable=False),
        sa.Column("exponent", sa.Float(), nullable=False),
        sa.Column("record", sa.Text(), nullable=False),
        sa.Column("ranker", sa.LargeBinary()),
        sa.PrimaryKeyConstraint("sequence"),
        sa.UniqueConstraint("feedback"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_crabpath_feedback_effects_namespace",
        "crabpath_feedback_effects",
        ["namespace", "sequence"],
    )
    op.create_table(
        "crabpath_snapshots",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("name", sa.Text()),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("last_weight_change", sa.BigInteger(), nullable=False),
        sa.Column("last_feedback_effect", sa.BigInteger(), nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_crabpath_snapshots_name", "crabpath_snapshots", ["namespace", "name"], unique=True
    )


def _create_notes() -> None:
    op.create_table(
        "crabpath_notes",
        sa.Column("node", _KEY, autoincrement=False, nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("created_turn", sa.BigInteger(), nullable=False),
        sa.Column("last_turn", sa.BigInteger(), nullable=False),
        sa.Column("uses", sa.BigInteger(), nullable=False),
        sa.Column("indexed", sa.SmallInteger(), nullable=False),
        sa.Column("query", sa.Text()),
        sa.Column("turn", sa.String(length=64)),
        sa.Column("feedback", sa.Text()),
        sa.PrimaryKeyConstraint("node"),
    )
    op.create_index("ix_crabpath_notes_indexed", "crabpath_notes", ["indexed"])
    op.create_index("ix_crabpath_notes_namespace", "crabpath_notes", ["namespace", "created_turn"])


def _create_transitions() -> None:
    op.create_table(
        "crabpath_transitions",
        sa.Column("namespace", _KEY, autoincrement=False, nullable=False),
        sa.Column("level", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("region", _KEY, autoincrement=False, nullable=False),
        sa.Column("task", sa.String(length=200), autoincrement=False, nullable=False),
        sa.Column("action", sa.String(length=200), autoincrement=False, nullable=False),
        sa.Column("next", _KEY, autoincrement=False, nullable=False),
        sa.Column("trials", sa.Float(), nullable=False),
        sa.Column("wins", sa.Float(), nullable=False),
        sa.Column("ends", sa.Float(), nullable=False),
        sa.Column("end_wins", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("namespace", "level", "region", "task", "action", "next"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_crabpath_transitions_region", "crabpath_transitions", ["region"])
    op.create_table(
        "crabpath_health_reports",
        sa.Column("sequence", _KEY, autoincrement=True, nullable=False),
        sa.Column("namespace", _KEY, nullable=False),
        sa.Column("clock", sa.BigInteger(), nullable=False),
        sa.Column("created", sa.Float(), nullable=False),
        sa.Column("report", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("sequence"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_crabpath_health_reports_namespace", "crabpath_health_reports", ["namespace", "sequence"]
    )


def _create_fulltext() -> None:
    if op.get_context().dialect.name == "sqlite":
        op.execute(
            "CREATE VIRTUAL TABLE crabpath_fulltext "
            "USING fts5(tokens, tokenize=\"ascii tokenchars '_'\")"
        )
        return
    op.execute("CREATE TABLE crabpath_fulltext (node bigint PRIMARY KEY, tokens tsvector NOT NULL)")
    op.execute("CREATE INDEX ix_crabpath_fulltext ON crabpath_fulltext USING gin(tokens)")
