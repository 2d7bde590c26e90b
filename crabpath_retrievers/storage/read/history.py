"""Reads for undo: feedback and its effects, and snapshots."""

import json
from typing import Any, NamedTuple, get_args

import sqlalchemy as sa

from crabpath_retrievers.core.changes import ModelEffects
from crabpath_retrievers.core.feedback import (
    DOCUMENT_FIELDS,
    MOST_LATER,
    FeedbackStatus,
    RewardSource,
    validate_user,
)
from crabpath_retrievers.core.query import parse_namespace, parse_text
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage.schema import (
    consumed_turns,
    feedback,
    feedback_effects,
    namespaces,
    turns,
)
from crabpath_retrievers.storage.sql_tools import ListPlace, Queries


class FeedbackState(NamedTuple):
    """State of stored feedback.

    The namespace is None while it is not known.
    """

    sequence: int
    namespace: str | None
    status: FeedbackStatus


class FeedbackFilter(NamedTuple):
    """Selects feedback; a field that is None does not restrict it."""

    user: str | None = None
    source: str | None = None
    namespace: str | None = None
    token: str | None = None

    @classmethod
    def of(
        cls,
        *,
        user: str | None,
        source: str | None,
        namespace: str | None,
        token: str | None = None,
    ) -> "FeedbackFilter":
        """Make a filter from fields that are checked; None for a field matches all.

        Raises:
            InvalidInputError: A field cannot be used.
        """
        known = get_args(RewardSource)
        if source is not None and not (isinstance(source, str) and source in known):
            msg = f"unknown source {format_value(source)}: use one of {', '.join(known)}"
            raise InvalidInputError(msg)
        return cls(
            None if user is None else validate_user(user),
            source,
            None if namespace is None else parse_namespace(namespace),
            None if token is None else parse_text("token", token),
        )

    def where(self) -> list[sa.ColumnElement[bool]]:
        """Conditions on the rows of the feedback table."""
        named = self._asdict().items()
        return [feedback.c[name] == value for name, value in named if value is not None]


