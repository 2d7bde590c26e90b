"""What a host is told about its feedback, and the fields by which it gives it."""

from collections.abc import Sequence
from typing import NamedTuple

from typing_extensions import TypedDict

from crabpath_retrievers.outcome import RewardSource, Status


class Receipt(NamedTuple):
    """What became of feedback.

    Attributes:
        feedback_id: Under which it is kept; recording the same id again tells how it stands.
        status: ``waiting`` until it is learned from, then ``applied``; ``refused`` when nothing
            can be learned from it; ``undone`` when it was taken back.
        note: Why it is refused or still waits, or what of it was ignored; None without need.
    """

    feedback_id: str
    status: Status
    note: str | None = None


class FeedbackFields(TypedDict, total=False):
    """The optional fields of :class:`~crabpath_retrievers.outcome.Feedback`."""

    used: Sequence[str] | None
    unused: Sequence[str] | None
    answer: str | None
    correction: str | None
    source: RewardSource
    feedback_id: str
    namespace: str | None
    user: str | None
