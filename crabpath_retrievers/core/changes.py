"""Changes that are data: learning computes them, feedback keeps their effects, undo reverses them.

What need not be data is a function of ``storage.write`` that gets a transaction.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, NamedTuple

from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import (
    Authority,
    EdgeKind,
    Node,
    ReturnedDocument,
    Turn,
    Vector,
)


class Change:
    """A change of the graph store, described as data.

    ``GraphStore.apply`` carries out all changes of one call in one transaction and journals them.
    """

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class WeightDelta:
    """One update ``weight = clip(decayed(weight) + delta, -1, 1)``; STOP edges have target 0."""

    source: int
    target: int
    kind: EdgeKind
    delta: float


@dataclass(frozen=True, slots=True)
class AdjustWeights(Change):
    """Add deltas to the weights of one namespace; ``cause`` is the id of the feedback or note."""

    namespace: str
    deltas: tuple[WeightDelta, ...]
    cause: str = ""


@dataclass(frozen=True, slots=True)
class RecordTurn(Change):
    """Store the record of one retrieval, and advance the clock of its namespace by one turn.

    ``owner`` is the key that the namespace had when the question was asked; nothing is stored if
    the namespace was forgotten since. 0 is for a namespace that does not exist yet, which is
    created.
    """

    turn: Turn
    vector: Vector | None = None
    owner: int = 0


@dataclass(frozen=True, slots=True)
class KeepFeedback(Change):
    """Queue a feedback until it is learned; does nothing if its namespace has one of this id.

    Attributes:
        vector: Unit vector of its correction, shape ``[d]``; None without correction or embedder.
        created: When it was given, in seconds since the epoch; None for now.
        added: Documents that it names and its turn did not return, as the turn would have ranked
            them.
    """

    feedback: Feedback
    vector: Vector | None = None
    created: float | None = None
    added: tuple[ReturnedDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class ModelEffects:
    """Changes of a namespace's ranking model by one feedback; stored for undo.

    Attributes:
        outcomes: Outcomes that entered the baseline, in order, in [-1, 1].
        reliability: Counts ``(used, total)`` added to the reliability of memories, by feature.
        ranker: What the posterior of the ranker gained, encoded; None if nothing.
    """

    outcomes: tuple[float, ...] = ()
    reliability: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    ranker: bytes | None = None


@dataclass(frozen=True, slots=True)
class ConsumeFeedback(Change):
    """Mark feedback as applied; the changes that follow from it come in the same call.

    Raises ``ConflictError`` when the feedback is applied already, the namespace is frozen, or it
    changed since ``version`` was read.

    Attributes:
        turns: Ids of the turns that it is about.
        version: Version of the namespace when it was read.
        model: New ranking model of the namespace, as JSON.
        exponent: Decay exponent to add.
        effects: What it changes in the ranking model, for undo.
        changes: The changes that follow from it; what they add is stored for undo.
        created: Time at which the feedback that was read was given; if the stored one has another,
            ``ConflictError`` is raised. None checks nothing.
    """

    namespace: str
    feedback_id: str
    turns: tuple[str, ...]
    version: int
    model: str
    exponent: float = 0.0
    effects: ModelEffects = field(default_factory=ModelEffects)
    changes: tuple[Change, ...] = ()
    created: float | None = None


@dataclass(frozen=True, slots=True)
class AddUsage(Change):
    """Add to the usage counts of documents.

    Counts are tuples ``(key, wins, losses, decay)``: turns that used the document, turns that
    returned it without use, and by how many nats failures lower its reward.
    """

    namespace: str
    counts: tuple[tuple[int, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class AddPairCounts(Change):
    """Add to the evidence for edges that do not exist yet.

    Pairs are tuples ``(source, target, kind, count)`` of keys.
    """

    namespace: str
    pairs: tuple[tuple[int, int, EdgeKind, float], ...]


class EpisodeContent(NamedTuple):
    """Content of an episode.

    Attributes:
        turns: Number of turns; 0 for an episode that does not exist.
        labelled_turns: Number of these turns for which the host named the used documents.
        documents: Credit by node id.
        credit_by_user: Credit by user id and node id.
        clock: Number of the last turn that added to it; None for an episode that does not exist.
    """

    turns: float = 0.0
    labelled_turns: float = 0.0
    documents: Mapping[str, float] = MappingProxyType({})
    credit_by_user: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class KeepEpisode(Change):
    """Add turns and credit to an episode, which is created if its id is new.

    Turns and credit by node id are added; negative ones are subtracted. ``clock`` None is the
    current turn of the namespace. If the stored episode differs from ``before``, which the caller
    read, ``ConflictError`` is raised; None checks nothing.
    """

    namespace: str
    id: str
    query: str
    vector: Vector
    turns: float
    labelled_turns: float = 0.0
    documents: Mapping[str, float] = field(default_factory=dict)
    clock: int | None = None
    user: str | None = None
    before: EpisodeContent | None = None


EdgeId = tuple[str, str, str]
"""An edge: ids of source and target, label of the kind."""

COUNT_TOLERANCE = 1e-9
"""Tolerance for sums of fractional counts."""


class LearnedDelta(NamedTuple):
    """A change of the weight of one edge.

    ``target`` is None for STOP; ``kind`` is ``EdgeKind.label``. The weight stays in [-1, 1].
    """

    source: str
    target: str | None
    kind: str
    delta: float


class EdgeUpdate(NamedTuple):
    """Changes of edges of one kind after one turn.

    The first weight of a new edge is among ``deltas``. A count towards an edge that does not exist
    is never below 0.
    """

    deltas: tuple[LearnedDelta, ...] = ()
    count_changes: Mapping[EdgeId, float] = MappingProxyType({})


NoteKind = Literal["teaching", "correction", "directive", "auto", "state"]
"""Origin of a note: given by a user in one of three ways, made from an answer (``auto``), or a
``state`` of an agent's episode, which no query finds."""


