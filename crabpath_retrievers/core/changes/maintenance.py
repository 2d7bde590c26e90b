"""Change records of maintenance and its undo, of trials, of the autotuner, of health reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from crabpath_retrievers.core.changes.corpus import Change
from crabpath_retrievers.core.graph import Edge


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
class DropWeights(Change):
    """Delete learned weights and their history; structural edges fall back to their prior.

    Attributes:
        run: Id of the maintenance run, by which the change can be undone.
    """

    run: str
    namespace: str
    edges: tuple[DroppedWeight, ...]


@dataclass(frozen=True, slots=True)
class ConnectNodes(Change):
    """Add edges to isolated nodes; undone by the id of the maintenance run."""

    run: str
    edges: tuple[Edge, ...]


@dataclass(frozen=True, slots=True)
class CompactTurns(Change):
    """Delete old turn records of a namespace, except those that waiting feedback refers to.

    Attributes:
        until: Number of the last turn to delete.
    """

    touches_corpus: ClassVar[bool] = False
    run: str
    namespace: str
    until: int


@dataclass(frozen=True, slots=True)
class CompactEpisodes(Change):
    """Delete the episodes of a namespace that no recent feedback added to.

    What older feedback added is no longer stored by itself, so it cannot be undone either: no undo
    subtracts from an episode that was created again. Episodes of notes, and feedback that taught
    notes, stay.

    Attributes:
        keep: Number of the latest feedback whose episodes stay, at least 1.
    """

    touches_corpus: ClassVar[bool] = False
    run: str
    namespace: str
    keep: int


@dataclass(frozen=True, slots=True)
class CompactJournal(Change):
    """Delete all but the latest rows of the journal.

    Attributes:
        keep: How many rows are kept, at least 1.
    """

    touches_corpus: ClassVar[bool] = False
    run: str
    keep: int


@dataclass(frozen=True, slots=True)
class SweepOrphans(Change):
    """Delete the rows whose namespace, node, turn or feedback is gone."""

    touches_corpus: ClassVar[bool] = False
    run: str


@dataclass(frozen=True, slots=True)
class UndoMaintenance(Change):
    """Undo the changes of one maintenance run, as far as the journal reaches.

    What was learned since is kept: a weight that exists again is not overwritten.
    """

    run: str


@dataclass(frozen=True, slots=True)
class KeepTrial(Change):
    """Write the state of a trial; raises ``ConflictError`` when it changed in the meantime.

    Attributes:
        name: Name of the trial.
        before: State from which the new one was computed, as JSON; None for a new trial.
        after: New state, as JSON.
    """

    touches_corpus: ClassVar[bool] = False
    name: str
    before: str | None
    after: str


@dataclass(frozen=True, slots=True)
class SetKnobs(Change):
    """Set the knobs of a namespace, which is created if it is new; changed knobs are journaled.

    Raises ``ConflictError`` when the knobs or the tuning state changed since they were read.

    Attributes:
        run: Id of the maintenance run, by which the change can be undone.
        knobs: Values that override the settings, as a JSON object by name; None for none.
        tuning: State of the autotuner, as JSON; None for none.
        before: Knobs and tuning state as they were read.
        why: Reasons, JSON-safe; kept in the journal.
    """

    touches_corpus: ClassVar[bool] = False
    run: str
    namespace: str
    knobs: str | None
    tuning: str | None
    before: tuple[str | None, str | None]
    why: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class RecordHealth(Change):
    """Store a health report of a namespace; does nothing for a namespace that does not exist.

    Attributes:
        clock: Last turn of the namespace when it was measured.
        created: Time, in seconds since the epoch.
        report: The report, JSON-safe.
        keep: How many of the latest reports of the namespace are kept.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    clock: int
    created: float
    report: Mapping[str, Any]
    keep: int
