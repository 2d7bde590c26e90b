"""Remove the data of a deleted namespace from journal rows that concern all namespaces."""

import json

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import split_batches

_GLOBAL_CHANGES = ("merge_nodes", "split_node")


def redact_journal(connection: sa.Connection, namespace: int) -> None:
    """Remove a namespace from the undo data of merges and splits.

    Args:
        connection: An open transaction that has deleted the episodes of the namespace already.
        namespace: Key of the namespace.
    """
    journal = s.journal.c
    query = sa.select(journal.sequence, journal.inverse)
    rows = connection.execute(
        query.where(journal.change.in_(_GLOBAL_CHANGES), journal.inverse != "")
    )
    for sequence, text in rows.all():
        inverse = json.loads(text)
        images = [image for image in inverse.get("images", ()) if not _concerns(image, namespace)]
        known = _find_existing_episodes(
            connection, [identity for identity, _, _ in inverse.get("episodes", ())]
        )
        episodes = [episode for episode in inverse.get("episodes", ()) if episode[0] in known]
        remaining = json.dumps({**inverse, "images": images, "episodes": episodes})
        update = s.journal.update().where(journal.sequence == sequence)
        connection.execute(update.values(inverse=remaining))


def _concerns(image: list[dict[str, int] | None], namespace: int) -> bool:
    """Whether a row change concerns a namespace."""
    _, *rows = image
    return any(row is not None and row.get("namespace") == namespace for row in rows)


def _find_existing_episodes(connection: sa.Connection, ids: list[str]) -> set[str]:
    query = sa.select(s.episodes.c.id)
    return {
        identity
        for part in split_batches(ids)
        for identity in connection.scalars(query.where(s.episodes.c.id.in_(part)))
    }
