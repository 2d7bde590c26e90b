"""Notes keep their place among all that was said in their namespace."""

import sqlalchemy as sa
from alembic import op

revision = "3"
down_revision = "2"


def upgrade() -> None:
    """Add columns for the order in which notes were given; known notes are ordered by key."""
    table = "crabpath_notes"
    op.add_column(table, sa.Column("said", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(table, sa.Column("said_directly", sa.BigInteger()))
    notes = sa.table(table, *map(sa.column, ("node", "feedback", "said", "said_directly")))
    op.execute(notes.update().values(said=notes.c.node))
    direct = notes.update().where(notes.c.feedback.is_(None))
    op.execute(direct.values(said_directly=notes.c.node))
