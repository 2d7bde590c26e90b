"""The one place where a change finds its writer."""

from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.storage.write import (
    archive,
    history,
    learned,
    maintenance,
    namespaces,
    nodes,
    notes,
    publish,
    reembedding,
    vectors,
    weights,
)
from crabpath_retrievers.storage.write.transaction import Transaction

WRITERS: Mapping[type[c.Change], Callable[[Transaction, Any], Any]] = {
    c.StageNodes: nodes.stage_nodes,
    c.PublishStaged: publish.publish_staged,
    c.PublishNodes: publish.publish_nodes,
    c.DeferIndexes: vectors.defer_indexes,
    c.BuildIndexes: vectors.build_indexes,
    c.MoveNodes: publish.move_nodes,
    c.QueueLinking: publish.queue_nodes,
    c.RemoveNodes: publish.remove_documents,
    c.PutEdges: nodes.put_edges,
    c.ConfirmIndexDeletions: nodes.confirm_index_deletions,
    c.MarkIndexed: nodes.mark_indexed,
    c.PutMeta: nodes.put_meta,
    c.AdjustWeights: weights.adjust_weights,
    c.AdvanceClock: namespaces.advance_clock,
    c.SetFrozen: namespaces.set_frozen,
    c.ForgetNamespace: namespaces.forget_namespace,
    c.RecordTurn: learned.record_turn,
    c.KeepFeedback: learned.keep_feedback,
    c.ConsumeFeedback: learned.consume_feedback,
    c.ReviseFeedback: learned.revise_feedback,
    c.DropAnswers: learned.drop_answers,
    c.SettleFeedback: learned.settle_feedback,
    c.AddUsage: learned.add_usage,
    c.AddPairCounts: learned.add_pair_counts,
    c.KeepEpisode: learned.keep_episode,
    c.LearnPassively: learned.write_passive_lesson,
    c.history.AddTransitions: learned.add_transitions,
    c.history.UndoFeedback: history.undo_feedback,
    c.history.TakeSnapshot: history.write_snapshot,
    c.history.RestoreSnapshot: history.apply_snapshot,
    c.history.DeleteSnapshot: history.drop_snapshot,
    c.notes.KeepNote: notes.keep_note,
    c.notes.UseNotes: notes.use_notes,
    c.notes.RemoveNotes: notes.remove_notes,
    c.notes.SetAuthority: weights.set_authority,
    c.maintenance.DropWeights: maintenance.drop_weights,
    c.maintenance.ConnectNodes: maintenance.connect_nodes,
    c.maintenance.CompactTurns: maintenance.compact_turns,
    c.maintenance.CompactEpisodes: maintenance.compact_episodes,
    c.maintenance.CompactJournal: maintenance.compact_journal,
    c.maintenance.SweepOrphans: maintenance.sweep_orphans,
    c.maintenance.UndoMaintenance: maintenance.undo_maintenance,
    c.maintenance.KeepTrial: maintenance.keep_trial,
    c.maintenance.SetKnobs: maintenance.set_knobs,
    c.maintenance.RecordHealth: maintenance.record_health,
    c.archive.FillStore: archive.import_store,
    c.archive.FillNamespace: archive.import_namespace,
    c.archive.QueueReindex: nodes.queue_reindex,
    c.vectors.CreateVectorTables: vectors.create_vector_tables,
    c.vectors.PutVectors: vectors.put_vectors,
    c.vectors.DeleteVectors: vectors.delete_vectors,
    c.vectors.DeleteQueuedVectors: vectors.delete_queued_vectors,
    c.vectors.SwitchVectorTables: vectors.switch_vector_tables,
    c.vectors.DropNextVectors: vectors.drop_next_vectors,
    c.vectors.BeginReembedding: reembedding.begin_reembedding,
    c.vectors.PutReembedded: reembedding.put_reembedded,
    c.vectors.SwitchEmbedder: reembedding.switch_embedder,
    c.vectors.EndReembedding: reembedding.end_reembedding,
}


def apply_change(tx: Transaction, change: c.Change) -> Any:
    """Carry out one change on an open transaction; returns what its writer returns."""
    writer = WRITERS.get(type(change))
    if writer is None:
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)
    return writer(tx, change)
