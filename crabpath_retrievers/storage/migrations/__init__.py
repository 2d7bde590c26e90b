"""Upgrades of stores that an older release wrote.

The scripts in ``versions`` are for Alembic. Their revisions are the schema versions, which stores
keep among their facts and not in a table of Alembic's own: an application may migrate the same
database with Alembic, too.
"""

import logging
from pathlib import Path

import sqlalchemy as sa

from crabpath_retrievers.core.processes import make_lock
from crabpath_retrievers.errors import StoreReadOnlyError

VERSIONS = Path(__file__).with_name("versions")
"""The folder of the scripts."""

_log = logging.getLogger(__name__)
_ONE_AT_A_TIME = make_lock()  # ``alembic.op`` belongs to the whole process


def upgrade_schema(connection: sa.Connection, found: int, wanted: int) -> None:
    """Bring the tables of a store from version ``found`` to version ``wanted``.

    The open transaction must be able to write, and must keep other processes out. The caller stores
    the new version.
    """
    from alembic.operations import Operations
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    _require_writable(connection, found, wanted)
    scripts = ScriptDirectory(str(VERSIONS.parent), version_locations=[str(VERSIONS)])
    steps = [*scripts.iterate_revisions(str(wanted), str(found))]
    context = MigrationContext.configure(connection)
    with _ONE_AT_A_TIME, Operations.context(context):
        for step in reversed(steps):
            step.module.upgrade()
    _log.info("upgraded the store from schema version %d to %d", found, wanted)


def _require_writable(connection: sa.Connection, found: int, wanted: int) -> None:
    """Refuse a store that needs an upgrade from ``found`` to ``wanted`` and cannot be written."""
    if connection.dialect.name == "sqlite":
        return
    if connection.exec_driver_sql("SHOW transaction_read_only").scalar_one() == "on":
        msg = (
            f"the store has schema version {found} and its database accepts no writes: open it "
            f"once where it can be written, which upgrades it to version {wanted}"
        )
        raise StoreReadOnlyError(msg)
