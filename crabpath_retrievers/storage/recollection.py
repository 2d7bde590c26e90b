"""Transfer of episode credit from a merged or split document to the nodes that replace it."""

import json
from collections.abc import Callable, Sequence

import sqlalchemy as sa

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.learned_writer import add_credit
from crabpath_retrievers.storage.packing import decode_vector

EpisodeChange = tuple[str, str, str]
"""An episode: its id, and its credit before and after, as JSON."""


def transfer_episode_credit(
    connection: sa.Connection, old: str, heir: Callable[[Vector], str]
) -> list[EpisodeChange]:
    """Transfer the credit of a document in all episodes to another one.

    Args:
        connection: An open transaction.
        old: Id of the document.
        heir: Gives the id of the other document for the unit query vector of an episode,
            shape ``[d]``.

    Returns:
        The episodes that were changed.
    """
    episodes = s.episodes.c
    named = episodes.documents.contains(json.dumps(old), autoescape=True)
    query = sa.select(episodes.id, episodes.documents, episodes.embedding).where(named)
    found: list[EpisodeChange] = []
    for identity, text, embedding in connection.execute(query).all():
        documents = json.loads(text)
        if old not in documents:
            continue
        credit, new = documents.pop(old), heir(decode_vector(embedding))
        after = json.dumps({**documents, new: documents.get(new, 0.0) + credit})
        found.append((identity, text, after))
    _write_documents(connection, [(identity, after) for identity, _, after in found])
    return found


def restore_episode_credit(connection: sa.Connection, changed: Sequence[Sequence[str]]) -> None:
    """Undo :func:`transfer_episode_credit`; credit that was added since is not moved back."""
    restored: list[tuple[str, str]] = []
    for identity, before, after in changed:
        query = sa.select(s.episodes.c.documents).where(s.episodes.c.id == identity)
        now = connection.scalar(query)
        if now == after:
            restored.append((identity, before))
        elif now is not None:
            was, became = json.loads(before), json.loads(after)
            difference = {n: was.get(n, 0.0) - became.get(n, 0.0) for n in {**was, **became}}
            restored.append((identity, json.dumps(add_credit(json.loads(now), difference))))
    _write_documents(connection, restored)


def _write_documents(connection: sa.Connection, rows: Sequence[tuple[str, str]]) -> None:
    if rows:
        own = s.episodes.c.id == sa.bindparam("episode")
        update = s.episodes.update().where(own).values(documents=sa.bindparam("now"))
        connection.execute(update, [{"episode": name, "now": text} for name, text in rows])
