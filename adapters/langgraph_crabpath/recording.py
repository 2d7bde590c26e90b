"""Feedback on behalf of a graph: once per turn, and only for whose turn it was."""

import logging
import uuid
from typing import Any

from crabpath_retrievers import CrabPathRetriever, Feedback
from crabpath_retrievers.integration import Steps, perform, record_over

_log = logging.getLogger(__name__)
_IDS = uuid.UUID("6f6fbe1c-54f8-4b0f-9a0c-6c8d1f1f8e55")


def feedback_id(turn_id: str, namespace: str) -> str:
    """The same for the same turn: a node that runs again says the same thing again.

    The namespace is part of it, so that nobody can use up the id of another one's turn.
    """
    return uuid.uuid5(_IDS, f"said\0{namespace}\0{turn_id}").hex


def refused(note: str) -> list[dict[str, Any]]:
    """The receipt of feedback that could not even be kept."""
    _log.warning("feedback was refused: %s", note)
    return [{"feedback_id": None, "status": "refused", "note": note, "turn_id": None}]


def record(retriever: CrabPathRetriever, feedback: Feedback) -> Steps[dict[str, Any]]:
    """Record feedback and tell what became of it, as plain data for a state.

    What a person says takes the place of what was only seen of the same turn.
    """
    receipt = yield from perform(record_over, retriever.memory, feedback)
    return {**receipt._asdict(), "turn_id": feedback.turn_id}
