"""Reads of what can be taken back: lessons, moves, snapshots."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.changes.history import Taught
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.outcome import Status
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import (
    consumed,
    feedback,
    moves,
    namespaces,
    nodes,
    snapshots,
    taught,
)

EdgeName = tuple[str, str, str]
"""An edge as records name it: ids of source and target, label of its kind."""

_KINDS = {kind.value: kind.label for kind in EdgeKind}


class Stands(NamedTuple):
    """Feedback as undoing meets it.

    Attributes:
        namespace: Whose it is; None where that is not known yet.
    """

    namespace: str | None
    status: Status


class Lesson(NamedTuple):
    """What one feedback has taught.

    Attributes:
        since: How many outcomes have been learned from since, and stand.
        episodes: Ids of the episodes that it added to.
    """

    taught: Taught
    since: int
    episodes: tuple[str, ...]


class Move(NamedTuple):
    """A move of a learned weight: by which feedback, by how much, in seconds since the epoch."""

    feedback_id: str
    delta: float
    created: float


class Snapshot(NamedTuple):
    """A snapshot of what a namespace knew.

    Attributes:
        id: Identity within the store.
        name: As it was named; None without name.
        created: Seconds since the epoch.
        learned: How often the namespace had learned.
        size: Bytes that it takes.
    """

    id: str
    namespace: str
    name: str | None
    created: float
    learned: int
    size: int


class HistoryQueries:
    """Reads of what namespaces have been through."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def feedback(self, feedback_id: str) -> Stands | None:
        """Where feedback stands; None when there is none with that id."""
        query = sa.select(feedback.c.namespace, feedback.c.status)
        with self._store.reading() as connection:
            row = connection.execute(query.where(feedback.c.id == feedback_id)).one_or_none()
        return None if row is None else Stands(*row)

    def consumer(self, turn_id: str) -> str | None:
        """Id of the feedback that consumed a turn."""
        query = sa.select(consumed.c.feedback).where(consumed.c.turn == turn_id)
        with self._store.reading() as connection:
            return connection.scalar(query)

    def lesson(self, feedback_id: str) -> Lesson | None:
        """What feedback has taught; None where nothing of it is left, or it is not known."""
        later = taught.alias()
        since = (
            sa.select(sa.func.coalesce(sa.func.sum(later.c.outcomes), 0))
            .where(later.c.namespace == taught.c.namespace, later.c.sequence > taught.c.sequence)
            .scalar_subquery()
        )
        query = sa.select(taught.c.record, taught.c.ranker, since)
        with self._store.reading() as connection:
            row = connection.execute(query.where(taught.c.feedback == feedback_id)).one_or_none()
        if row is None:
            return None
        record, ranker, count = row
        data = json.loads(record)
        known = Taught(
            outcomes=tuple(data["outcomes"]),
            count=data["count"],
            spoken={memory: (a, b) for memory, (a, b) in data["spoken"].items()},
            ranker=ranker,
            told=tuple((told["note"], told["query"]) for told in data["told"]),
            used=tuple(data["used"]),
        )
        return Lesson(known, int(count), tuple(episode[0] for episode in data["episodes"]))

    def moves(
        self, namespace: str, edges: Iterable[EdgeName], most: int
    ) -> dict[EdgeName, tuple[Move, ...]]:
        """Which feedback moved these edges in a namespace, newest first.

        Args:
            namespace: Whose weights.
            edges: By name; those that nobody moved are left out.
            most: Moves per edge.
        """
        wanted = set(edges)
        if not wanted:
            return {}
        query = _moves_of(namespace, *({edge[place] for edge in wanted} for place in (0, 1)))
        found: dict[EdgeName, list[Move]] = {}
        with self._store.reading() as connection:
            for source, target, kind, place, *move in connection.execute(query):
                edge = (source, target, _KINDS[kind])
                if edge in wanted and place <= most:
                    found.setdefault(edge, []).append(Move(*move))
        return {edge: tuple(known) for edge, known in found.items()}

    def snapshots(self, namespace: str | None = None) -> list[Snapshot]:
        """The snapshots of a namespace, or of all, newest first."""
        query = (
            sa.select(
                snapshots.c.id,
                namespaces.c.name.label("namespace"),
                snapshots.c.name,
                snapshots.c.created,
                snapshots.c.learned,
                sa.func.length(snapshots.c.content),
            )
            .join(namespaces, namespaces.c.key == snapshots.c.namespace)
            .order_by(snapshots.c.created.desc())
        )
        if namespace is not None:
            query = query.where(namespaces.c.name == namespace)
        with self._store.reading() as connection:
            return [Snapshot(*row) for row in connection.execute(query)]


def _moves_of(namespace: str, sources: Iterable[str], targets: Iterable[str]) -> sa.Select[Any]:
    """Moves of edges between these nodes, each with its place among those of its edge."""
    edge = (moves.c.source, moves.c.target, moves.c.kind)
    place = sa.func.row_number().over(partition_by=edge, order_by=moves.c.sequence.desc())
    one, other = nodes.alias(), nodes.alias()
    ends: Sequence[sa.ColumnElement[bool]] = (
        one.c.id.in_(sorted(sources)),
        other.c.id.in_(sorted(targets)),
    )
    found = (one.c.id, other.c.id, moves.c.kind, place.label("place"))
    return (
        sa.select(*found, moves.c.cause, moves.c.delta, moves.c.created)
        .join(namespaces, namespaces.c.key == moves.c.namespace)
        .join(one, one.c.key == moves.c.source)
        .join(other, other.c.key == moves.c.target)
        .where(namespaces.c.name == namespace, moves.c.cause != "", *ends)
        .order_by(moves.c.sequence.desc())
    )
