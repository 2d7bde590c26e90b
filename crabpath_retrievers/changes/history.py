"""Change records that go back: what feedback taught, snapshots of what a namespace knows."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.changes.regions import Step
from crabpath_retrievers.graph import EdgeKind


@dataclass(frozen=True, slots=True)
class TaughtEpisode:
    """What one feedback added to an episode.

    Attributes:
        turns: How many.
        told: Of how many among them the host said what was used.
        documents: Credit by node id; below 0 what it pushed out.
        clock: Clock of the namespace when the episode was last added to; None when it is new.
        user: Who said so; None where that is not known.
    """

    id: str
    turns: float
    told: float
    documents: Mapping[str, float]
    clock: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class Taught:
    """What one feedback adds to what a namespace has learned, beside the weights that it moves.

    Attributes:
        usage: As ``(key, wins, losses, decay)``.
        together: As ``(source, target, kind, count)``, by key; what the counts really change by.
        episodes: What was remembered.
        outcomes: What entered the baseline, in order, in [-1, 1].
        count: On how many the baseline rested before.
        spoken: What entered the trust in memories, as ``(used, all)`` by feature.
        ranker: What the ranker's posterior gained, packed; None where it learned nothing.
        told: Notes that it made or repeated, as ``(id, query)``; see ``UndoNotes``.
        used: Ids of what its answers rested on, notes among them.
        steps: What it counted of steps in regions.
    """

    usage: tuple[tuple[int, float, float, float], ...] = ()
    together: tuple[tuple[int, int, EdgeKind, float], ...] = ()
    episodes: tuple[TaughtEpisode, ...] = ()
    outcomes: tuple[float, ...] = ()
    count: int = 0
    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ranker: bytes | None = None
    told: tuple[tuple[str, str | None], ...] = ()
    used: tuple[str, ...] = ()
    steps: tuple[Step, ...] = ()


@dataclass(frozen=True, slots=True)
class UndoFeedback:
    """Take back all that applied feedback has taught, and release its turns.

    Raises ``ConflictError`` when it is not applied any more, or the namespace has learned since
    ``version`` was read.

    Attributes:
        version: How often the namespace had learned when it was read.
        mind: What the namespace knows of ranking without it, as JSON.
        note: Is kept with the feedback.
    """

    namespace: str
    feedback_id: str
    version: int
    mind: str
    note: str


@dataclass(frozen=True, slots=True)
class CancelFeedback:
    """Never learn from feedback that waits; ``ConflictError`` when it does not wait any more."""

    feedback_id: str
    note: str


@dataclass(frozen=True, slots=True)
class TakeSnapshot:
    """Keep all that a namespace has learned as it is now.

    Attributes:
        id: New identity of the snapshot.
        name: Unique within the namespace; None for none.
    """

    namespace: str
    id: str
    name: str | None = None


@dataclass(frozen=True, slots=True)
class RestoreSnapshot:
    """Let a namespace know what it knew when the snapshot was taken, and no more.

    Nodes that are gone since are passed over. Feedback stays applied, its turns stay consumed.
    """

    id: str


@dataclass(frozen=True, slots=True)
class DeleteSnapshot:
    """Delete a snapshot; what the namespace knows stays."""

    id: str
