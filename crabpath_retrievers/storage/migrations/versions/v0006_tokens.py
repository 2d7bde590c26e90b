"""Feedback and notes keep the token of the server by which they were given."""

import sqlalchemy as sa
from alembic import op

revision = "6"
down_revision = "5"


def upgrade() -> None:
    """Add the columns; of what was given before, the token is not known."""
    for table in ("crabpath_feedback", "crabpath_notes"):
        op.add_column(table, sa.Column("token", sa.Text()))
