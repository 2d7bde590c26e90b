"""Feedback from events of a host: a more specific event replaces a less specific one."""

import hashlib
from contextlib import suppress
from typing import Protocol, get_args

from crabpath_retrievers.config.outcome_policy import (
    OBSERVED_KINDS,
    EventKind,
    OutcomePolicy,
    rank_kind,
)
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.storage import GraphStore


class FeedbackSink(Protocol):
    """An object that takes feedback: a memory, or a learner in another process."""

    @property
    def store(self) -> GraphStore:
        """The store with turns and feedback."""

    def record(self, feedback: Feedback) -> Receipt:
        """Record feedback."""

    def undo(self, feedback_id: str, *, namespace: str | None = None) -> Receipt:
        """Undo one feedback."""


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


def record_superseding(memory: FeedbackSink, feedback: Feedback) -> Receipt:
    """Record feedback, after undoing less specific feedback about the same turn.

    Feedback that comes from no event is a person's: a correction, or else a score.

    Raises:
        StoreError: The feedback could not be stored.
    """
    _undo_weaker(memory, feedback)
    return memory.record(feedback)


def _undo_weaker(memory: FeedbackSink, feedback: Feedback) -> None:
    stated: EventKind = "score" if feedback.correction is None else "correction"
    event_kind = parse_event_kind(feedback.feedback_id) or stated
    store: GraphStore | None = memory.store  # None if a server has it, and does this itself
    if store is None or event_kind in OBSERVED_KINDS or feedback.turn_id is None:
        return
    stored = store.turns.find(feedback.turn_id, namespace=feedback.namespace)
    if stored is None or stored.state.frozen:
        return
    superseded = {
        make_event_id(kind, stored.turn.id) for kind in OBSERVED_KINDS
    }  # some of these may still be waiting
    consumer = parse_event_kind(stored.consumed or "")
    if stored.consumed and consumer is not None and rank_kind(consumer) > rank_kind(event_kind):
        superseded.add(stored.consumed)
    for feedback_id in superseded:
        namespace = stored.turn.namespace
        if store.history.get_feedback_state(feedback_id, namespace) is not None:
            with suppress(NotFoundError):  # it was forgotten meanwhile
                memory.undo(feedback_id, namespace=namespace)
