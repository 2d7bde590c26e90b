"""Converts LangSmith feedback: its score, and its correction."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from crabpath_retrievers.outcome import Feedback, RewardSource
from crabpath_retrievers.outcome_policy import OutcomePolicy

OUTCOME_KEY = "crabpath_outcome"
"""Key of the feedback that CrabPath pushes to LangSmith."""

OWN_MARK = "crabpath"
"""Key in the source metadata of such feedback."""

_DOCUMENTS = ("document_ids", "documents", "ids", "used")
_TEXTS = ("correction", "text", "answer", "output", "value")
_MODELS = {"model", "auto_eval"}


class RightAnswer(NamedTuple):
    """The right answer in a correction.

    Attributes:
        text: The answer in words; None without one.
        documents: Ids of the right documents.
    """

    text: str | None = None
    documents: tuple[str, ...] = ()


def parse_correction(correction: object) -> RightAnswer:
    """Parse a correction: a text, or a mapping with a text or with ids of documents."""
    if isinstance(correction, str):
        return RightAnswer(correction.strip() or None)
    if not isinstance(correction, Mapping):
        return RightAnswer()
    texts = (correction.get(name) for name in _TEXTS)
    text = next((t.strip() for t in texts if isinstance(t, str) and t.strip()), None)
    named = next((correction[name] for name in _DOCUMENTS if correction.get(name)), ())
    return RightAnswer(text, _parse_ids(named))


def find_outcome(given: Any, policy: OutcomePolicy) -> float | None:
    """Return the outcome of a feedback, in [-1, 1]; None without a score or correction.

    Raises:
        InvalidInputError: The score is outside [0, 1].
    """
    if given.score is not None:
        return policy.langsmith.convert_score(given.score)
    return policy.correction.outcome if any(parse_correction(given.correction)) else None


def is_own_feedback(given: Any) -> bool:
    """Whether CrabPath pushed the feedback."""
    metadata = getattr(given.feedback_source, "metadata", None)
    return given.key == OUTCOME_KEY or (isinstance(metadata, Mapping) and OWN_MARK in metadata)


def make_turn_feedback(
    given: Any,
    turn_id: str,
    returned: Sequence[str],
    outcome: float,
    policy: OutcomePolicy,
    **fields: Any,
) -> Feedback:
    """Make the feedback for one turn.

    If the correction names documents, those that the turn returned count as used in a success,
    whatever the score; if it returned none of them, the turn failed.

    Args:
        given: Feedback from LangSmith.
        turn_id: Id of the turn.
        returned: Ids of the documents that the turn returned.
        outcome: Outcome of the score, in [-1, 1].
        policy: Reward sources and outcomes.
        fields: ``make_feedback_id`` and ``namespace``.
    """
    said = parse_correction(given.correction)
    used = [node for node in returned if node in said.documents]
    if said.documents:
        outcome = abs(policy.langsmith.outcome) if used else policy.correction.outcome
    kind = getattr(given.feedback_source, "type", None)
    model = isinstance(kind, str) and kind in _MODELS
    source: RewardSource = "teacher" if model else policy.langsmith.source
    text = None if used else said.text
    return Feedback(turn_id, outcome, used=used or None, correction=text, source=source, **fields)


def _parse_ids(named: object) -> tuple[str, ...]:
    if isinstance(named, str):
        return (named,)
    if not isinstance(named, (list, tuple)):
        return ()
    items = (item.get("id") if isinstance(item, Mapping) else item for item in named)
    return tuple(item for item in items if isinstance(item, str))
