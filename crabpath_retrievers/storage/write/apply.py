"""The one place where a change finds its writer."""

from collections.abc import Callable, Mapping
from typing import Any

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import archive, history, maintenance, notes, vectors
from crabpath_retrievers.storage.write import archive as imports
from crabpath_retrievers.storage.write import history as past
from crabpath_retrievers.storage.write import (
    learned,
    namespaces,
    nodes,
    publish,
    reembedding,
    weights,
)
from crabpath_retrievers.storage.write import maintenance as maintaining
from crabpath_retrievers.storage.write import notes as remarks
from crabpath_retrievers.storage.write import vectors as indexing
from crabpath_retrievers.storage.write.transaction import Transaction

WRITERS: Mapping[type[c.Change], Callable[[Transaction, Any], Any]] = {
    c.StageNodes: nodes.stage_nodes,
    c.PublishStaged: publish.publish_staged,
    c.PublishNodes: publish.publish_nodes,
    c.DeferIndexes: indexing.defer_indexes,
    c.BuildIndexes: indexing.build_indexes,
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
    history.UndoFeedback: past.undo_feedback,
    history.TakeSnapshot: past.write_snapshot,
    history.RestoreSnapshot: past.apply_snapshot,
    history.DeleteSnapshot: past.drop_snapshot,
    notes.KeepNote: remarks.keep_note,
    notes.UseNotes: remarks.use_notes,
    notes.RemoveNotes: remarks.remove_notes,
    notes.SetAuthority: weights.set_authority,
    maintenance.DropWeights: maintaining.drop_weights,
    maintenance.ConnectNodes: maintaining.connect_nodes,
    maintenance.CompactTurns: maintaining.compact_turns,
    maintenance.CompactEpisodes: maintaining.compact_episodes,
    maintenance.CompactJournal: maintaining.compact_journal,
    maintenance.SweepOrphans: maintaining.sweep_orphans,
    maintenance.UndoMaintenance: maintaining.undo_maintenance,
    maintenance.KeepTrial: maintaining.keep_trial,
    maintenance.SetKnobs: maintaining.set_knobs,
    maintenance.RecordHealth: maintaining.record_health,
    archive.FillStore: imports.import_store,
    archive.FillNamespace: imports.import_namespace,
    archive.QueueReindex: nodes.queue_reindex,
    vectors.CreateVectorTables: indexing.create_vector_tables,
    vectors.PutVectors: indexing.put_vectors,
    vectors.DeleteVectors: indexing.delete_vectors,
    vectors.DeleteQueuedVectors: indexing.delete_queued_vectors,
    vectors.SwitchVectorTables: indexing.switch_vector_tables,
    vectors.DropNextVectors: indexing.drop_next_vectors,
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