class FeedbackRecord(NamedTuple):
    """Stored feedback and its state.

    Attributes:
        feedback_id: Id of the feedback.
        turn_id: Id of the turn, as given; where none was, of the last one that it was learned from,
            None without one.
        outcome: z in [-1, 1].
        status: ``waiting``, ``applied``, ``refused`` or ``undone``.
        note: Why it was refused or undone, or which parts of it were ignored.
        user: Id of the user who gave it; None if unknown.
        source: Kind of source, such as ``human`` or ``self``.
        namespace: Namespace of the turn; None if unknown.
        created: Seconds since the epoch.
        correction: The correct answer, as given.
        used, unused, relevant, irrelevant: Documents as they were named; None where none were.
        token: Id of the token of the server that gave it; None without one.
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
    used: tuple[str, ...] | None = None
    unused: tuple[str, ...] | None = None
    relevant: tuple[str, ...] | None = None
    irrelevant: tuple[str, ...] | None = None
    token: str | None = None


class StoredEffects(NamedTuple):
    """Effects of one feedback that must be undone outside of the store's own tables.

    ``later`` are the outcomes, not undone, that entered the baseline after it, in order.
    ``episodes`` were extended by it, and ``notes`` created or repeated.
    """

    model: ModelEffects
    later: tuple[float, ...]
    episodes: tuple[str, ...]
    notes: tuple[str, ...]


_LEARNED_FROM = (
    sa.select(turns.c.id)
    .join(consumed_turns, consumed_turns.c.turn == turns.c.id)
    .join(namespaces, namespaces.c.key == turns.c.namespace)
    .where(consumed_turns.c.feedback == feedback.c.id, namespaces.c.name == feedback.c.namespace)
    .order_by(turns.c.clock.desc())
    .limit(1)
    .scalar_subquery()
    .label("turn")
)


class HistoryQueries(Queries):
    """Reads of feedback, its effects and snapshots."""

    def get_feedback_state(
        self, feedback_id: str, namespace: str | None = None
    ) -> FeedbackState | None:
        """Read the state of feedback by its id; None for an unknown id.

        Raises:
            InvalidInputError: No namespace is given, and several have feedback with this id.
        """
        query = sa.select(feedback.c.sequence, feedback.c.namespace, feedback.c.status)
        where = [feedback.c.id == feedback_id]
        if namespace is not None:
            where.append(feedback.c.namespace == namespace)
        rows = self._rows(query.where(*where).order_by(feedback.c.sequence.desc()).limit(2))
        if len({row.namespace for row in rows} - {None}) > 1:
            msg = f"several namespaces have feedback {feedback_id!r:.250}: give the namespace"
            raise InvalidInputError(msg)
        return FeedbackState(*rows[0]) if rows else None

    def find_feedback(
        self,
        giver: FeedbackFilter,
        limit: int,
        *,
        turn: str | None = None,
        before: str | None = None,
    ) -> list[FeedbackRecord]:
        """List feedback that matches a filter, newest first, at most ``limit``.

        ``turn`` is the id of a turn, or the host's id of its run: only feedback is listed that
        names it or was learned from it, and all feedback of the filter is read. None lists any.
        ``before`` is the id of feedback, or a place: only older feedback is listed. None lists all.

        Raises:
            NotFoundError: There is no feedback ``before``.
        """
        query = sa.select(feedback, _LEARNED_FROM).where(*giver.where())
        query = query.order_by(feedback.c.sequence.desc())
        if before is not None:
            query = query.where(
                feedback.c.sequence < self.find_place(before, giver.namespace).first
            )
        if turn is None:
            return [_decode_record(row) for row in self._rows(query.limit(limit))]
        asked = sa.or_(turns.c.id == turn, turns.c.run_id == turn)
        rows = self._rows(sa.select(turns.c.id, turns.c.run_id).where(asked))
        names = sorted({turn, *(name for row in rows for name in row if name)})
        consumed = (
            sa.select(consumed_turns.c.feedback, namespaces.c.name)
            .join(turns, turns.c.id == consumed_turns.c.turn)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(consumed_turns.c.turn.in_(names))
        )
        consumers = {tuple(row) for row in self._rows(consumed)}
        # The texts of ids as JSON holds them: rows with another one are not decoded.
        quoted = (json.dumps(name, ensure_ascii=False) for name in names)
        named = [feedback.c.payload.contains(text, autoescape=True) for text in quoted]
        of_consumers = feedback.c.id.in_({name for name, _ in consumers})
        rows = self._rows(query.where(sa.or_(of_consumers, *named)))
        about = [
            r
            for r in map(_decode_record, rows)
            if r.turn_id in names or (r.feedback_id, r.namespace) in consumers
        ]
        return about[:limit]

    def find_place(self, name: str, namespace: str | None) -> ListPlace:
        """Find the place of the feedback with this id, or read the text of a place.

        Raises:
            NotFoundError: There is no such feedback, and the text is no place.
        """
        state = self.get_feedback_state(name, namespace)
        return ListPlace.parse(name, "feedback") if state is None else ListPlace(state.sequence)

    def find_undoable(self, giver: FeedbackFilter) -> list[tuple[str, str | None]]:
        """Find feedback that matches a filter and can be undone, as ``(id, namespace)``.

        Waiting feedback, whose namespace may be None, comes first; then applied feedback, the last
        learned first.
        """
        learned = sa.func.coalesce(feedback_effects.c.sequence, 0)
        query = (
            sa.select(feedback.c.id, feedback.c.namespace)
            .outerjoin(namespaces, namespaces.c.name == feedback.c.namespace)
            .outerjoin(
                feedback_effects,
                (feedback_effects.c.feedback == feedback.c.id)
                & (feedback_effects.c.namespace == namespaces.c.key),
            )
            .where(*giver.where(), feedback.c.status.in_(("waiting", "applied")))
            .order_by(feedback.c.status == "applied", learned.desc(), feedback.c.sequence.desc())
        )
        return [(name, space) for name, space in self._rows(query)]

    def get_effects(self, feedback_id: str, namespace: int) -> StoredEffects | None:
        """Read the effects of a feedback; None if none are stored."""
        e, later = feedback_effects.c, feedback_effects.alias().c
        query = sa.select(e.sequence, e.record, e.ranker)
        rows = self._rows(query.where(e.feedback == feedback_id, e.namespace == namespace))
        if not rows:
            return None
        sequence, record, ranker = rows[0]
        after = sa.select(later.record).where(
            later.namespace == namespace, later.sequence > sequence, later.outcome_count > 0
        )
        records = self._rows(after.order_by(later.sequence).limit(MOST_LATER + 1))
        outcomes = tuple(z for (text,) in records for z in json.loads(text)["outcomes"])
        data = json.loads(record)
        reliability = {memory: (a, b) for memory, (a, b) in data["reliability"].items()}
        model = ModelEffects(tuple(data["outcomes"]), reliability, ranker)
        episodes, notes = data["episodes"], data["notes"]
        return StoredEffects(
            model,
            outcomes,
            tuple(identity for identity, *_ in episodes),
            tuple(made["note"] for made in notes),
        )


def _decode_record(row: sa.Row[Any]) -> FeedbackRecord:
    payload = json.loads(row.payload)
    return FeedbackRecord(
        feedback_id=row.id,
        turn_id=payload["turn_id"] or row.turn,
        outcome=payload["outcome"],
        status=row.status,
        note=row.note,
        user=row.user,
        source=payload["source"],
        namespace=row.namespace,
        created=row.created,
        correction=payload.get("correction"),
        **{name: tuple(payload[name]) for name in DOCUMENT_FIELDS if payload.get(name) is not None},
        token=row.token,
    )
