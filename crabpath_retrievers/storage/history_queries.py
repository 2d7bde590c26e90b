"""Reads of what can be taken back: lessons, moves, snapshots."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import sqlalchemy as sa

from crabpath_retrievers.changes.history import Taught
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import EdgeKind
from crabpath_retrievers.outcome import RewardSource, Status, user_of
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    feedback,
    feedback_effects,
    namespaces,
    nodes,
    snapshots,
    weight_changes,
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


class Giver(NamedTuple):
    """Whose feedback is meant; None for anybody's."""

    user: str | None = None
    source: str | None = None
    namespace: str | None = None

    @classmethod
    def of(cls, *, user: str | None, source: str | None, namespace: str | None) -> "Giver":
        """One as they are stored.

        Raises:
            InvalidInputError: A name cannot be one.
        """
        if source is not None and source not in get_args(RewardSource):
            msg = f"unknown source {source!r}: use one of {', '.join(get_args(RewardSource))}"
            raise InvalidInputError(msg)
        return cls(
            None if user is None else user_of(user),
            source,
            None if namespace is None else namespace_of(namespace),
        )

    def where(self) -> list[sa.ColumnElement[bool]]:
        """Which rows of feedback are theirs."""
        named = self._asdict().items()
        return [feedback.c[name] == value for name, value in named if value is not None]


class FeedbackRecord(NamedTuple):
    """Feedback as it was given, and where it stands.

    Attributes:
        feedback_id: Under which it is kept.
        turn_id: As it was given; None for the last turns of the namespace.
        outcome: z in [-1, 1].
        status: ``waiting``, ``applied``, ``refused`` or ``undone``.
        note: Why it was refused or undone, or what of it was ignored.
        user: Who gave it; None where the host did not say.
        source: In what quality.
        namespace: Whose turn it was; None where that is not known.
        created: Seconds since the epoch.
        correction: What would have been right, as it was given.
    """

    feedback_id: str
    turn_id: str | None
    outcome: float
    status: Status
    note: str | None
    user: str | None
    source: RewardSource
    namespace: str | None
    created: float
    correction: str | None


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

    def given(self, giver: Giver, limit: int) -> list[FeedbackRecord]:
        """The feedback of a giver, newest first."""
        query = (
            sa.select(feedback)
            .where(*giver.where())
            .order_by(feedback.c.sequence.desc())
            .limit(limit)
        )
        with self._store.reading() as connection:
            return [_given(row) for row in connection.execute(query)]

    def standing(self, giver: Giver) -> list[str]:
        """Ids of the feedback of a giver that can be taken back, in the order to do it.

        What waits comes first, then what was learned last.
        """
        learned = sa.func.coalesce(feedback_effects.c.sequence, 0)
        query = (
            sa.select(feedback.c.id)
            .select_from(
                feedback.outerjoin(feedback_effects, feedback_effects.c.feedback == feedback.c.id)
            )
            .where(*giver.where(), feedback.c.status.in_(("waiting", "applied")))
            .order_by(feedback.c.status == "applied", learned.desc(), feedback.c.sequence.desc())
        )
        with self._store.reading() as connection:
            return list(connection.scalars(query))

    def consumer(self, turn_id: str) -> str | None:
        """Id of the feedback that consumed a turn."""
        query = sa.select(consumed_turns.c.feedback).where(consumed_turns.c.turn == turn_id)
        with self._store.reading() as connection:
            return connection.scalar(query)

    def lesson(self, feedback_id: str) -> Lesson | None:
        """What feedback has taught; None where nothing of it is left, or it is not known."""
        later = feedback_effects.alias()
        since = (
            sa.select(sa.func.coalesce(sa.func.sum(later.c.outcome_count), 0))
            .where(
                later.c.namespace == feedback_effects.c.namespace,
                later.c.sequence > feedback_effects.c.sequence,
            )
            .scalar_subquery()
        )
        query = sa.select(feedback_effects.c.record, feedback_effects.c.ranker, since)
        with self._store.reading() as connection:
            row = connection.execute(
                query.where(feedback_effects.c.feedback == feedback_id)
            ).one_or_none()
        if row is None:
            return None
        record, ranker, count = row
        data = json.loads(record)
        known = Taught(
            outcomes=tuple(data["outcomes"]),
            count=data["count"],
            spoken={memory: (a, b) for memory, (a, b) in data["reliability"].items()},
            ranker=ranker,
            told=tuple((made["note"], made["query"]) for made in data["notes"]),
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
                snapshots.c.version,
                sa.func.length(snapshots.c.content),
            )
            .join(namespaces, namespaces.c.key == snapshots.c.namespace)
            .order_by(snapshots.c.created.desc())
        )
        if namespace is not None:
            query = query.where(namespaces.c.name == namespace)
        with self._store.reading() as connection:
            return [Snapshot(*row) for row in connection.execute(query)]


def _given(row: sa.Row[Any]) -> FeedbackRecord:
    said = json.loads(row.payload)
    return FeedbackRecord(
        feedback_id=row.id,
        turn_id=said["turn_id"],
        outcome=said["outcome"],
        status=row.status,
        note=row.note,
        user=row.user,
        source=said["source"],
        namespace=row.namespace,
        created=row.created,
        correction=said.get("correction"),
    )


def _moves_of(namespace: str, sources: Iterable[str], targets: Iterable[str]) -> sa.Select[Any]:
    """Moves of edges between these nodes, each with its place among those of its edge."""
    edge = (weight_changes.c.source, weight_changes.c.target, weight_changes.c.kind)
    place = sa.func.row_number().over(partition_by=edge, order_by=weight_changes.c.sequence.desc())
    one, other = nodes.alias(), nodes.alias()
    ends: Sequence[sa.ColumnElement[bool]] = (
        one.c.id.in_(sorted(sources)),
        other.c.id.in_(sorted(targets)),
    )
    found = (one.c.id, other.c.id, weight_changes.c.kind, place.label("place"))
    return (
        sa.select(*found, weight_changes.c.cause, weight_changes.c.delta, weight_changes.c.created)
        .join(namespaces, namespaces.c.key == weight_changes.c.namespace)
        .join(one, one.c.key == weight_changes.c.source)
        .join(other, other.c.key == weight_changes.c.target)
        .where(namespaces.c.name == namespace, weight_changes.c.cause != "", *ends)
        .order_by(weight_changes.c.sequence.desc())
    )
