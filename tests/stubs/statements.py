"""Statements that reach a database during a block."""

from contextlib import contextmanager

import sqlalchemy as sa

from tests.seams import wrap_function


@contextmanager
def list_statements(monkeypatch):
    """A list of the statements that run meanwhile, on both ways to the database."""
    statements = []

    def open_cursor(plain, connection):
        statements.append("on the cursor of the driver")
        return plain(connection)

    def listen(*values):
        statements.append(values[2])

    sa.event.listen(sa.Engine, "before_cursor_execute", listen)
    with monkeypatch.context() as counting:
        wrap_function(counting, "open_cursor", open_cursor)
        yield statements
    sa.event.remove(sa.Engine, "before_cursor_execute", listen)
