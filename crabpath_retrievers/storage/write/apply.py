"""The one place where a change finds its writer."""

from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import archive, history, maintenance, notes, vectors
from crabpath_retrievers.storage.write import archive as write_archive
from crabpath_retrievers.storage.write import history as write_history
from crabpath_retrievers.storage.write import (
    learned,
    namespaces,
    nodes,
    publish,
    reembedding,
    weights,
)
from crabpath_retrievers.storage.write import maintenance as write_maintenance
from crabpath_retrievers.storage.write import notes as write_notes
from crabpath_retrievers.storage.write import vectors as write_vectors
from crabpath_retrievers.storage.write.transaction import Transaction

WRITERS: Mapping[type[c.Change], Callable[[Transaction, Any], Any]] = {
    c.StageNodes: nodes.stage_nodes,
    c.PublishStaged: publish.publish_staged,
    c.PublishNodes: publish.publish_nodes,
    c.DeferIndexes: write_vectors.defer_indexes,
    c.BuildIndexes: write_vectors.build_indexes,
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
    history.AddTransitions: learned.add_transitions,
    history.UndoFeedback: write_history.undo_feedback,
    history.TakeSnapshot: write_history.write_snapshot,
    history.RestoreSnapshot: write_history.apply_snapshot,
    history.DeleteSnapshot: write_history.drop_snapshot,
    notes.KeepNote: write_notes.keep_note,
    notes.UseNotes: write_notes.use_notes,
    notes.RemoveNotes: write_notes.remove_notes,
    notes.SetAuthority: weights.set_authority,
    maintenance.DropWeights: write_maintenance.drop_weights,
    maintenance.ConnectNodes: write_maintenance.connect_nodes,
    maintenance.CompactTurns: write_maintenance.compact_turns,
    maintenance.CompactEpisodes: write_maintenance.compact_episodes,
    maintenance.CompactJournal: write_maintenance.compact_journal,
    maintenance.SweepOrphans: write_maintenance.sweep_orphans,
    maintenance.UndoMaintenance: write_maintenance.undo_maintenance,
    maintenance.KeepTrial: write_maintenance.keep_trial,
    maintenance.SetKnobs: write_maintenance.set_knobs,
    maintenance.RecordHealth: write_maintenance.record_health,
    archive.FillStore: write_archive.import_store,
    archive.FillNamespace: write_archive.import_namespace,
    archive.QueueReindex: nodes.queue_reindex,
    vectors.CreateVectorTables: write_vectors.create_vector_tables,
    vectors.PutVectors: write_vectors.put_vectors,
    vectors.DeleteVectors: write_vectors.delete_vectors,
    vectors.DeleteQueuedVectors: write_vectors.delete_queued_vectors,
    vectors.SwitchVectorTables: write_vectors.switch_vector_tables,
    vectors.DropNextVectors: write_vectors.drop_next_vectors,
    vectors.BeginReembedding: reembedding.begin_reembedding,
    vectors.PutReembedded: reembedding.put_reembedded,
    vectors.SwitchEmbedder: reembedding.switch_embedder,
    vectors.EndReembedding: reembedding.end_reembedding,
}


def apply_change(tx: Transaction, change: c.Change) -> Any:
    """Carry out one change on an open transaction; returns what its writer returns."""
    writer = WRITERS.get(type(change))
    if writer is None:
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)
    return writer(tx, change)
