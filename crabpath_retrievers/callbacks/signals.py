"""Signals about a chain, from which the most specific one becomes feedback."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from crabpath_retrievers.config.outcome_policy import OBSERVED_KINDS, EventKind, OutcomePolicy
from crabpath_retrievers.core.feedback import FeedbackFields, RewardSource, SignalFields
from crabpath_retrievers.core.text import is_blank
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.outcomes import parse_outcome
from crabpath_retrievers.learning.rules.verdicts import make_event_id

FEEDBACK_EVENT = "crabpath_feedback"
"""Name of the custom event by which a chain sends feedback."""

TARGET_FIELDS = ("run_id", "thread_id", "turn_id")
_OWN_FIELDS = ("correction", "score", "outcome", "key", "source")
_ALL_FIELDS = {*_OWN_FIELDS, *SignalFields.__annotations__, *TARGET_FIELDS}


@dataclass(frozen=True, slots=True)
class FeedbackSignal:
    """A signal about a chain.

    Attributes:
        kind: Kind of the event.
        outcome: Outcome in [-1, 1].
        source: Reward source.
        key: Distinguishes signals of one kind; repeating a key changes nothing.
        correction: As in :class:`~crabpath_retrievers.core.feedback.Feedback`.
        fields: Other fields of the feedback.
    """

    kind: EventKind
    outcome: float
    source: RewardSource
    key: str = ""
    correction: str | None = None
    fields: FeedbackFields = field(default_factory=FeedbackFields)

    @property
    def explicit(self) -> bool:
        """Whether a person or program stated it; otherwise it was observed."""
        return self.kind not in OBSERVED_KINDS

    def feedback_id(self, turn_id: str) -> str:
        """Return the id of the feedback: equal for the same signal about the same turn."""
        return make_event_id(self.kind, turn_id, self.key)


def make_observed_signals(kind: EventKind, policy: OutcomePolicy) -> list[FeedbackSignal]:
    """Make the signal of an observed event; none if the policy does not count it."""
    rule = policy.rule(kind)
    return [FeedbackSignal(kind, rule.outcome, rule.source)] if rule.on else []


def parse_signals(data: Any, policy: OutcomePolicy) -> list[FeedbackSignal]:
    """Parse feedback of a host about a chain; no signal if the policy does not count it.

    Args:
        data: ``correction`` (a text) or ``score`` in [0, 1], or ``outcome`` in [-1, 1]; ``key``
            tells scores apart; ``source`` and the keys of
            :class:`~crabpath_retrievers.core.feedback.SignalFields` are those of feedback.
        policy: Which kinds count.

    Raises:
        InvalidInputError: The data is not valid feedback.
    """
    if not isinstance(data, Mapping) or not _ALL_FIELDS.issuperset(data):
        allowed = ", ".join(sorted(_ALL_FIELDS))
        msg = f"feedback must be a mapping with some of {allowed}, not {data!r}"
        raise InvalidInputError(msg)
    if all(data.get(name) is None for name in ("correction", "score", "outcome")):
        msg = "feedback must have correction (a text), score (0 to 1) or outcome (-1 to 1)"
        raise InvalidInputError(msg)
    correction = data.get("correction")
    if is_blank(correction) and any(data.get(name) is not None for name in ("score", "outcome")):
        correction = None  # it says nothing, and the score counts
    if correction is not None and (not isinstance(correction, str) or is_blank(correction)):
        msg = f"a correction must be a text with the right answer, not {correction!r}"
        raise InvalidInputError(msg)
    kind: EventKind = "score" if correction is None else "correction"
    if not policy.rule(kind).on:
        return []
    given = {n: data[n] for n in SignalFields.__annotations__ if data.get(n) is not None}
    source = policy.rule(kind).source if data.get("source") is None else data["source"]
    outcome, fields = _parse_outcome(data, policy), cast("FeedbackFields", given)
    key = str(data.get("key", "score")) if correction is None else correction.strip()
    return [FeedbackSignal(kind, outcome, source, key, correction, fields)]


def _parse_outcome(data: Mapping[str, Any], policy: OutcomePolicy) -> float:
    if data.get("outcome") is not None:
        return parse_outcome(data["outcome"])
    if data.get("score") is not None:
        return policy.score.convert_score(data["score"])
    return policy.correction.outcome
