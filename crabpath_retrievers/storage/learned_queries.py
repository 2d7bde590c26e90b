"""Reads of what namespaces have learned, and of the feedback that waits."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.graph import (
    DECAY_RATES,
    OVERLAY_KINDS,
    TYPED_KINDS,
    EdgeKind,
    Vector,
    effective_weight,
)
from crabpath_retrievers.outcome import Feedback, Status
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable, readable
from crabpath_retrievers.storage.schema import (
    aliases,
    consumed_turns,
    episodes,
    feedback,
    namespaces,
    nodes,
    overlay,
    pair_counts,
    usage,
)

Triple = tuple[int, int, EdgeKind]
"""An edge: keys of its source and target, and its kind."""


class Learned(NamedTuple):
    """What a namespace has learned of ranking.

    Attributes:
        version: How often it has learned.
        mind: What it knows, as JSON; None before the first time.
        frozen: Whether it may learn no more.
        knobs: Those of its own, as JSON.
    """

    version: int
    mind: str | None
    frozen: bool
    knobs: str | None = None


class Episode(NamedTuple):
    """Remembered turns of one question: credit by node id, clock when it was added to.

    Of ``told`` turns the host said what was used; of the others it was guessed.
    """

    id: str
    query: str
    turns: float
    told: float
    documents: dict[str, float]
    vector: Vector
    clock: int


class Usage(NamedTuple):
    """How often a document was used when returned, and not; nats that failures took from it."""

    wins: float
    losses: float
    decay: float


class Kept(NamedTuple):
    """Feedback as it stands in the store, with the unit vector of its correction if it has one."""

    sequence: int
    feedback: Feedback
    status: Status
    note: str | None
    created: float
    vector: Vector | None = None


class Unreadable(NamedTuple):
    """Feedback that this program cannot read, by its place in the order and its id."""

    sequence: int
    id: str
    why: str


_MIND = HotSelect(
    sa.select(
        namespaces.c.version, namespaces.c.model, namespaces.c.frozen, namespaces.c.knobs
    ).where(namespaces.c.name == sa.bindparam("name"))
)
_USAGE = HotSelect(
    sa.select(usage.c.node, usage.c.wins, usage.c.losses, usage.c.decay).where(
        usage.c.namespace == sa.bindparam("namespace"),
        usage.c.node.in_(sa.bindparam("keys", expanding=True)),
    )
)
_EPISODE = (
    episodes.c.id,
    episodes.c.query,
    episodes.c.turns,
    episodes.c.labelled_turns,
    episodes.c.documents,
    episodes.c.embedding,
    episodes.c.clock,
)
# As a sum, lest the index of namespaces be used, which leads to all of their episodes.
_OWN = episodes.c.namespace + sa.literal_column("0") == sa.bindparam("namespace")
_EPISODES = HotSelect(
    sa.union_all(
        sa.select(*_EPISODE).where(_OWN, episodes.c.id.in_(sa.bindparam("ids", expanding=True))),
        sa.select(*_EPISODE).where(_OWN, episodes.c.indexed == sa.literal_column("0")),
    )
)
_VOICES = HotSelect(sa.select(episodes.c.credit_by_user).where(episodes.c.id == sa.bindparam("id")))
_PILE = HotSelect(sa.select(sa.func.count()).where(episodes.c.indexed == sa.literal_column("0")))
_OF_SOURCES = (
    namespaces.c.name == sa.bindparam("name"),
    sa.literal_column("source").in_(sa.bindparam("sources", expanding=True)),
)
_ANSWERING = aliases.c.position == sa.literal_column("0")
_KEYS = HotSelect(
    sa.select(nodes.c.id, sa.func.coalesce(aliases.c.target, nodes.c.key))
    .select_from(nodes.outerjoin(aliases, sa.and_(aliases.c.node == nodes.c.key, _ANSWERING)))
    .where(nodes.c.id.in_(sa.bindparam("ids", expanding=True)))
)
_WEIGHTS = HotSelect(
    sa.select(
        overlay.c.source,
        overlay.c.target,
        overlay.c.kind,
        overlay.c.weight,
        overlay.c.decay_at,
        namespaces.c.exponent,
        nodes.c.authority,
    )
    .join(namespaces, namespaces.c.key == overlay.c.namespace)
    .join(nodes, nodes.c.key == overlay.c.target)
    .where(*_OF_SOURCES)
    .where(
        overlay.c.kind.in_(
            [sa.literal_column(str(kind.value)) for kind in (*OVERLAY_KINDS, *TYPED_KINDS)]
        )
    )
)
_COUNTS = HotSelect(
    sa.select(
        pair_counts.c.source, pair_counts.c.target, pair_counts.c.kind, pair_counts.c["count"]
    )
    .join(namespaces, namespaces.c.key == pair_counts.c.namespace)
    .where(*_OF_SOURCES)
)
_KEPT = (
    feedback.c.id,
    feedback.c.sequence,
    feedback.c.payload,
    feedback.c.status,
    feedback.c.note,
    feedback.c.created,
    feedback.c.embedding,
)
_FEEDBACK = HotSelect(sa.select(*_KEPT).where(feedback.c.id == sa.bindparam("id")))


class LearnedQueries:
    """Reads whose cost depends on what is asked for, never on how much was learned."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def learned(self, namespace: str) -> Learned:
        """What the namespace has learned of ranking."""
        with self._store.reading() as connection:
            rows = _MIND.rows(connection, {"name": namespace})
        version, mind, frozen, knobs = rows[0] if rows else (0, None, 0, None)
        return Learned(version, mind, bool(frozen), knobs)

    def tuning(self, namespace: str) -> tuple[str | None, str | None]:
        """Knobs of the namespace and what is known of turning them, as JSON."""
        query = sa.select(namespaces.c.knobs, namespaces.c.tuning)
        with self._store.reading() as connection:
            row = connection.execute(query.where(namespaces.c.name == namespace)).one_or_none()
        return (None, None) if row is None else (row.knobs, row.tuning)

    def usage(self, namespace: int, keys: Sequence[int]) -> dict[int, Usage]:
        """What is known of the use of those nodes that have any; ``namespace`` and nodes by key."""
        with self._store.reading() as connection:
            rows = _USAGE.rows(connection, {"namespace": namespace, "keys": list(keys)})
        return {key: Usage(*counts) for key, *counts in rows}

    def episodes(self, namespace: int, ids: Sequence[str]) -> list[Episode]:
        """The episodes with these ids, and all that no index knows yet."""
        with self._store.reading() as connection:
            rows = _EPISODES.rows(connection, {"namespace": namespace, "ids": list(ids)})
        return _episodes({row[0]: row for row in rows}.values())

    def voices(self, episode: str) -> dict[str, dict[str, float]]:
        """What users have said in an episode: credit by node id, by user."""
        with self._store.reading() as connection:
            rows = _VOICES.rows(connection, {"id": episode})
        return json.loads(rows[0][0]) if rows and rows[0][0] else {}

    def latest_episodes(self, namespace: int, limit: int) -> list[Episode]:
        """The last episodes of a namespace, for indexes that keep none."""
        query = (
            sa.select(*_EPISODE)
            .where(episodes.c.namespace == namespace)
            .order_by(episodes.c.clock.desc())
            .limit(limit)
        )
        with self._store.reading() as connection:
            return _episodes(connection.execute(query))

    def episode_ids(self, namespace: int) -> list[str]:
        """Ids of all episodes of a namespace."""
        query = sa.select(episodes.c.id).where(episodes.c.namespace == namespace)
        with self._store.reading() as connection:
            return list(connection.scalars(query))

    def pile(self) -> int:
        """How many episodes no index knows yet."""
        with self._store.reading() as connection:
            ((count,),) = _PILE.rows(connection, {})
        return int(count)

    def unindexed(self) -> list[tuple[int, Episode]]:
        """Episodes whose vectors cannot be searched yet, with the key of their namespace."""
        query = sa.select(episodes.c.namespace, *_EPISODE).where(episodes.c.indexed == 0)
        with self._store.reading() as connection:
            rows = connection.execute(query)
            return list(readable("an episode", rows, lambda row: (row[0], _episode(row[1:]))))

    def keys(self, ids: Sequence[str]) -> dict[str, int]:
        """Keys of the nodes with these ids, or of those that stand for them; no unknown ones."""
        with self._store.reading() as connection:
            return {node: key for node, key in _KEYS.rows(connection, {"ids": list(ids)})}

    def weights(self, namespace: str, sources: Sequence[int]) -> dict[Triple, float]:
        """Effective weights of the learned edges that leave these nodes."""
        of = {"name": namespace, "sources": list(sources)}
        with self._store.reading() as connection:
            rows = _WEIGHTS.rows(connection, of)
        return {
            (source, target, EdgeKind(kind)): effective_weight(
                weight, 0.0, mark, exponent, DECAY_RATES[authority]
            )
            for source, target, kind, weight, mark, exponent, authority in rows
        }

    def counts(self, namespace: str, sources: Sequence[int]) -> dict[Triple, float]:
        """How many turns speak for edges that leave these nodes and do not stand yet."""
        of = {"name": namespace, "sources": list(sources)}
        with self._store.reading() as connection:
            return {
                (source, target, EdgeKind(kind)): count
                for source, target, kind, count in _COUNTS.rows(connection, of)
            }

    def feedback(self, feedback_id: str) -> Kept:
        """Feedback by its id.

        Raises:
            NotFoundError: There is none with that id.
            StoreError: It cannot be read.
        """
        with self._store.reading() as connection:
            rows = _FEEDBACK.rows(connection, {"id": feedback_id})
        if not rows:
            msg = f"no feedback {feedback_id!r} is kept here: check the id"
            raise NotFoundError(msg)
        kept = _kept(rows[0])
        if isinstance(kept, Unreadable):
            msg = f"feedback {feedback_id!r} {kept.why}: give it again under another id"
            raise StoreError(msg)
        return kept

    def waiting(self, limit: int, after: int = 0) -> list[Kept | Unreadable]:
        """Feedback that was not applied yet, in the order in which it came."""
        query = (
            sa.select(*_KEPT)
            .where(feedback.c.status == "waiting", feedback.c.sequence > after)
            .order_by(feedback.c.sequence)
            .limit(limit)
        )
        with self._store.reading() as connection:
            return [_kept(row) for row in connection.execute(query)]

    def tally(self) -> dict[str, int]:
        """How much feedback is waiting, applied and refused."""
        query = sa.select(feedback.c.status, sa.func.count()).group_by(feedback.c.status)
        with self._store.reading() as connection:
            found = {status: count for status, count in connection.execute(query)}
        return {status: found.get(status, 0) for status in ("waiting", "applied", "refused")}

    def consumed(self, turns: Sequence[str]) -> dict[str, str]:
        """Which of these turns were consumed, and by which feedback."""
        query = sa.select(consumed_turns.c.turn, consumed_turns.c.feedback).where(
            consumed_turns.c.turn.in_(list(turns))
        )
        with self._store.reading() as connection:
            return {turn: by for turn, by in connection.execute(query)}


def _episodes(rows: Iterable[Sequence[Any]]) -> list[Episode]:
    return list(readable("an episode", rows, _episode))


def _episode(row: Sequence[Any]) -> Episode:
    episode, query, turns, told, documents, embedding, clock = row
    return Episode(episode, query, turns, told, json.loads(documents), unpack(embedding), clock)


def _kept(row: Sequence[Any]) -> Kept | Unreadable:
    identity, sequence, payload, status, note, created, embedding = row
    try:
        given = Feedback.from_dict(json.loads(payload))
        vector = None if embedding is None else unpack(embedding)
    except (ValueError, TypeError) as error:  # one row must not stop all others
        return Unreadable(sequence, identity, f"cannot be read ({error})")
    return Kept(sequence, given, status, note, created, vector)
