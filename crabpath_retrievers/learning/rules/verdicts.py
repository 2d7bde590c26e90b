"""Verdicts: what an event of a host says, and which of several about a turn stands.

The last word of a person counts before all else.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, NamedTuple, get_args

from crabpath_retrievers.config.outcome_policy import OBSERVED_KINDS, EventKind, OutcomePolicy
from crabpath_retrievers.core.feedback import Feedback


def make_event_id(kind: EventKind, turn_id: str, key: str = "") -> str:
    """Return the feedback id of an event: the same for the same event about the same turn.

    ``key`` distinguishes events of one kind about one turn; empty if there is only one.
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

    ``policy`` gives outcome and source of the event's ``kind``. The answer is kept only for a
    success: if an answer came in spite of an error, it is not known what was wrong with it.
    ``answer``, ``namespace`` and ``user`` are None if unknown.
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


_RANKS = {"human": 0, "teacher": 1, "self": 2, "harvested": 3}


class Judgement(NamedTuple):
    """Effect of a verdict on earlier ones about the same turn.

    Attributes:
        outranked_by: An earlier verdict that stands, so that the new one does not count; None if
            there is none.
        repeats: An earlier verdict by the same giver to which the new one adds nothing; None if
            there is none.
        replaces: Ids of the earlier verdicts that are undone when the new one is learned from.
        completes: Id of one of these, by the same giver, that has fields which the new one lacks,
            see :func:`complete`; None if there is none.
    """

    outranked_by: Feedback | None
    repeats: Feedback | None
    replaces: tuple[str, ...]
    completes: str | None


def decide(given: Feedback, earlier: Iterable[Feedback]) -> Judgement:
    """Decide what a verdict does to earlier ones.

    A giver is a person by name, or the one person without a name, or whatever is no person. The
    last verdict of a giver counts. A person's counts before a teacher's, that before a model's, and
    that before an observed event's. The verdicts of two people both count. An id that returns with
    other content is a change of mind. ``earlier`` verdicts were learned from, the latest last.
    """
    outranked_by = repeats = completes = None
    replaces, rank = list[str](), _rank(given)
    for known in earlier:
        other = _rank(known)
        if known.feedback_id != given.feedback_id:
            if other < rank:
                outranked_by = known
                continue
            if other == rank == 0 and known.user != given.user:
                continue
            whole = complete(given, known) if other == rank else given
            if other == rank and says_the_same(whole, known):
                repeats = known
                continue
            completes = known.feedback_id if whole != given else completes
        replaces.append(known.feedback_id)
    return Judgement(outranked_by, repeats, tuple(replaces), completes)


# Where a document that stands in the first of these is named now, it has left the first.
_ELSEWHERE = {
    "used": ("unused", "irrelevant"),
    "unused": ("used",),
    "relevant": ("irrelevant",),
    "irrelevant": ("used", "relevant"),
    "answer": (),
    "correction": (),
}


def complete(given: Feedback, known: Feedback) -> Feedback:
    """Add to a verdict the fields that ``known``, an earlier one by its giver, has and it lacks.

    Nothing is added if the outcomes differ. Documents that the verdict itself names elsewhere, such
    as in ``unused`` instead of ``used``, are not added.
    """
    kept = dict[str, Any]()
    for name, others in _ELSEWHERE.items() if given.outcome == known.outcome else ():
        former = getattr(known, name)
        if former and getattr(given, name) is None and others:
            moved = {node for other in others for node in getattr(given, other) or ()}
            former = tuple(node for node in former if node not in moved) or None
        if former is not None and getattr(given, name) is None:
            kept[name] = former
    return replace(given, **kept)


def says_the_same(one: Feedback, other: Feedback) -> bool:
    """Whether two feedbacks differ at most in their ids and in the way they name the turn."""
    return other == replace(
        one,
        feedback_id=other.feedback_id,
        turn_id=other.turn_id,
        namespace=other.namespace,
        session=other.session,
    )


def _rank(feedback: Feedback) -> int:
    """Rank the giver of feedback: 0 for a person; observed events come last."""
    kind = parse_event_kind(feedback.feedback_id)
    if kind in OBSERVED_KINDS:
        return len(_RANKS) + OBSERVED_KINDS.index(kind)
    return _RANKS[feedback.source]
