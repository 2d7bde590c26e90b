"""Change records: everything that is written to the graph store is described by one of these.

Ingest, learning and maintenance compute them; ``GraphStore.apply`` carries out all changes of one
call in one transaction and journals them.
"""

from crabpath_retrievers.core.changes.corpus import (
    Change,
    ConfirmIndexDeletions,
    MarkIndexed,
    MoveNodes,
    PublishStaged,
    PutEdges,
    PutMeta,
    RemoveNodes,
    StageNodes,
)
from crabpath_retrievers.core.changes.learned import (
    AddPairCounts,
    AddUsage,
    AdjustWeights,
    AdvanceClock,
    ConsumeFeedback,
    ForgetNamespace,
    KeepEpisode,
    KeepFeedback,
    RecordTurn,
    SetFrozen,
    SettleFeedback,
    WeightDelta,
)

__all__ = [
    "AddPairCounts",
    "AddUsage",
    "AdjustWeights",
    "AdvanceClock",
    "Change",
    "ConfirmIndexDeletions",
    "ConsumeFeedback",
    "ForgetNamespace",
    "KeepEpisode",
    "KeepFeedback",
    "MarkIndexed",
    "MoveNodes",
    "PublishStaged",
    "PutEdges",
    "PutMeta",
    "RecordTurn",
    "RemoveNodes",
    "SetFrozen",
    "SettleFeedback",
    "StageNodes",
    "WeightDelta",
]
