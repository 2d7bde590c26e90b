"""What the journal keeps of a namespace goes with it, also where a row is about all of them."""

import json

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts

_ABOUT_ALL = ("merge_nodes", "split_node")


def scrub(connection: sa.Connection, namespace: int) -> None:
    """Take a namespace out of what takes merges and splits back.

    Args:
        connection: An open transaction, in which its episodes are deleted already.
        namespace: Its key.
    """
    journal = s.journal.c
    query = sa.select(journal.sequence, journal.inverse)
    rows = connection.execute(query.where(journal.change.in_(_ABOUT_ALL), journal.inverse != ""))
    for sequence, text in rows.all():
        inverse = json.loads(text)
        images = [image for image in inverse.get("images", ()) if not _of(image, namespace)]
        known = _known(connection, [identity for identity, _, _ in inverse.get("episodes", ())])
        episodes = [episode for episode in inverse.get("episodes", ()) if episode[0] in known]
        left = json.dumps({**inverse, "images": images, "episodes": episodes})
        update = s.journal.update().where(journal.sequence == sequence)
        connection.execute(update.values(inverse=left))


def _of(image: list[dict[str, int] | None], namespace: int) -> bool:
    """Whether a row before and after a change is one of a namespace."""
    _, *rows = image
    return any(row is not None and row.get("namespace") == namespace for row in rows)


def _known(connection: sa.Connection, ids: list[str]) -> set[str]:
    query = sa.select(s.episodes.c.id)
    return {
        identity
        for part in parts(ids)
        for identity in connection.scalars(query.where(s.episodes.c.id.in_(part)))
    }
