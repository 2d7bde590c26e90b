"""Reads for undo: feedback and its effects, weight changes, snapshots."""

import json
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, get_args

import sqlalchemy as sa

from crabpath_retrievers.core.changes.learned import ModelEffects
from crabpath_retrievers.core.feedback import FeedbackStatus, RewardSource, validate_user
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.core.query import namespace_of
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage.schema import (
    feedback,
    feedback_effects,
    namespaces,
    nodes,
    snapshots,
    weight_changes,
)
from crabpath_retrievers.storage.sql_tools import Queries

EdgeName = tuple[str, str, str]
"""An edge by name: ids of source and target, label of its kind."""

_KINDS = {kind.value: kind.label for kind in EdgeKind}


class FeedbackState(NamedTuple):
    """State of stored feedback.

    Attributes:
        namespace: Name of its namespace; None while that is not known.
    """

    namespace: str | None
    status: FeedbackStatus


class FeedbackFilter(NamedTuple):
    """Which feedback is meant; a field that is None does not restrict it."""

    user: str | None = None
    source: str | None = None
    namespace: str | None = None

    @classmethod
    def of(cls, *, user: str | None, source: str | None, namespace: str | None) -> "FeedbackFilter":
        """Validate the fields.

        Raises:
            InvalidInputError: A user or namespace is no valid name, or the source is unknown.
        """
        if source is not None and source not in get_args(RewardSource):
            msg = f"unknown source {source!r}: use one of {', '.join(get_args(RewardSource))}"
            raise InvalidInputError(msg)
        return cls(
            None if user is None else validate_user(user),
            source,
            None if namespace is None else namespace_of(namespace),
        )

    def where(self) -> list[sa.ColumnElement[bool]]:
        """Conditions on the rows of the feedback table."""
        named = self._asdict().items()
        return [feedback.c[name] == value for name, value in named if value is not None]


class FeedbackRecord(NamedTuple):
    """Stored feedback and its state.

    Attributes:
        feedback_id: Id of the feedback.
        turn_id: Id of the turn, as given; None for the last turns of the namespace.
        outcome: z in [-1, 1].
        status: ``waiting``, ``applied``, ``refused`` or ``undone``.
        note: Why it was refused or undone, or which parts of it were ignored.
        user: Id of the user who gave it; None if unknown.
        source: Kind of source, such as ``human`` or ``self``.
        namespace: Namespace of the turn; None if unknown.
        created: Seconds since the epoch.
        correction: The correct answer, as given.
    """

    feedback_id: str
    turn_id: str | None
    outcome: float
    status: FeedbackStatus
    note: str | None
    user: str | None
    source: RewardSource
    namespace: str | None
    created: float
    correction: str | None


class StoredEffects(NamedTuple):
    """The effects of one feedback, as far as the store does not subtract them itself.

    Attributes:
        model: What it changed in the ranking model.
        since: Number of outcomes, not undone, that entered the baseline after it.
        episodes: Ids of the episodes that it added to.
        notes: Ids of the notes that it created or repeated.
    """

    model: ModelEffects
    since: int
    episodes: tuple[str, ...]
    notes: tuple[str, ...]


class StoredWeightChange(NamedTuple):
    """A change of a learned weight: id of the feedback, amount, time in epoch seconds."""

    feedback_id: str
    delta: float
    created: float


class Snapshot(NamedTuple):
    """A snapshot of the learned state of a namespace.

    Attributes:
        id: Id within the store.
        name: Its name; None without one.
        created: Seconds since the epoch.
        learned: Version of the namespace.
        size: Size in bytes.
    """

    id: str
    namespace: str
    name: str | None
    created: float
    learned: int
    size: int


class HistoryQueries(Queries):
    """Reads of feedback, its effects, weight changes and snapshots."""

    def get_feedback_state(self, feedback_id: str) -> FeedbackState | None:
        """State of feedback; None for an unknown id."""
        query = sa.select(feedback.c.namespace, feedback.c.status)
        rows = self._rows(query.where(feedback.c.id == feedback_id))
        return FeedbackState(*rows[0]) if rows else None

    def find_feedback(self, giver: FeedbackFilter, limit: int) -> list[FeedbackRecord]:
        """Feedback that matches a filter, newest first."""
        query = (
            sa.select(feedback)
            .where(*giver.where())
            .order_by(feedback.c.sequence.desc())
            .limit(limit)
        )
        return [_decode_record(row) for row in self._rows(query)]

    def find_undoable(self, giver: FeedbackFilter) -> list[str]:
        """Ids of the feedback that matches a filter and can be undone, in the order to undo it.

        Waiting feedback comes first, then applied feedback, last learned first.
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
        return self._scalars(query)

    def get_effects(self, feedback_id: str) -> StoredEffects | None:
        """The effects of feedback; None when none are stored."""
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
        rows = self._rows(query.where(feedback_effects.c.feedback == feedback_id))
        if not rows:
            return None
        record, ranker, count = rows[0]
        data = json.loads(record)
        reliability = {memory: (a, b) for memory, (a, b) in data["reliability"].items()}
        model = ModelEffects(tuple(data["outcomes"]), data["count"], reliability, ranker)
        episodes, notes = data["episodes"], data["notes"]
        return StoredEffects(
            model,
            int(count),
            tuple(identity for identity, *_ in episodes),
            tuple(made["note"] for made in notes),
        )

    def get_weight_changes(
        self, namespace: str, edges: Iterable[EdgeName], most: int
    ) -> dict[EdgeName, tuple[StoredWeightChange, ...]]:
        """The latest changes of learned weights by feedback, newest first.

        Args:
            namespace: Name of the namespace.
            edges: Edges by name; those without changes are left out of the result.
            most: Limit per edge.
        """
        wanted = set(edges)
        if not wanted:
            return {}
        query = _select_weight_changes(
            namespace, *({edge[place] for edge in wanted} for place in (0, 1))
        )
        found: dict[EdgeName, list[StoredWeightChange]] = {}
        for source, target, kind, place, *move in self._rows(query):
            edge = (source, target, _KINDS[kind])
            if edge in wanted and place <= most:
                found.setdefault(edge, []).append(StoredWeightChange(*move))
        return {edge: tuple(known) for edge, known in found.items()}

    def snapshots(self, namespace: str | None = None) -> list[Snapshot]:
        """The snapshots of a namespace, or of all namespaces, newest first."""
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
        return [Snapshot(*row) for row in self._rows(query)]


def _decode_record(row: sa.Row[Any]) -> FeedbackRecord:
    payload = json.loads(row.payload)
    return FeedbackRecord(
        feedback_id=row.id,
        turn_id=payload["turn_id"],
        outcome=payload["outcome"],
        status=row.status,
        note=row.note,
        user=row.user,
        source=payload["source"],
        namespace=row.namespace,
        created=row.created,
        correction=payload.get("correction"),
    )


def _select_weight_changes(
    namespace: str, sources: Iterable[str], targets: Iterable[str]
) -> sa.Select[Any]:
    """Weight changes between these nodes, each with its rank from the newest of its edge."""
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
