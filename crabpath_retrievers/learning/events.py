"""Feedback from events of a host."""

import hashlib
from typing import get_args

from crabpath_retrievers.config.outcome_policy import EventKind, OutcomePolicy
from crabpath_retrievers.core.feedback import Feedback


def make_event_id(kind: EventKind, turn_id: str, key: str = "") -> str:
    """Return the feedback id of an event: the same for the same event about the same turn.

    Args:
        kind: Kind of the event.
        turn_id: The turn.
        key: Distinguishes events of one kind about one turn.
    """
    digest = [hashlib.sha256(key.encode()).hexdigest()[:16]] if key else []
    return ":".join(["event", kind, *digest, turn_id])


def parse_event_kind(feedback_id: str) -> EventKind | None:
    """Return the kind of event that a feedback id was made from; None if it was made from none."""
    prefix, _, rest = feedback_id.partition(":")
    if prefix == "langsmith":
        return "langsmith"
    kind = rest.partition(":")[0]
    return next((k for k in get_args(EventKind) if prefix == "event" and k == kind), None)


def make_event_feedback(
    kind: EventKind,
    policy: OutcomePolicy,
    turn_id: str,
    *,
    answer: str | None,
    namespace: str | None,
    user: str | None = None,
) -> Feedback:
    """Build the feedback about a turn that follows from an observed event.

    The answer is attributed only after a success: if an answer came in spite of an error, it is not
    known what was wrong with it.
    """
    rule = policy.rule(kind)
    return Feedback(
        turn_id,
        rule.outcome,
        answer=answer if kind == "silent_success" else None,
        source=rule.source,
        feedback_id=make_event_id(kind, turn_id),
        namespace=namespace,
        user=user,
    )
