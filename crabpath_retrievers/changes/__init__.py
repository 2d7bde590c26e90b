"""Change records: everything that is written to the graph store is described by one of these.

Ingest, learning and maintenance compute them; ``GraphStore.apply`` carries out all changes of one
call in one transaction and journals them.
"""

from crabpath_retrievers.changes.ab import KeepTrial
from crabpath_retrievers.changes.archive import ArchiveChange
from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.changes.corpus import (
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
from crabpath_retrievers.changes.health import RecordHealth
from crabpath_retrievers.changes.history import (
    CancelFeedback,
    DeleteSnapshot,
    RestoreSnapshot,
    TakeSnapshot,
    UndoFeedback,
)
from crabpath_retrievers.changes.learned import (
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
from crabpath_retrievers.changes.maintenance import MaintenanceChange
from crabpath_retrievers.changes.notes import NoteChange
from crabpath_retrievers.changes.regions import AddTransitions

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
