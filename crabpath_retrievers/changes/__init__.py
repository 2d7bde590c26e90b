"""Change records: everything that is written to the graph store is described by one of these.

Ingest, learning and maintenance compute them; ``GraphStore.apply`` carries out all changes of one
call in one transaction and journals them.
"""

from crabpath_retrievers.changes.ab import KeepTrial
from crabpath_retrievers.changes.archive import ArchiveChange
from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.changes.corpus import (
    EmptyTrash,
    MoveNodes,
    PublishStaged,
    PutEdges,
    PutMeta,
    RemoveEdges,
    RemoveNodes,
    Split,
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
    AdjustWeights,
    AdvanceClock,
    ConsumeFeedback,
    CountTogether,
    CountUse,
    EpisodesIndexed,
    ForgetNamespace,
    Freeze,
    KeepEpisode,
    KeepFeedback,
    NoteFeedback,
    RecordTurn,
    RefuseFeedback,
    WeightDelta,
)
from crabpath_retrievers.changes.maintenance import MaintenanceChange
from crabpath_retrievers.changes.notes import NoteChange
from crabpath_retrievers.changes.regions import CountSteps

Change = (
    StageNodes
    | PublishStaged
    | MoveNodes
    | RemoveNodes
    | PutEdges
    | RemoveEdges
    | EmptyTrash
    | AdjustWeights
    | AdvanceClock
    | RecordTurn
    | ForgetNamespace
    | PutMeta
    | KeepFeedback
    | ConsumeFeedback
    | RefuseFeedback
    | NoteFeedback
    | CountUse
    | CountTogether
    | KeepEpisode
    | EpisodesIndexed
    | Freeze
    | UndoFeedback
    | CancelFeedback
    | TakeSnapshot
    | RestoreSnapshot
    | DeleteSnapshot
    | NoteChange
    | CountSteps
    | RecordHealth
    | KeepTrial
    | SetKnobs
    | MaintenanceChange
    | ArchiveChange
)

__all__ = [
    "AdjustWeights",
    "AdvanceClock",
    "Change",
    "ConsumeFeedback",
    "CountTogether",
    "CountUse",
    "EmptyTrash",
    "EpisodesIndexed",
    "ForgetNamespace",
    "Freeze",
    "KeepEpisode",
    "KeepFeedback",
    "MoveNodes",
    "NoteFeedback",
    "PublishStaged",
    "PutEdges",
    "PutMeta",
    "RecordTurn",
    "RefuseFeedback",
    "RemoveEdges",
    "RemoveNodes",
    "Split",
    "StageNodes",
    "WeightDelta",
]
