"""Change records: everything that is written to the graph store is described by one of these.

Ingest, learning and maintenance compute them; ``GraphStore.apply`` carries out all changes of one
call in one transaction and journals them.
"""

from crabpath_retrievers.core.changes.archive import ArchiveChange
from crabpath_retrievers.core.changes.corpus import (
    ConfirmIndexDeletions,
    MoveNodes,
    NodeSplit,
    PublishStaged,
    PutEdges,
    PutMeta,
    RemoveEdges,
    RemoveNodes,
    StageNodes,
)
from crabpath_retrievers.core.changes.history import (
    AddTransitions,
    CancelFeedback,
    DeleteSnapshot,
    RestoreSnapshot,
    TakeSnapshot,
    UndoFeedback,
)
from crabpath_retrievers.core.changes.learned import (
    AddPairCounts,
    AddUsage,
    AdjustWeights,
    AdvanceClock,
    AnnotateFeedback,
    ConsumeFeedback,
    ForgetNamespace,
    KeepEpisode,
    KeepFeedback,
    MarkEpisodesIndexed,
    RecordTurn,
    RefuseFeedback,
    SetFrozen,
    WeightDelta,
)
from crabpath_retrievers.core.changes.maintenance import (
    KeepTrial,
    MaintenanceChange,
    RecordHealth,
    SetKnobs,
)
from crabpath_retrievers.core.changes.notes import NoteChange

Change = (
    StageNodes
    | PublishStaged
    | MoveNodes
    | RemoveNodes
    | PutEdges
    | RemoveEdges
    | ConfirmIndexDeletions
    | AdjustWeights
    | AdvanceClock
    | RecordTurn
    | ForgetNamespace
    | PutMeta
    | KeepFeedback
    | ConsumeFeedback
    | RefuseFeedback
    | AnnotateFeedback
    | AddUsage
    | AddPairCounts
    | KeepEpisode
    | MarkEpisodesIndexed
    | SetFrozen
    | UndoFeedback
    | CancelFeedback
    | TakeSnapshot
    | RestoreSnapshot
    | DeleteSnapshot
    | NoteChange
    | AddTransitions
    | RecordHealth
    | KeepTrial
    | SetKnobs
    | MaintenanceChange
    | ArchiveChange
)

__all__ = [
    "AddPairCounts",
    "AddUsage",
    "AdjustWeights",
    "AdvanceClock",
    "AnnotateFeedback",
    "Change",
    "ConfirmIndexDeletions",
    "ConsumeFeedback",
    "ForgetNamespace",
    "KeepEpisode",
    "KeepFeedback",
    "MarkEpisodesIndexed",
    "MoveNodes",
    "NodeSplit",
    "PublishStaged",
    "PutEdges",
    "PutMeta",
    "RecordTurn",
    "RefuseFeedback",
    "RemoveEdges",
    "RemoveNodes",
    "SetFrozen",
    "StageNodes",
    "WeightDelta",
]
