"""The one place where a change finds its writer."""

from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.storage.write import (
    history,
    learned,
    notes,
    weights,
)
from crabpath_retrievers.storage.write.transaction import Transaction, Write

WRITERS: Mapping[type[c.Change], Callable[[Transaction, Any], Any]] = {
    c.AdjustWeights: weights.adjust_weights,
    c.RecordTurn: learned.record_turn,
    c.KeepFeedback: learned.keep_feedback,
    c.ConsumeFeedback: learned.consume_feedback,
    c.ReviseFeedback: learned.revise_feedback,
    c.SettleFeedback: learned.settle_feedback,
    c.AddUsage: learned.add_usage,
    c.AddPairCounts: learned.add_pair_counts,
    c.KeepEpisode: learned.keep_episode,
    c.LearnPassively: learned.write_passive_lesson,
    c.AddTransitions: learned.add_transitions,
    c.UndoFeedback: history.undo_feedback,
    c.KeepNote: notes.keep_note,
    c.UseNotes: notes.use_notes,
}


def apply_change(tx: Transaction, change: c.Change) -> Any:
    """Carry out one change on an open transaction; returns what its writer returns."""
    if isinstance(change, Write):
        return change.carry_out(tx)
    writer = WRITERS.get(type(change))
    if writer is None:
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)
    return writer(tx, change)
