"""A later release, whose schema has a column with an index, and a row that can be written once."""

import time

import sqlalchemy as sa

from crabpath_retrievers.storage import SCHEMA_VERSION
from tests.seams import set_bounds

LATER = SCHEMA_VERSION + 1


def upgrade(op) -> None:
    """Make the schema of the later release."""
    with op.batch_alter_table("crabpath_staging") as table:
        table.add_column(sa.Column("worker", sa.Text))
        table.create_index("ix_crabpath_staging_worker", ["worker"])
    time.sleep(0.5)  # others that open the store meanwhile must wait
    op.execute("INSERT INTO crabpath_meta (name, value) VALUES ('upgraded', 'once')")


def run_later_release(patch, step=upgrade) -> None:
    """Let this process run the later release."""
    set_bounds(patch, schema_version=LATER, schema_steps={LATER: step})
