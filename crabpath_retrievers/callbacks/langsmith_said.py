"""What a feedback of LangSmith says: its score, and what it says would have been right."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from crabpath_retrievers.outcome import Feedback, RewardSource
from crabpath_retrievers.outcome_policy import OutcomePolicy

KEY = "crabpath_outcome"
"""Key of the feedback that CrabPath gives to LangSmith."""

MARK = "crabpath"
"""Where such feedback says so, in the metadata of its source."""

_DOCUMENTS = ("document_ids", "documents", "ids", "used")
_TEXTS = ("correction", "text", "answer", "output", "value")
_MODELS = {"model", "auto_eval"}


class Right(NamedTuple):
    """What would have been right.

    Attributes:
        text: In words.
        documents: Ids of the right documents.
    """

    text: str | None = None
    documents: tuple[str, ...] = ()


def right(correction: object) -> Right:
    """What a correction says: a text, or a mapping with a text or with ids of documents."""
    if isinstance(correction, str):
        return Right(correction.strip() or None)
    if not isinstance(correction, Mapping):
        return Right()
    texts = (correction.get(name) for name in _TEXTS)
    text = next((t.strip() for t in texts if isinstance(t, str) and t.strip()), None)
    named = next((correction[name] for name in _DOCUMENTS if correction.get(name)), ())
    return Right(text, _parse_ids(named))


def outcome_of(given: Any, policy: OutcomePolicy) -> float | None:
    """The outcome of a feedback, in [-1, 1]; None when it says nothing that can be learned from.

    Raises:
        InvalidInputError: Its score is outside [0, 1].
    """
    if given.score is not None:
        return policy.langsmith.convert_score(given.score)
    return policy.correction.outcome if any(right(given.correction)) else None


def is_ours(given: Any) -> bool:
    """Whether CrabPath gave it."""
    metadata = getattr(given.feedback_source, "metadata", None)
    return given.key == KEY or (isinstance(metadata, Mapping) and MARK in metadata)


def about_turn(
    given: Any,
    turn_id: str,
    returned: Sequence[str],
    outcome: float,
    policy: OutcomePolicy,
    **fields: Any,
) -> Feedback:
    """The feedback for one turn.

    Right documents that the turn returned are learned as used in a success, whatever the answer
    was worth; where it returned none of them, it failed.

    Args:
        given: As LangSmith gave it.
        turn_id: The turn.
        returned: Ids of the documents that it returned.
        outcome: What its score says.
        policy: Who is thought to say so.
        fields: ``feedback_id`` and ``namespace``.
    """
    said = right(given.correction)
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
