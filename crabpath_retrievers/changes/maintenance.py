"""Change records of maintenance: what is dropped, what is connected, what is taken back."""

from dataclasses import dataclass
from typing import NamedTuple

from crabpath_retrievers.graph import Edge


class Dropped(NamedTuple):
    """A learned weight to drop, by keys of both ends and number of the kind.

    Attributes:
        mark: Decay exponent at its last touch, as it was read: if it was touched since, it stays.
    """

    source: int
    target: int
    kind: int
    mark: float


@dataclass(frozen=True, slots=True)
class DropWeights:
    """Forget learned weights and what moved them; an edge of the text has its prior again.

    Attributes:
        run: Id of the maintenance, by which it is taken back.
    """

    run: str
    namespace: str
    edges: tuple[Dropped, ...]


@dataclass(frozen=True, slots=True)
class ConnectNodes:
    """Add edges between nodes that had none; taken back by the id of the maintenance."""

    run: str
    edges: tuple[Edge, ...]


class Merged(NamedTuple):
    """Two near-duplicates, by key: the one that goes, and the one that stands for both."""

    absorbed: int
    keeper: int


@dataclass(frozen=True, slots=True)
class MergeNodes:
    """Let nodes stand for their near-duplicates, with all that was learned about these.

    A pair is left out where one of both is not seen by all any more, or the one that goes has more
    authority by now, or may never go.
    """

    run: str
    pairs: tuple[Merged, ...]


@dataclass(frozen=True, slots=True)
class CompactTurns:
    """Delete the records of all turns of a namespace up to one; feedback that waits keeps its own.

    Attributes:
        until: The last turn that goes, by the clock of the namespace.
    """

    run: str
    namespace: str
    until: int


@dataclass(frozen=True, slots=True)
class CompactJournal:
    """Delete all but the last rows of the journal.

    Attributes:
        keep: How many stay, at least 1.
    """

    run: str
    keep: int


@dataclass(frozen=True, slots=True)
class UndoMaintenance:
    """Take back what one maintenance changed, as far as the journal reaches.

    What was learned since stays: a weight that stands again is left alone.
    """

    run: str


MaintenanceChange = (
    DropWeights | ConnectNodes | MergeNodes | CompactTurns | CompactJournal | UndoMaintenance
)
