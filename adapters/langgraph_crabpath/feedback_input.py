"""Parses feedback on an answer in the formats that hosts send.

Records feedback for a graph: once per turn, and only in the namespace of the turn.
"""

import logging
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from crabpath_retrievers import CrabPathRetriever, Feedback, InvalidInputError, OutcomePolicy
from crabpath_retrievers.integration import (
    DOCUMENT_FIELDS,
    Operations,
    Receipt,
    find_turn_ids,
    is_blank,
    make_outcome_feedback,
    parse_outcome,
    perform,
)

FEEDBACK_FIELDS = ("outcome", *DOCUMENT_FIELDS, "answer", "correction")
"""Fields of feedback on an answer."""

_WRONG = OutcomePolicy().correction.outcome


def parse_feedback(said: Any, wrong: float = _WRONG) -> dict[str, Any]:
    """Parse feedback into the fields of a ``Feedback``.

    Args:
        said: An outcome, as for ``CrabPathRetriever.record``; or a mapping with any of ``outcome``,
            ``used``, ``unused``, ``relevant``, ``irrelevant``, ``answer`` and ``correction``.
        wrong: Outcome of a correction without an outcome, in [-1, 1].
    """
    given = said if isinstance(said, Mapping) else {"outcome": said}
    unknown = sorted(map(str, set(given) - set(FEEDBACK_FIELDS)))
    if unknown:
        msg = f"unknown fields {unknown} in the feedback: use {', '.join(FEEDBACK_FIELDS)}"
        raise InvalidInputError(msg)
    fields = {name: given[name] for name in FEEDBACK_FIELDS if given.get(name) is not None}
    for name in ("answer", "correction"):
        if is_blank(fields.get(name)):
            fields.pop(name, None)
    if "outcome" not in fields and "correction" not in fields:
        msg = "the feedback has neither outcome nor correction: give one of them"
        raise InvalidInputError(msg)
    fields["outcome"] = parse_outcome(fields.get("outcome", wrong))
    return fields


def parse_counted_feedback(said: Any, policy: OutcomePolicy) -> dict[str, Any]:
    """Parse feedback of a user into the fields of a ``Feedback``, if a policy counts it."""
    fields = parse_feedback(said, policy.correction.outcome)
    corrected = "correction" in fields
    if not (policy.correction if corrected else policy.score).on:
        kind = "correction" if corrected else "score"
        msg = f"this is a {kind}, which the policy does not count: switch its rule on"
        raise InvalidInputError(msg)
    return {"source": policy.correction.source if corrected else "human", **fields}


_log = logging.getLogger(__name__)
_IDS = uuid.UUID("6f6fbe1c-54f8-4b0f-9a0c-6c8d1f1f8e55")


def build_feedback(
    turns: Sequence[str], held: Iterable[object], *, answer: str | None = None, **fields: Any
) -> list[Feedback]:
    """Make the feedback for each turn, with those used documents that it returned.

    Its id is derived from the turn, so that a node that runs again repeats the feedback.
    """
    documents = [item for item in held if {*find_turn_ids([item])}.intersection(turns)]
    given = make_outcome_feedback([*turns, *documents], answer=answer, **fields)
    return [replace(one, feedback_id=uuid.uuid5(_IDS, f"said\0{one.turn_id}").hex) for one in given]


def make_refusals(note: str) -> list[dict[str, Any]]:
    """Make the receipt of feedback that is not valid and was not stored."""
    _log.warning("feedback was refused: %s", note)
    return [{"feedback_id": None, "status": "refused", "note": note, "turn_id": None}]


def record_feedback(
    retriever: CrabPathRetriever, given: Iterable[Feedback]
) -> Operations[list[dict[str, Any]]]:
    """Record feedback, and return the receipts as plain data for a state."""
    receipts = []
    for feedback in given:
        receipt: Receipt = yield from perform(retriever.memory.record, feedback)
        receipts.append({**receipt._asdict(), "turn_id": feedback.turn_id})
    return receipts
