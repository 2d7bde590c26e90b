"""Change records of namespaces: turns, feedback, weights, counts and episodes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import ClassVar, Literal, NamedTuple

from crabpath_retrievers.core.changes.corpus import Change
from crabpath_retrievers.core.feedback import Feedback
from crabpath_retrievers.core.records import EdgeKind, ReturnedDocument, Turn, Vector


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

    touches_corpus: ClassVar[bool] = False
    namespace: str
    deltas: tuple[WeightDelta, ...]
    cause: str = ""


@dataclass(frozen=True, slots=True)
class RecordTurn(Change):
    """Store the record of one retrieval, and advance the clock of its namespace by one turn.

    Attributes:
        vector: Unit query vector, shape ``[d]``, for learning from the turn later.
        owner: Key of the namespace when it was asked, without which nothing is stored: it was
            forgotten since. 0 for a new one, which is created.
    """

    touches_corpus: ClassVar[bool] = False
    turn: Turn
    vector: Vector | None = None
    owner: int = 0


@dataclass(frozen=True, slots=True)
class KeepFeedback(Change):
    """Store feedback until it is applied; does nothing when its namespace has its id.

    Attributes:
        vector: Unit vector of its correction, shape ``[d]``; None without correction or embedder.
        created: When it was given, in seconds since the epoch; None for now.
        added: Documents that it names and its turn did not return, as the turn would have ranked
            them.
    """

    touches_corpus: ClassVar[bool] = False
    feedback: Feedback
    vector: Vector | None = None
    created: float | None = None
    added: tuple[ReturnedDocument, ...] = ()


@dataclass(frozen=True, slots=True)
class ReviseFeedback(Change):
    """Replace the content of stored feedback, which waits again; effects that it had stay for now.

    Raises ``ConflictError`` when it is no longer what was read.

    Attributes:
        sequence: Its number in the store.
        known: The content that was read.
        new: The new content; vector and added documents as in :class:`KeepFeedback`.
    """

    touches_corpus: ClassVar[bool] = False
    sequence: int
    known: Feedback
    new: KeepFeedback


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
        created: When the feedback was given that was read, or ``ConflictError`` is raised; None if
            it was not read.
    """

    touches_corpus: ClassVar[bool] = False
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
class SettleFeedback(Change):
    """Attach a note to feedback, and settle it if it still waits.

    Attributes:
        sequence: Its number in the store.
        note: The reason, or which parts of applied feedback were ignored.
        status: ``refused`` and ``repeated`` have no effect on feedback that no longer waits;
            ``undone`` raises ``ConflictError`` then. None keeps the status.
        created: When the feedback was given that is settled; None for whenever.
    """

    touches_corpus: ClassVar[bool] = False
    sequence: int
    note: str
    status: Literal["refused", "repeated", "undone"] | None = None
    created: float | None = None


@dataclass(frozen=True, slots=True)
class AddUsage(Change):
    """Add to the usage counts of documents.

    Attributes:
        counts: Tuples ``(key, wins, losses, decay)``: turns that used the document, turns that
            returned it without use, and by how many nats failures lower its reward.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    counts: tuple[tuple[int, float, float, float], ...]


@dataclass(frozen=True, slots=True)
class AddPairCounts(Change):
    """Add to the evidence for edges that do not exist yet.

    Attributes:
        pairs: Tuples ``(source, target, kind, count)`` of keys.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    pairs: tuple[tuple[int, int, EdgeKind, float], ...]


@dataclass(frozen=True, slots=True)
class LearnPassively(Change):
    """Add deltas of weights and evidence for edges that follow from a turn without any outcome.

    Does nothing where the namespace is frozen or gone; else its version grows, as with feedback.

    Attributes:
        deltas: As of :class:`AdjustWeights`.
        pairs: As of :class:`AddPairCounts`.
        cause: Id of the turn.
    """

    touches_corpus: ClassVar[bool] = False
    namespace: str
    deltas: tuple[WeightDelta, ...]
    pairs: tuple[tuple[int, int, EdgeKind, float], ...]
    cause: str


class EpisodeContent(NamedTuple):
    """Content of an episode.

    Attributes:
        turns: Number of turns; 0 for an episode that does not exist.
        labelled_turns: How many of them have the used documents named by the host.
        documents: Credit by node id.
        credit_by_user: Credit by user id and node id.
        clock: Turn in which it was last added to; None for an episode that does not exist.
    """

    turns: float = 0.0
    labelled_turns: float = 0.0
    documents: Mapping[str, float] = MappingProxyType({})
    credit_by_user: Mapping[str, Mapping[str, float]] = MappingProxyType({})
    clock: int | None = None


@dataclass(frozen=True, slots=True)
class KeepEpisode(Change):
    """Add turns and credit to an episode, which is created if its id is new.

    Attributes:
        id: Id of the episode within the store.
        query: The query text.
        vector: Unit vector of the query, shape ``[d]``.
        turns: Turns to add; negative for undo.
        labelled_turns: How many of them have the used documents named by the host.
        documents: Credit to add by node id; negative credit counts against a document.
        clock: Turn to record as its last; None for the current turn of the namespace.
        user: Id of the user who gave the feedback; None if unknown.
        before: What it held when it was read, or ``ConflictError`` is raised; None if it was not.
    """

    touches_corpus: ClassVar[bool] = False
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

    Attributes:
        source: Id of the source node.
        target: Id of the target node; None for STOP.
        kind: Label of the edge kind, as in records (``EdgeKind.label``).
        delta: Added to the weight, which stays in [-1, 1].
    """

    source: str
    target: str | None
    kind: str
    delta: float


class EdgeUpdate(NamedTuple):
    """Changes of edges of one kind after one turn.

    Attributes:
        deltas: Changes of weights; the first weight of a new edge is among them.
        count_changes: To add to the counts towards edges that do not exist, in [-1, 1]; a count
            is never below 0.
    """

    deltas: tuple[LearnedDelta, ...] = ()
    count_changes: Mapping[EdgeId, float] = MappingProxyType({})
