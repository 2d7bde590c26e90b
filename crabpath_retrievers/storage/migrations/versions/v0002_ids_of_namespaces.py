"""Ids of notes and feedback belong to their namespace; several feedbacks may be about one turn.

Turns keep their conversation in a column.
"""

import sqlalchemy as sa
from alembic import op

revision = "2"
down_revision = "1"

# Ids that were unique in the whole store: table, former column, and the columns of today.
_IDS = (
    ("nodes", "id", ("id", "owner")),
    ("feedback", "id", ("id", "namespace")),
    ("feedback_effects", "feedback", ("feedback", "namespace")),
)


def upgrade() -> None:
    """Make ids unique within a namespace only, and add sessions of turns."""
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, column, columns in _IDS:
        table = f"crabpath_{name}"
        if sqlite:
            _drop_unique_in_sqlite(table, column)
        else:
            op.drop_constraint(f"{table}_{column}_key", table)
        op.create_index(f"ix_{table}_{column}", table, columns, unique=True)
    _allow_several_consumers(sqlite=sqlite)
    op.add_column("crabpath_turns", sa.Column("session", sa.Text()))
    known = sa.text("session IS NOT NULL")
    op.create_index(
        "ix_crabpath_turns_session",
        "crabpath_turns",
        ["namespace", "session", "clock"],
        sqlite_where=known,
        postgresql_where=known,
    )


def _drop_unique_in_sqlite(table: str, column: str) -> None:
    """Copy a table without a constraint that has no name; its last key is kept."""
    connection = op.get_bind()
    query = sa.text("SELECT seq FROM sqlite_sequence WHERE name = :table")
    last = connection.execute(query, {"table": table}).scalar()
    names = {"uq": "uq_%(table_name)s_%(column_0_name)s"}
    options = {"sqlite_autoincrement": True}
    with op.batch_alter_table(table, naming_convention=names, table_kwargs=options) as batch:
        batch.drop_constraint(f"uq_{table}_{column}", type_="unique")
    if last is not None:
        connection.execute(
            sa.text("DELETE FROM sqlite_sequence WHERE name = :table"), {"table": table}
        )
        values = {"table": table, "last": last}
        connection.execute(sa.text("INSERT INTO sqlite_sequence VALUES (:table, :last)"), values)


def _allow_several_consumers(*, sqlite: bool) -> None:
    table, index = "crabpath_consumed_turns", "ix_crabpath_consumed_turns_feedback"
    if not sqlite:
        op.drop_constraint(f"{table}_pkey", table)
        op.create_primary_key(f"{table}_pkey", table, ["turn", "feedback"])
        return
    op.drop_index(index, table)
    op.rename_table(table, "crabpath_former")
    op.create_table(
        table,
        sa.Column("turn", sa.String(64), nullable=False),
        sa.Column("feedback", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("turn", "feedback"),
    )
    op.execute(f"INSERT INTO {table} SELECT turn, feedback FROM crabpath_former")
    op.drop_table("crabpath_former")
    op.create_index(index, table, ["feedback"])
