"""Changes of what was asked and learned: turns, feedback, weights, counts and episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.changes.history import (
    Taught,
)
from crabpath_retrievers.graph import EdgeKind, Vector
from crabpath_retrievers.outcome import Feedback
from crabpath_retrievers.trajectory import Turn


@dataclass(frozen=True, slots=True)
class WeightDelta:
    """``weight = clip(decayed(weight) + delta)`` on one edge; ``target`` 0 with STOP is STOP."""

    source: int
    target: int
    kind: EdgeKind
    delta: float


@dataclass(frozen=True, slots=True)
class AdjustWeights:
    """Add deltas to one namespace's weights."""

    namespace: str
    deltas: tuple[WeightDelta, ...]
    cause: str = ""


@dataclass(frozen=True, slots=True)
class AdvanceClock:
    """Let a namespace age.

    Attributes:
        turns: Turns to add to its clock.
        exponent: Decay exponent to add, ``turns · ln 2 / half_life``.
    """

    namespace: str
    turns: int = 0
    exponent: float = 0.0


@dataclass(frozen=True, slots=True)
class RecordTurn:
    """Keep the record of one retrieval and advance its namespace's clock by one turn.

    Attributes:
        vector: Unit query vector, shape ``[d]``, for what is learned from the turn later.
    """

    turn: Turn
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class KeepFeedback:
    """Keep feedback until it is applied; an id that is known changes nothing.

    Attributes:
        vector: Unit vector of its correction, shape ``[d]``; None where nobody could embed it.
    """

    feedback: Feedback
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class ConsumeFeedback:
    """Mark feedback as applied, together with all that follows from it in the same call.

    Raises ``ConflictError`` when the feedback was applied already, one of the turns was consumed
    by another feedback, the namespace has learned since ``version`` was read, or it is frozen.

    Attributes:
        turns: Ids of the turns that it is about.
        version: How often the namespace had learned when it was read.
        mind: What the namespace knows of ranking from now on, as JSON.
        exponent: Decay exponent to add.
        taught: What it adds, to be taken back when it is undone.
    """

    namespace: str
    feedback_id: str
    turns: tuple[str, ...]
    version: int
    mind: str
    exponent: float = 0.0
    taught: Taught = field(default_factory=Taught)


@dataclass(frozen=True, slots=True)
class RefuseFeedback:
    """Mark feedback as one from which nothing can be learned, and say why."""

    feedback_id: str
    note: str


@dataclass(frozen=True, slots=True)
class NoteFeedback:
    """Say something about feedback that was applied, such as what of it was ignored."""

    feedback_id: str
    note: str


@dataclass(frozen=True, slots=True)
class CountUse:
    """Add to how often documents were used, and returned without use.

    Attributes:
        counts: As ``(key, wins, losses, decay)``; ``decay`` is what failures take from a reward, in
            nats.
    """

    namespace: str
    counts: tuple[tuple[int, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class CountTogether:
    """Add to the turns that speak for an edge which does not stand yet.

    Attributes:
        pairs: As ``(source, target, kind, count)``, by key.
    """

    namespace: str
    pairs: tuple[tuple[int, int, EdgeKind, float], ...]


@dataclass(frozen=True, slots=True)
class KeepEpisode:
    """Remember a turn, whatever came of it; the same id again adds to it.

    Attributes:
        id: Identity of the episode within the store.
        query: What was asked.
        vector: Its unit vector, shape ``[d]``.
        turns: Turns to add; taken back when negative.
        told: Turns among them of which the host said what was used.
        documents: Credit to add, by id of the node: above 0 for it, below 0 against it.
        clock: What its clock is set to; None for that of the namespace now.
        user: Who said so; None where that is not known.
    """

    namespace: str
    id: str
    query: str
    vector: Vector
    turns: float
    told: float = 0.0
    documents: Mapping[str, float] = field(default_factory=dict)
    clock: int | None = None
    user: str | None = None


@dataclass(frozen=True, slots=True)
class EpisodesIndexed:
    """The vectors of these episodes can be searched."""

    ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Freeze:
    """Let a namespace learn nothing, or learn again."""

    namespace: str
    frozen: bool


@dataclass(frozen=True, slots=True)
class ForgetNamespace:
    """Delete all that one namespace has learned, its notes, turns, snapshots and its clock."""

    namespace: str
