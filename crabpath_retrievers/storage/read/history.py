"""Reads for undo: feedback and its effects, and snapshots."""

import json
from typing import NamedTuple, get_args

import sqlalchemy as sa

from crabpath_retrievers.core.changes import ModelEffects
from crabpath_retrievers.core.feedback import (
    MOST_LATER,
    FeedbackStatus,
    RewardSource,
    validate_user,
)
from crabpath_retrievers.core.query import parse_namespace, parse_text
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage.schema import (
    feedback,
    feedback_effects,
    namespaces,
)
from crabpath_retrievers.storage.sql_tools import Queries


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


class StoredEffects(NamedTuple):
    """Effects of one feedback that must be undone outside of the store's own tables.

    ``later`` are the outcomes, not undone, that entered the baseline after it, in order.
    ``episodes`` were extended by it, and ``notes`` created or repeated.
    """

    model: ModelEffects
    later: tuple[float, ...]
    episodes: tuple[str, ...]
    notes: tuple[str, ...]


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
