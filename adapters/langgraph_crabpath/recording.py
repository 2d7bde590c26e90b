"""Records feedback for a graph: once per turn, and only in the namespace of the turn."""

import logging
import uuid
from typing import Any

from crabpath_retrievers import CrabPathRetriever, Feedback
from crabpath_retrievers.integration import Operations, perform, record_superseding

_log = logging.getLogger(__name__)
_IDS = uuid.UUID("6f6fbe1c-54f8-4b0f-9a0c-6c8d1f1f8e55")


def make_feedback_id(turn_id: str, namespace: str) -> str:
    """Derive a feedback id from a turn, so that a node that runs again repeats the feedback.

    The id contains the namespace, so that nobody can occupy the id for another namespace.
    """
    return uuid.uuid5(_IDS, f"said\0{namespace}\0{turn_id}").hex


def make_refusals(note: str) -> list[dict[str, Any]]:
    """Make the receipt of feedback that is not valid and was not stored."""
    _log.warning("feedback was refused: %s", note)
    return [{"feedback_id": None, "status": "refused", "note": note, "turn_id": None}]


def record_feedback(retriever: CrabPathRetriever, feedback: Feedback) -> Operations[dict[str, Any]]:
    """Record feedback, and return the receipt as plain data for a state.

    Feedback of a person replaces feedback from events of the same turn.
    """
    receipt = yield from perform(record_superseding, retriever.memory, feedback)
    return {**receipt._asdict(), "turn_id": feedback.turn_id}
