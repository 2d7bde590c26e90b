"""What nodes wait for: the store says it, whoever has the index at hand does it."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts


def drop_vectors(connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]) -> None:
    """Nodes go from the index, and wait for nothing else."""
    for part in parts(ids):
        connection.execute(s.staging.delete().where(s.staging.c.id.in_(part)))
        values = [{"id": node} for node in part]
        connection.execute(insert(s.index_deletions).on_conflict_do_nothing(), values)


def want_vectors(
    connection: sa.Connection,
    insert: Callable[..., Any],
    ids: Iterable[str],
    operation: Literal["index", "return"],
) -> None:
    """Nodes that stand in the store wait for the index to hold them, with ``return`` for edges too.

    What the index holds of them may be there still, or not; either way it is written.
    """
    for part in parts(ids):
        connection.execute(s.index_deletions.delete().where(s.index_deletions.c.id.in_(part)))
        new = insert(s.staging)
        again = {"operation": operation, "payload": None, "embedding": None}
        connection.execute(
            new.on_conflict_do_update(index_elements=[s.staging.c.id], set_=again),
            [{"id": node, **again} for node in part],
        )


def want_edges(connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]) -> None:
    """Nodes that queries see wait for the edges of their text."""
    for part in parts(ids):
        seen = sa.select(s.nodes.c.id).where(s.nodes.c.id.in_(part), s.nodes.c.owner >= 0)
        values = [{"id": node, "operation": "link"} for node in connection.scalars(seen)]
        if values:
            connection.execute(insert(s.staging).on_conflict_do_nothing(), values)
