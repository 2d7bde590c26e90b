"""Reads of notes: which are near, which have had their time, which wait for the index."""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable, readable
from crabpath_retrievers.storage.schema import contents, namespaces, nodes, notes


class NoteVector(NamedTuple):
    """A note with its unit vector, shape ``[d]``, half precision."""

    key: int
    id: str
    namespace: int
    vector: Vector


class NoteFacts(NamedTuple):
    """What is known of a note; ``namespace`` by name, ``owner`` by key."""

    id: str
    kind: str
    namespace: str
    owner: int
    born: int
    last: int
    uses: int
    query: str | None
    turn: str | None
    feedback: str | None
    digest: str


_PROVEN = 2
"""Successful turns after which what was made from an answer is no longer on probation."""

_VECTOR = (nodes.c.key, nodes.c.id, notes.c.namespace, nodes.c.embedding)
_JOINED = notes.join(nodes, nodes.c.key == notes.c.node)
_OWN = notes.c.namespace + sa.literal_column("0") == sa.bindparam("namespace")  # as for episodes
_BY_ID = nodes.c.id.in_(sa.bindparam("ids", expanding=True))
_STANDS = sa.or_(
    notes.c.kind != sa.literal_column("'auto'", sa.String),
    notes.c.uses >= sa.literal_column(str(_PROVEN), sa.Integer),
    notes.c.last_turn >= sa.bindparam("since"),
)
_NEAR = HotSelect(
    sa.union_all(
        sa.select(*_VECTOR).select_from(_JOINED).where(_OWN, _BY_ID, _STANDS),
        sa.select(*_VECTOR)
        .select_from(_JOINED)
        .where(_OWN, notes.c.indexed == sa.literal_column("0", sa.Integer), _STANDS),
    )
)
_EXPIRED = HotSelect(
    sa.select(nodes.c.id).select_from(_JOINED).where(_OWN, _BY_ID, sa.not_(_STANDS))
)
_OF_KEYS = HotSelect(
    sa.select(notes.c.node).where(_OWN, notes.c.node.in_(sa.bindparam("keys", expanding=True)))
)
_PILE = HotSelect(
    sa.select(sa.func.count()).where(notes.c.indexed == sa.literal_column("0", sa.Integer))
)


class NoteQueries:
    """Reads of notes. ``since`` is the turn from which a note on probation still counts."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def near(self, namespace: int, ids: Sequence[str], since: int) -> list[NoteVector]:
        """The notes with these ids, and all that no index knows yet."""
        asked = {"namespace": namespace, "ids": list(ids), "since": since}
        with self._store.reading() as connection:
            rows = {row[0]: row for row in _NEAR.rows(connection, asked)}
        return list(readable("a note", rows.values(), _vector))

    def among(self, namespace: int, keys: Sequence[int]) -> set[int]:
        """Those of the nodes, by key, that are notes of a namespace."""
        with self._store.reading() as connection:
            rows = _OF_KEYS.rows(connection, {"namespace": namespace, "keys": list(keys)})
        return {key for (key,) in rows}

    def latest(self, namespace: int, since: int, limit: int) -> list[NoteVector]:
        """The last notes of a namespace, for indexes that keep none."""
        query = (
            sa.select(*_VECTOR)
            .select_from(_JOINED)
            .where(notes.c.namespace == namespace, _STANDS)
            .order_by(notes.c.created_turn.desc(), notes.c.node.desc())
            .limit(limit)
        )
        with self._store.reading() as connection:
            rows = connection.execute(query, {"since": since})
            return list(readable("a note", rows, _vector))

    def expired(self, namespace: int, ids: Sequence[str], since: int) -> set[str]:
        """Those of the ids that are notes whose probation is over."""
        asked = {"namespace": namespace, "ids": list(ids), "since": since}
        with self._store.reading() as connection:
            return {node for (node,) in _EXPIRED.rows(connection, asked)}

    def pile(self) -> int:
        """How many notes no index knows yet."""
        with self._store.reading() as connection:
            ((count,),) = _PILE.rows(connection, {})
        return int(count)

    def unindexed(self) -> list[NoteVector]:
        """Notes whose vectors cannot be searched yet."""
        query = sa.select(*_VECTOR).select_from(_JOINED).where(notes.c.indexed == 0)
        with self._store.reading() as connection:
            return list(readable("a note", connection.execute(query), _vector))

    def ids(self, namespace: int) -> set[str]:
        """Ids of all notes of a namespace."""
        query = sa.select(nodes.c.id).select_from(_JOINED).where(notes.c.namespace == namespace)
        with self._store.reading() as connection:
            return set(connection.scalars(query))

    def facts(self, ids: Iterable[str]) -> list[NoteFacts]:
        """What is known of those of the nodes that are notes, of any namespace."""
        n = notes.c
        columns = (
            n.created_turn,
            n.last_turn,
            n.uses,
            n.query,
            n.turn,
            n.feedback,
            contents.c.digest,
        )
        query = (
            sa.select(nodes.c.id, n.kind, namespaces.c.name, n.namespace, *columns)
            .select_from(_JOINED)
            .join(contents, contents.c.node == nodes.c.key)
            .join(namespaces, namespaces.c.key == n.namespace)
        )
        found: list[NoteFacts] = []
        with self._store.reading() as connection:
            for part in parts(ids):
                rows = connection.execute(query.where(nodes.c.id.in_(part)))
                found += [NoteFacts(*row) for row in rows]
        return found


def _vector(row: Sequence[Any]) -> NoteVector:
    key, node, namespace, embedding = row
    return NoteVector(key, node, namespace, unpack(embedding))
