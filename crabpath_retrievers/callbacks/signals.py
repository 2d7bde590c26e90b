"""What is said of a chain, before it is known which of it counts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.precedence import event_id
from crabpath_retrievers.outcome import RewardSource, learnable
from crabpath_retrievers.outcome_policy import SEEN, Kind, OutcomePolicy

EVENT = "crabpath_feedback"
"""Name of the custom event by which a chain says what became of it."""

ABOUT = ("run_id", "thread_id", "turn_id")
_FIELDS = ("used", "unused", "answer", "source", "namespace", "user")
_ALL_FIELDS = {"correction", "score", "outcome", "key", *_FIELDS, *ABOUT}


@dataclass(frozen=True, slots=True)
class Signal:
    """Something that is said of a chain.

    Attributes:
        kind: What kind of event it is.
        outcome: z in [-1, 1].
        source: Who says so.
        key: What tells it from others of its kind; the same again changes nothing.
        correction, used, unused, answer, namespace, user: As in
            :class:`~crabpath_retrievers.outcome.Feedback`.
    """

    kind: Kind
    outcome: float
    source: RewardSource
    key: str = ""
    correction: str | None = None
    used: Sequence[str] | None = None
    unused: Sequence[str] | None = None
    answer: str | None = None
    namespace: str | None = None
    user: str | None = None

    @property
    def explicit(self) -> bool:
        """Whether somebody said it, rather than that it was seen."""
        return self.kind not in SEEN

    def feedback_id(self, turn_id: str, owner: str) -> str:
        """The same for the same signal about the same turn of ``owner``, a namespace.

        That of another namespace is part of it: nobody can use up the id of another one's turn.
        """
        other = self.namespace is not None and self.namespace != owner
        return event_id(self.kind, turn_id, f"{self.key}\0{self.namespace}" if other else self.key)


def seen(kind: Kind, policy: OutcomePolicy) -> list[Signal]:
    """What a seen event says: nothing, where the policy does not count it."""
    rule = policy.rule(kind)
    return [Signal(kind, rule.outcome, rule.source)] if rule.on else []


def said(data: Any, policy: OutcomePolicy) -> list[Signal]:
    """What a host says of a chain; nothing, where the policy does not count it.

    Args:
        data: ``correction`` (a text) or ``score`` in [0, 1], or ``outcome`` in [-1, 1]; ``key``
            tells scores apart; ``used``, ``unused``, ``answer``, ``source``, ``namespace`` and
            ``user`` are those of :class:`~crabpath_retrievers.outcome.Feedback`.
        policy: What it counts.

    Raises:
        InvalidInputError: It is something else.
    """
    if not isinstance(data, Mapping) or not _ALL_FIELDS.issuperset(data):
        allowed = ", ".join(sorted(_ALL_FIELDS))
        msg = f"feedback must be a mapping with some of {allowed}, not {data!r}"
        raise InvalidInputError(msg)
    if all(data.get(name) is None for name in ("correction", "score", "outcome")):
        msg = "feedback must say correction (a text), score (0 to 1) or outcome (-1 to 1)"
        raise InvalidInputError(msg)
    correction = data.get("correction")
    if correction is not None and not (isinstance(correction, str) and correction.strip()):
        msg = f"a correction must be a text that says what is right, not {correction!r}"
        raise InvalidInputError(msg)
    kind: Kind = "score" if correction is None else "correction"
    if not policy.rule(kind).on:
        return []
    fields = {name: data[name] for name in _FIELDS if data.get(name) is not None}
    fields.setdefault("source", policy.rule(kind).source)
    key = str(data.get("key", "score")) if correction is None else correction.strip()
    return [Signal(kind, _parse_outcome(data, policy), key=key, correction=correction, **fields)]


def _parse_outcome(data: Mapping[str, Any], policy: OutcomePolicy) -> float:
    if data.get("outcome") is not None:
        return learnable(data["outcome"])
    if data.get("score") is not None:
        return policy.score.convert_score(data["score"])
    return policy.correction.outcome