@dataclass(frozen=True, slots=True)
class NoteEdge:
    """An edge of a note.

    An end that is None is the note itself; such an edge gets the given weight, in [-1, 1]. To an
    edge between two other nodes the weight is added.
    """

    source: str | None
    target: str | None
    kind: EdgeKind
    weight: float


@dataclass(frozen=True, slots=True)
class KeepNote(Change):
    """Store a note of one namespace, or replace its note with the same id.

    Raises ``InvalidInputError`` when the id belongs to a document.

    Attributes:
        node: The note with its vector; document and source are empty.
        query: The query that it answers, if known; with ``query_vector``, a unit vector of shape
            ``[d]``, it becomes an episode of the note.
        turn, feedback: Ids of the turn and feedback that it was made from. A note that a user
            gave directly keeps that origin when feedback repeats it, and survives its undo.
        edges: Edges of the note, and edges between other nodes; those of deleted nodes are skipped.
    """

    namespace: str
    node: Node
    kind: NoteKind
    authority: Authority = Authority.OVERLAY
    query: str | None = None
    query_vector: Vector | None = None
    turn: str | None = None
    feedback: str | None = None
    edges: tuple[NoteEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class UseNotes(Change):
    """Update the use counts of notes; ids of other nodes are ignored.

    ``seen`` are further notes, not ``used`` by a successful answer, whose probation starts again.
    """

    namespace: str
    used: tuple[str, ...] = ()
    seen: tuple[str, ...] = ()


RegionKey = tuple[int, int]
"""A region: its level and the key of its hub; key 0 means all regions together."""

STATES = -1
"""The level of agents: each state of an episode in words is a region of its namespace."""


class TransitionCount(NamedTuple):
    """Counts of one transition, to be added; negative counts undo.

    Attributes:
        level: Level of the regions; 0 for the sum over all regions of documents, -1 for the states
            of agents.
        region: Key of the hub of the region in which the action was taken; 0 for all of them.
        task: Task type; empty for the sum over all types.
        action: Action type; empty for turns that passed through the region, whatever they did.
        next: Key of the hub of the region that it led to; 0 if unknown.
        trials: How often it was taken.
        wins: Sum of its successes, each in [0, 1].
        ends, end_wins: Both for transitions that ended their episode. Without an action, on
            level -1, ``ends`` is the number of episodes that were won.
    """

    level: int
    region: int
    task: str
    action: str
    next: int
    trials: float
    wins: float
    ends: float = 0.0
    end_wins: float = 0.0

    @property
    def place(self) -> tuple[int, int, str, str, int]:
        """The key of the row: level, region, task, action, next region."""
        return self[:5]

    @property
    def counts(self) -> tuple[float, float, float, float]:
        """The values of the row: trials, wins, ends, wins among the ends."""
        return self[5:]


@dataclass(frozen=True, slots=True)
class AddTransitions(Change):
    """Add to the transition counts of a namespace."""

    namespace: str
    steps: tuple[TransitionCount, ...]
