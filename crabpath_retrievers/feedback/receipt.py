"""Receipts of feedback, and its optional fields."""

from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import TypedDict

from crabpath_retrievers.outcome import FeedbackStatus, RewardSource


class Receipt(NamedTuple):
    """Status of recorded feedback.

    Attributes:
        feedback_id: Id under which it is stored; recording the same id again returns its status.
        status: ``waiting`` until it is applied, then ``applied``; ``refused`` if nothing can be
            learned from it; ``undone`` after an undo.
        note: Why it is refused or still waits, or which part of it was ignored; None otherwise.
    """

    feedback_id: str
    status: FeedbackStatus
    note: str | None = None


class FeedbackFields(TypedDict, total=False):
    """Optional fields of :class:`~crabpath_retrievers.outcome.Feedback`."""

    used: Sequence[str] | None
    unused: Sequence[str] | None
    answer: str | None
    correction: str | None
    source: RewardSource
    feedback_id: str
    namespace: str | None
    user: str | None
