"""Upgrades of stores that an older release wrote: one step for each schema version.

The tables of the first release, which no step makes, are version 1. Stores keep their version among
their facts and not in a table of Alembic's, whose operations the steps use: an application may
migrate the same database with Alembic, too.
"""

import logging
from collections.abc import Callable, Mapping

import sqlalchemy as sa
from alembic.operations import Operations
from alembic.runtime.migration import MigrationContext

from crabpath_retrievers.core.terms import list_terms
from crabpath_retrievers.core.text import has_signs
from crabpath_retrievers.errors import StoreReadOnlyError
from crabpath_retrievers.storage.fulltext import get_fulltext_index
from crabpath_retrievers.storage.write.nodes import renew_words
from crabpath_retrievers.storage.write.transaction import Transaction

_log = logging.getLogger(__name__)
# Ids that were unique in the whole store: table, former column, and the columns of today.
_IDS = (
    ("nodes", "id", ("id", "owner")),
    ("feedback", "id", ("id", "namespace")),
    ("feedback_effects", "feedback", ("feedback", "namespace")),
)
_AT_ONCE = 500
_READ = sa.text(
    "SELECT key, title, content FROM crabpath_nodes JOIN crabpath_contents ON node = key "
    "WHERE owner = 0 AND key > :last ORDER BY key LIMIT :most"
)
_WRITE = sa.text(
    "INSERT INTO crabpath_references(address, node) VALUES (:address, :node) ON CONFLICT DO NOTHING"
)


def upgrade_schema(connection: sa.Connection, found: int, wanted: int) -> None:
    """Bring the tables of a store from version ``found`` to version ``wanted``.

    The open transaction must be able to write, and must keep other processes out. The caller stores
    the new version.
    """
    _require_writable(connection, found, wanted)
    op = Operations(MigrationContext.configure(connection))
    for version in range(found + 1, wanted + 1):
        STEPS[version](op)
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


def _make_ids_of_namespaces(op: Operations) -> None:
    """Make ids unique within a namespace only, allow several feedbacks about one turn.

    Turns keep their conversation in a column.
    """
    sqlite = op.get_context().dialect.name == "sqlite"
    for name, column, columns in _IDS:
        table = f"crabpath_{name}"
        if sqlite:
            _drop_unique_in_sqlite(op, table, column)
        else:
            op.drop_constraint(f"{table}_{column}_key", table)
        op.create_index(f"ix_{table}_{column}", table, columns, unique=True)
    _allow_several_consumers(op, sqlite=sqlite)
    op.add_column("crabpath_turns", sa.Column("session", sa.Text()))
    known = sa.text("session IS NOT NULL")
    op.create_index(
        "ix_crabpath_turns_session",
        "crabpath_turns",
        ["namespace", "session", "clock"],
        sqlite_where=known,
        postgresql_where=known,
    )


def _drop_unique_in_sqlite(op: Operations, table: str, column: str) -> None:
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


def _allow_several_consumers(op: Operations, *, sqlite: bool) -> None:
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


def _order_notes(op: Operations) -> None:
    """Add columns for the order in which notes were given; known notes are ordered by key."""
    table = "crabpath_notes"
    op.add_column(table, sa.Column("said", sa.BigInteger(), nullable=False, server_default="0"))
    op.add_column(table, sa.Column("said_directly", sa.BigInteger()))
    notes = sa.table(table, *map(sa.column, ("node", "feedback", "said", "said_directly")))
    op.execute(notes.update().values(said=notes.c.node))
    direct = notes.update().where(notes.c.feedback.is_(None))
    op.execute(direct.values(said_directly=notes.c.node))


def _find_words_of_all_languages(op: Operations) -> None:
    """Index texts again whose words changed, and add the terms of what queries see.

    Edges of the other texts stay until a document changes.
    """
    connection, last = op.get_bind(), 0
    renew_words(Transaction(connection, get_fulltext_index(connection.dialect.name)))
    while found := connection.execute(_READ, {"last": last, "most": _AT_ONCE}).all():
        rows = [
            {"address": term, "node": key}
            for key, title, content in found
            for term in list_terms(title, content)
        ]
        if rows:
            connection.execute(_WRITE, rows)
        last = found[-1].key


def _find_words_with_signs(op: Operations) -> None:
    """Index texts again that have words with signs, such as "C++" and "-O2"."""
    connection = op.get_bind()
    renew_words(Transaction(connection, get_fulltext_index(connection.dialect.name)), has_signs)


def _keep_tokens(op: Operations) -> None:
    """Add columns for the token of a server; of what was given before, it is not known."""
    for table in ("crabpath_feedback", "crabpath_notes"):
        op.add_column(table, sa.Column("token", sa.Text()))


STEPS: Mapping[int, Callable[[Operations], None]] = {
    2: _make_ids_of_namespaces,
    3: _order_notes,
    4: _find_words_of_all_languages,
    5: _find_words_with_signs,
    6: _keep_tokens,
}
"""Steps by the version that each makes of the one before."""
