"""Queues for the vector index and for linking: the store fills them, the ingest empties them."""

from collections.abc import Callable, Iterable
from typing import Any, Literal

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import split_batches


def queue_index_deletion(
    connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]
) -> None:
    """Queue the vectors of nodes for deletion, and take the nodes off all other queues."""
    for part in split_batches(ids):
        connection.execute(s.staging.delete().where(s.staging.c.id.in_(part)))
        values = [{"id": node} for node in part]
        connection.execute(insert(s.index_deletions).on_conflict_do_nothing(), values)


def queue_indexing(
    connection: sa.Connection,
    insert: Callable[..., Any],
    ids: Iterable[str],
    operation: Literal["index", "return"],
) -> None:
    """Queue stored nodes for indexing; with ``return`` they are queued for linking afterwards.

    Their vectors are written whether or not the index still holds them.
    """
    for part in split_batches(ids):
        connection.execute(s.index_deletions.delete().where(s.index_deletions.c.id.in_(part)))
        new = insert(s.staging)
        again = {"operation": operation, "payload": None, "embedding": None}
        connection.execute(
            new.on_conflict_do_update(index_elements=[s.staging.c.id], set_=again),
            [{"id": node, **again} for node in part],
        )


def queue_linking(
    connection: sa.Connection, insert: Callable[..., Any], ids: Iterable[str]
) -> None:
    """Queue those of the nodes that queries see for linking."""
    for part in split_batches(ids):
        seen = sa.select(s.nodes.c.id).where(s.nodes.c.id.in_(part), s.nodes.c.owner >= 0)
        values = [{"id": node, "operation": "link"} for node in connection.scalars(seen)]
        if values:
            connection.execute(insert(s.staging).on_conflict_do_nothing(), values)
