"""Change records of maintenance: pruning, connecting, merging, compaction, and undo."""

from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.graph import Edge


class DroppedWeight(NamedTuple):
    """A learned weight to delete: keys of both ends, number of the edge kind.

    Attributes:
        decay_at: Its ``decay_at`` as it was read; the weight is kept if that changed since.
    """

    source: int
    target: int
    kind: int
    decay_at: float


@dataclass(frozen=True, slots=True)
class DropWeights:
    """Delete learned weights and their history; structural edges fall back to their prior.

    Attributes:
        run: Id of the maintenance run, by which the change can be undone.
    """

    run: str
    namespace: str
    edges: tuple[DroppedWeight, ...]


@dataclass(frozen=True, slots=True)
class ConnectNodes:
    """Add edges to isolated nodes; undone by the id of the maintenance run."""

    run: str
    edges: tuple[Edge, ...]


class MergePair(NamedTuple):
    """Keys of two near-duplicates: the one that is hidden, and the one that is kept."""

    absorbed: int
    keeper: int


@dataclass(frozen=True, slots=True)
class MergeNodes:
    """Merge near-duplicates: the kept node takes over everything learned about the hidden one.

    Skips a pair when one of its nodes is no longer visible to all namespaces, or when the node to
    hide has more authority than the other or is ``constitutional``.
    """

    run: str
    pairs: tuple[MergePair, ...]


@dataclass(frozen=True, slots=True)
class CompactTurns:
    """Delete old turn records of a namespace, except those that waiting feedback refers to.

    Attributes:
        until: Number of the last turn to delete.
    """

    run: str
    namespace: str
    until: int


@dataclass(frozen=True, slots=True)
class CompactJournal:
    """Delete all but the latest rows of the journal.

    Attributes:
        keep: How many rows are kept, at least 1.
    """

    run: str
    keep: int


@dataclass(frozen=True, slots=True)
class UndoMaintenance:
    """Undo the changes of one maintenance run, as far as the journal reaches.

    What was learned since is kept: a weight that exists again is not overwritten.
    """

    run: str


MaintenanceChange = (
    DropWeights | ConnectNodes | MergeNodes | CompactTurns | CompactJournal | UndoMaintenance
)
