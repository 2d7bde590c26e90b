"""The memory graph: nodes (chunks of documents), signed edges, and what a walk makes of them.

Weights lie in [-1, 1]; tiers and decay are those of [CrabPath] (``docs/bibliography.md``).

The level of a node says which nodes are hubs; it is computed from their ids alone. The record of
one retrieval has every decision, its alternatives and its probabilities: retrieval writes it,
learning reads it.
"""

import hashlib
import math
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from typing import Any, Literal, NamedTuple, TypeVar, overload
from uuid import UUID

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError

Vector = NDArray[np.float32]
Number = TypeVar("Number", float, NDArray[np.float32], NDArray[np.float64])


# numpy converts half to single precision number by number; a look-up table takes a third of that.
_SINGLE = np.arange(1 << 16, dtype="<u2").view("<f2").astype(np.float32)


class EdgeKind(Enum):
    """Why an edge exists. The values are stored; never renumber them."""

    label: str
    """The name shown to users and written into records, such as ``mentioned_by``."""

    STOP = 0
    SIBLING = 1
    LINK = 2
    LINKED_BY = 3
    MENTION = 4
    MENTIONED_BY = 5
    SHARED_TERM = 6
    SIMILAR = 7
    CO_USED = 10
    INHIBITS = 11
    TAUGHT = 12
    TEMPORAL = 13
    SAME_ACTION = 14
    CAUSED_SUCCESS = 15
    CAUSED_FAILURE = 16
    IRRELEVANT = 17
    REGION_TRANSITION = 18
    GRANGER_CAUSAL = 19

    def __init__(self, _value: int) -> None:
        """Store the label: it is read for every edge of a walk."""
        self.label = self.name.lower()

    # Members are singletons: hashing the name, as Enum does, takes three times as long.
    __hash__ = object.__hash__


OVERLAY_KINDS = (EdgeKind.CO_USED, EdgeKind.INHIBITS, EdgeKind.TAUGHT)
"""Kinds that exist only in the overlay of one namespace; walks use them. Prior and floor are 0."""

TYPED_KINDS = (
    EdgeKind.TEMPORAL,
    EdgeKind.SAME_ACTION,
    EdgeKind.CAUSED_SUCCESS,
    EdgeKind.CAUSED_FAILURE,
    EdgeKind.IRRELEVANT,
    EdgeKind.REGION_TRANSITION,
    EdgeKind.GRANGER_CAUSAL,
)
"""Kinds that record the outcome of steps [CVX RFC-013]; typed searches use them, walks do not."""

LEARNED_KINDS = frozenset((*OVERLAY_KINDS, *TYPED_KINDS))
"""Kinds that feedback creates, not text: they stay when the text of a node is indexed again."""

TEXT_KINDS = tuple(kind for kind in EdgeKind if kind not in {EdgeKind.STOP, *LEARNED_KINDS})
"""Kinds that are derived from texts, and again when a text changes."""


class Authority(Enum):
    """Protection of a node from forgetting; the higher ranks first at equal relevance [CrabPath].

    Never renumber the stored values. Weights of edges to an ``overlay`` node decay at the usual
    speed, to a ``canonical`` node at a quarter of it, to a ``constitutional`` node not at all; the
    latter is never pruned.
    """

    OVERLAY = 0
    CANONICAL = 1
    CONSTITUTIONAL = 2

    @classmethod
    def of(cls, name: object) -> "Authority":
        """The authority with this name."""
        if not isinstance(name, str) or name not in AUTHORITY_BY_NAME:
            msg = (
                f"authority must be one of {', '.join(AUTHORITY_BY_NAME)}, not {format_value(name)}"
            )
            raise InvalidInputError(msg)
        return AUTHORITY_BY_NAME[name]


AUTHORITY_BY_NAME: Mapping[str, Authority] = {a.name.lower(): a for a in Authority}
"""Authorities by lower-case name."""

_DECAY_RATES = (1.0, 0.25, 0.0)  # relative to the usual speed, by ``Authority.value`` of the target
_MAX_GROWTH = 20.0  # beyond this, exp() would magnify rounding errors too much


class Tier(Enum):
    """How a walk treats an edge, by the edge's effective weight [CrabPath]."""

    REFLEX = "reflex"
    HABITUAL = "habitual"
    DORMANT = "dormant"
    INHIBITORY = "inhibitory"

    # As for EdgeKind.
    __hash__ = object.__hash__


@dataclass(frozen=True, slots=True)
class Node:
    """One chunk of a document.

    Attributes:
        id: Stable id, derived from content and source or given by the caller.
        document: Unit of updates and removals: the id given by the caller, else the source.
        source: Origin of the text; neighbouring chunks of one source are siblings.
        content: Text returned to the caller.
        title: Title of the document or section; empty without one.
        names: Normalised names by which other texts may mention this node.
        addresses: Link targets that resolve to this node (paths, URLs, wiki names).
        references: Link targets that occur in this node's text, and terms that others may share.
        position: Position of the chunk in its document; not part of its identity.
        metadata: JSON-safe metadata of the document.
        digest: Fingerprint of text and metadata; equal digests mean that nothing changed.
        then: Text between the chunk and the next one, such as one that repeats; None where the
            texts of both say how they follow each other.
        overlap: With ``then``, number of characters at the beginning of the next chunk that are
            not new.
        vector: Unit embedding, shape ``[d]``.
    """

    id: str
    document: str
    source: str
    content: str
    title: str = ""
    names: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    references: tuple[str, ...] = ()
    position: int = 0
    metadata: Mapping[str, Any] = field(default_factory=dict)
    digest: str = ""
    then: str | None = None
    overlap: int = 0
    vector: Vector | None = None


@dataclass(frozen=True, slots=True)
class Edge:
    """A directed edge between two nodes, given by their surrogate keys.

    Attributes:
        prior: Weight before any feedback, in [-1, 1].
        floor: Weight towards which the edge decays, in [-1, 1].
    """

    source: int
    target: int
    kind: EdgeKind
    prior: float
    floor: float


class NodeHead(NamedTuple):
    """The part of a node that search, walk and ranking need.

    ``mentions`` counts the texts that mention its name; ``terms`` are from
    :func:`crabpath_retrievers.core.text.encode_terms`, ``authority`` is the number of its
    :class:`Authority`. The unit vector has shape ``[d]``.
    """

    key: int
    id: str
    title: str
    mentions: int
    vector: Vector
    terms: bytes = b""
    authority: int = 0

    @property
    def rarity(self) -> float:
        """How specific the node's name is, in (0, 1]: ``1 / sqrt(1 + mentions)``."""
        return 1.0 / math.sqrt(1.0 + self.mentions)


def stack_vectors(vectors: Sequence[Vector]) -> Vector:
    """Stack vectors of shape ``[d]``, at least one, as rows of a matrix in single precision."""
    return to_single_precision(np.concatenate(vectors).reshape(len(vectors), -1))


def to_single_precision(vectors: NDArray[Any]) -> Vector:
    """Convert vectors in half precision to single precision; return others as they are."""
    return _SINGLE.take(vectors.view(np.uint16)) if vectors.dtype == np.float16 else vectors


def compare_vectors(vectors: Sequence[Vector], vector: Vector, stretch: float = 1.0) -> list[float]:
    """Compute the similarity of each unit vector with ``vector``; all have shape ``[d]``.

    With a stretch of 1 similarities are cosines; see :func:`stretch_cosine`.
    """
    if not vectors:
        return []
    similarities: list[float] = stretch_cosine(stack_vectors(vectors) @ vector, stretch).tolist()
    return similarities


def choose_nearest(vectors: Vector, vector: Vector, k: int) -> list[int]:
    """Choose the ``k`` rows of a matrix ``[n, d]`` that are nearest to a vector, nearest first.

    All are unit vectors. Of equally near rows, the first ones come first.
    """
    far = -(vectors @ vector)
    most = np.partition(far, k - 1)[k - 1] if 0 < k < len(far) else np.inf
    best = np.flatnonzero(far <= most)
    rows: list[int] = best[np.argsort(far[best], kind="stable")][:k].tolist()
    return rows


def stretch_cosine(cosine: Number, stretch: float) -> Number:
    """Compute ``1 - stretch · (1 - cosine)``: 1 for equal texts, about 0 for unrelated ones.

    Embedders differ in the cosine of unrelated texts (.04 in all-MiniLM-L6-v2, .76 in
    multilingual-e5-small), which the stretch takes back: weights and thresholds then mean the same
    with any of them. The order of similarities is that of cosines.
    """
    return cosine if stretch == 1.0 else 1.0 - stretch * (1.0 - cosine)


class OutgoingEdge(NamedTuple):
    """An outgoing edge with the weight that one namespace gives it now.

    ``source`` is a key. Weight, after decay, and prior, before any feedback, are in [-1, 1].
    """

    source: int
    target: NodeHead
    kind: EdgeKind
    weight: float
    prior: float


class WalkEdge(NamedTuple):
    """An outgoing edge of a visited node, with what one walk computed for it.

    Attributes:
        weight: Effective weight after decay and damping, in [-1, 1].
        relevance: Cosine of query and target, in [-1, 1].
        tier: Tier of ``weight``.
        strength: Evidence for the target: energy of the source times weight, at least 0; 0 for
            an inhibitory edge.
        hop: Distance of the target from its seed in hops, at least 1.
        change: Change of the weight that feedback made, in [-2, 2].
    """

    source: NodeHead
    target: NodeHead
    kind: EdgeKind
    weight: float
    relevance: float
    tier: Tier
    strength: float
    hop: int
    change: float = 0.0


class Candidate(NamedTuple):
    """A node that may be returned for a query, with the scores that search and memory give it.

    Attributes:
        similarity: Cosine of query and node, in [-1, 1].
        lexical: BM25 score relative to the best match of the query, in [0, 1].
        name: Rarity of the node's name when the query contains it, else 0.
        exact: 1 when the query consists of the node's name, else 0.
        hint: 1 when the caller suggested the node, else 0.
        routed: 1 when a chat model chose an edge to the node, else 0.
        found: Whether search found it; otherwise an edge leads to it.
        again: Uses of it by turns of the same query, weighted by their similarity, at least 0.
        passed: Turns of the same query that did not use it, weighted alike, at least 0.
        episode: Uses of it by turns of similar queries, weighted by their similarity, at least 0.
        missed: Turns of similar queries that did not use it, weighted alike, at least 0.
        counterpart: Uses of documents that it is the counterpart of, weighted alike, at least 0.
        recency: 1 for a new document, half of that after a half-life; 0 where age does not count.
        usage: Share of its returns in which it was used, minus the usual share, in [-1, 1].
        decayed: Share of its reward that failures have removed, in [0, 1).
        shown: Turns that returned it and whose feedback states whether it was used, at least 0.
    """

    head: NodeHead
    similarity: float
    lexical: float = 0.0
    name: float = 0.0
    exact: float = 0.0
    hint: float = 0.0
    routed: float = 0.0
    found: bool = True
    again: float = 0.0
    passed: float = 0.0
    episode: float = 0.0
    missed: float = 0.0
    counterpart: float = 0.0
    recency: float = 0.0
    usage: float = 0.0
    decayed: float = 0.0
    shown: float = 0.0


class StoredWeight(NamedTuple):
    """A weight as it was last written, which decay moves towards its floor.

    Attributes:
        weight: Weight in [-1, 1] when it was written.
        decay_at: Accumulated decay exponent of the namespace then.
        floor: Weight that decay approaches, in [-1, 1]; 0 for an edge that the text does not have.
        authority: Number of the :class:`Authority` of the target, which slows decay.
    """

    weight: float
    decay_at: float
    floor: float = 0.0
    authority: int = 0

    def decay_to(self, exponent: float) -> float:
        """Return the weight after decay until ``exponent``, the sum of decay in a namespace so far.

        This is ``floor + (weight − floor) · exp(−rate · (exponent − decay_at))``; nothing decays
        while ``exponent`` is at most ``decay_at``.
        """
        weight, decay_at, floor, authority = self  # attributes take longer, edges are many
        if weight == floor or exponent <= decay_at:
            return weight
        return floor + (weight - floor) * math.exp(_DECAY_RATES[authority] * (decay_at - exponent))

    def move_to(self, exponent: float) -> "StoredWeight":
        """Return the weight as of another exponent.

        For an earlier exponent it is the weight that would have decayed to this one.
        """
        growth = min(self._compute_growth(exponent), _MAX_GROWTH)
        weight = self.floor + (self.weight - self.floor) * math.exp(growth)
        return self._replace(weight=weight, decay_at=exponent)

    def can_return_to(self, exponent: float) -> bool:
        """Whether an exponent is earlier, and near enough that the decay since can be reversed."""
        return 0.0 <= self._compute_growth(exponent) < _MAX_GROWTH

    def _compute_growth(self, exponent: float) -> float:
        return _DECAY_RATES[self.authority] * (self.decay_at - exponent)


HUB_FANOUT = 16
"""M: one node in 16 of each level is on the next one, as in HNSW (Malkov & Yashunin 2016)."""

_BYTES = 8


def compute_hub_level(node_id: str) -> int:
    """Return the highest level of which a node is a hub: 0 for 15 of 16 nodes, which are none.

    The level is ``floor(-ln U / ln 16)``, with U in (0, 1] from a hash of the id. HNSW draws the
    level at random (Malkov & Yashunin 2016, §4.1); here it is the same for the same id on every
    machine and in every order of arrival. Nodes of level L and above are the hubs of level L.
    """
    digest = hashlib.blake2b(node_id.encode(), digest_size=_BYTES).digest()
    drawn = (int.from_bytes(digest, "big") + 1) / 2 ** (8 * _BYTES)
    return int(-math.log(drawn) / math.log(HUB_FANOUT))


DIGITS = 5
"""Digits of the numbers in records of turns."""

SEARCH_ACTION = "search"
"""Action type of a returned document that no edge supports."""


def make_turn_id() -> str:
    """Make an id of 32 hexadecimal digits that begins with its time: UUID version 7 (RFC 9562)."""
    random = bytearray(os.urandom(10))
    random[0] = 0x70 | random[0] & 0x0F
    random[2] = 0x80 | random[2] & 0x3F
    return f"{time.time_ns() // 1_000_000:012x}{random.hex()}"


def is_recent_id(name: str, seconds: float) -> bool:
    """Whether an id begins with a time that is at most ``seconds`` from now.

    Ids of :func:`make_turn_id` and of LangChain's runs begin with a time; others are not recent.
    """
    try:
        made = int(name[:13].replace("-", "", 1)[:12], 16) / 1000
    except ValueError:
        return False
    return abs(time.time() - made) <= seconds


def may_name_turn(name: str) -> bool:
    """Whether an id has the form of those of turns and of hosts' runs, a UUID."""
    try:
        UUID(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of language models in a turn.

    Attributes:
        calls: Requests to a model, including failed ones.
        cached_calls: Further requests that a cache of the host answered.
        failures: Requests without a usable answer.
        input_tokens, output_tokens: As counted by the model; estimated if it does not count.
        cost_usd: Cost by the prices that the user set; 0 without prices.
    """

    calls: int = 0
    cached_calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the sum of both."""
        return ModelUsage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the usage since ``other``."""
        return ModelUsage(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


Decider = Literal["reflex", "policy", "chat_model"]
Origin = Literal["seed", "walk"]


@dataclass(frozen=True, slots=True)
class ConsideredEdge:
    """One edge that was considered at a node.

    Attributes:
        target: Id of the target node.
        kind: Label of the edge kind.
        weight: Effective weight in [-1, 1], after decay and damping.
        relevance: Cosine of query and target, in [-1, 1].
        probability: π(target | node) over the habitual edges and STOP, in [0, 1];
            1 for a reflex, 0 for an edge that was not to be decided (dormant or inhibitory).
        tier: Value of :class:`~crabpath_retrievers.core.records.Tier`.
    """

    target: str
    kind: str
    weight: float
    relevance: float
    probability: float
    tier: str


@dataclass(frozen=True, slots=True)
class WalkStep:
    """The decision taken at one node.

    Attributes:
        node: Id of the node.
        hop: Distance of the node from its seed.
        candidates: Edges that were considered.
        chosen: Targets followed by decision, in the order in which they were drawn.
        reflexes: Targets followed without a decision.
        stopped: Whether STOP ended the choice, rather than the budget or a lack of edges.
        stop_weight: Learned weight of STOP at this node.
        stop_probability: π(STOP | node), in [0, 1].
        temperature: τ of the policy.
        decided_by: Decision channel.
    """

    node: str
    hop: int
    candidates: tuple[ConsideredEdge, ...]
    chosen: tuple[str, ...]
    reflexes: tuple[str, ...]
    stopped: bool
    stop_weight: float
    stop_probability: float
    temperature: float
    decided_by: Decider


class LazySteps(Sequence[WalkStep]):
    """Steps that are built when they are first read, so that no answer waits for them."""

    __slots__ = ("_builders", "_steps")

    def __init__(self, builders: Iterable[Callable[[], WalkStep]]) -> None:
        """Keep ``builders``, one per step, which are called at first use."""
        self._builders = tuple(builders)
        self._steps: tuple[WalkStep, ...] | None = None

    @property
    def all(self) -> tuple[WalkStep, ...]:
        """All steps, built at first use."""
        builders = self._builders  # read first: another thread clears it after setting the steps
        if self._steps is None:
            self._steps = tuple(build() for build in builders)
            self._builders = ()
        return self._steps

    @overload
    def __getitem__(self, index: int) -> WalkStep: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[WalkStep]: ...
    def __getitem__(self, index: int | slice) -> WalkStep | Sequence[WalkStep]:
        """One step, or a slice of them."""
        return self.all[index]

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.all)

    def __eq__(self, other: object) -> bool:
        """Whether the steps are equal, built already or not."""
        return isinstance(other, Sequence) and self.all == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """An entry node of the walk with its scores.

    Attributes:
        node: Id of the node.
        score: Entry score, in [0, 1].
        similarity: Cosine of query and node, in [-1, 1].
        lexical: BM25 score relative to the best match, in [0, 1].
        name: Rarity of the node's name when the query contains it, else 0.
        hinted: Whether the caller suggested it.
    """

    node: str
    score: float
    similarity: float
    lexical: float
    name: float
    hinted: bool = False


@dataclass(frozen=True, slots=True)
class PathEdge:
    """One edge of the route to a document.

    Attributes:
        source, target: Ids of the nodes.
        kind: Label of the edge kind.
        weight: Effective weight, in [-1, 1].
        tier: Value of :class:`~crabpath_retrievers.core.records.Tier`.
        probability: Probability of following it, in [0, 1].
    """

    source: str
    target: str
    kind: str
    weight: float
    tier: str
    probability: float


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop of a walk, passed to ``on_hop`` while the walk goes on.

    Attributes:
        number: 1 for the first hop.
        frontier: Ids of the nodes whose edges were considered.
        followed: Edges that were followed.
        decided_by: ``chat_model`` if it decided any of them, else ``policy``, else ``reflex``.
    """

    number: int
    frontier: tuple[str, ...]
    followed: tuple[PathEdge, ...]
    decided_by: Decider


@dataclass(frozen=True, slots=True)
class ReturnedDocument:
    """A document of the answer, in rank order.

    Attributes:
        probability: Ranker's probability of relevance, in [0, 1]; a reranker changes only places.
        origin: ``seed`` when search found it, ``walk`` when only an edge led to it.
        path: Route by which the walk reached it from a seed; empty for a search hit.
        support: Strongest edge to it from a visited node, followed or not; None without one.
        features: Inputs of the ranker by name. The weighted sum of those that do not count past
            turns is the log-odds before past uses, see :meth:`Ranker.log_odds`.
        propensity: Probability that a draw returns it, in [0, 1], given the candidates: of the
            ranker's weights, or of the explored places; None without exploration, and where a
            budget of tokens chose or, for drawn weights, a reranker.
        log_odds: Those of the logistic model, before its calibration and past uses; None in records
            of older releases.
        trials: Past uses and passes that the ranker counted, at least 0.
        superseded_by: Id of the newer version of it that stands before it; None without one.
    """

    node: str
    probability: float
    origin: Origin
    path: tuple[PathEdge, ...]
    features: dict[str, float]
    support: PathEdge | None = None
    propensity: float | None = None
    log_odds: float | None = None
    trials: float = 0.0
    superseded_by: str | None = None


DRAFT_ARM = "lift:draft"
"""Arm of the turns that were answered by two rankings in turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The record of one retrieval.

    Concurrent turns of one namespace start with the same ``clock``; the stored record has the
    number that was assigned to each. ``routing`` holds remarks of the router, such as why a chat
    model chose as it did. ``session`` is the conversation, and ``arm`` the arm of its trial as
    ``trial:arm``. ``repeats`` maps each document that was left out to the returned one with the
    same wording. ``frozen`` has the ids that the ranking before any lesson would have returned,
    best first; None where nothing was learned yet, or a reranker or a budget of tokens chose.
    ``learned`` has the ids that the learned ranking would have returned; None where that is the
    answer. ``teams`` maps the documents of an answer that both rankings drafted to the one that
    each is from: ``learned``, ``frozen``, or ``both`` if both have it at the same place. In the
    turn of a shadow, ``returned`` has the documents that the present retriever showed and the
    memory holds, and ``shadow`` the ids that the memory would have returned, best first; in other
    turns that is None. ``shown`` maps the present retriever's name of each shown document, in
    order, to its id in the memory, or to the name itself.
    """

    id: str
    namespace: str
    clock: int
    created: float
    query: str
    seeds: tuple[SeedRecord, ...]
    steps: Sequence[WalkStep]
    visited: tuple[str, ...]
    returned: tuple[ReturnedDocument, ...]
    guardrails: tuple[str, ...]
    novelty: dict[str, float | bool]
    explored: bool = False
    run_id: str | None = None
    llm_calls: int = 0
    llm_cached_calls: int = 0
    llm_failures: int = 0
    llm_input_tokens: int = 0
    llm_output_tokens: int = 0
    llm_tokens: int = 0
    cost_usd: float = 0.0
    routing: tuple[str, ...] = ()
    latency_ms: dict[str, float] = field(default_factory=dict)
    task_type: str | None = None
    session: str | None = None
    arm: str | None = None
    repeats: dict[str, str] = field(default_factory=dict)
    frozen: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None
    teams: dict[str, str] = field(default_factory=dict)
    shadow: tuple[str, ...] | None = None
    shown: dict[str, str] = field(default_factory=dict)

    def find_shown(self, names: Iterable[str]) -> list[str]:
        """Replace the names that the present retriever gave documents by ids of the memory."""
        return [self.shown.get(name, name) for name in names]

    @property
    def usage(self) -> ModelUsage:
        """Calls, tokens and cost of language models."""
        return ModelUsage(
            self.llm_calls,
            self.llm_cached_calls,
            self.llm_failures,
            self.llm_input_tokens,
            self.llm_output_tokens,
            self.cost_usd,
        )

    @property
    def follow_log(self) -> tuple[dict[str, Any], ...]:
        """Every edge followed: source, target, weight and decision channel."""
        log = []
        for step in self.steps:
            weights = {c.target: c.weight for c in step.candidates if c.tier != "inhibitory"}
            for channel, targets in (("reflex", step.reflexes), (step.decided_by, step.chosen)):
                log += [
                    {
                        "source": step.node,
                        "target": target,
                        "weight": weights[target],
                        "decision_channel": channel,
                    }
                    for target in targets
                ]
        return tuple(log)

    @property
    def trace(self) -> tuple[dict[str, Any], ...]:
        """Visited nodes with their depth and energy.

        Energy is the entry score of a seed; every edge multiplies it by its weight.
        """
        reached = {seed.node: (0, seed.score) for seed in self.seeds}
        for step in self.steps:
            weights = {c.target: c.weight for c in step.candidates if c.tier != "inhibitory"}
            for target in step.reflexes + step.chosen:
                energy = reached[step.node][1] * weights[target]
                reached.setdefault(target, (step.hop + 1, energy))
        return tuple(
            {"node_id": node, "depth": reached[node][0], "energy": reached[node][1]}
            for node in self.visited
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as plain, JSON-safe data."""
        return asdict(self.build_steps())

    def build_steps(self) -> "Turn":
        """Copy the turn with its steps built, for serialisers."""
        return replace(self, steps=tuple(self.steps))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Turn":
        """Build the record from data of :meth:`to_dict`."""
        return cls(
            **{
                **data,
                "seeds": tuple(SeedRecord(**seed) for seed in data["seeds"]),
                "steps": tuple(_to_step(step) for step in data["steps"]),
                "visited": tuple(data["visited"]),
                "returned": parse_returned(data["returned"]),
                "guardrails": tuple(data["guardrails"]),
                "routing": tuple(data["routing"]),
                **{
                    name: None if data.get(name) is None else tuple(data[name])
                    for name in ("frozen", "learned", "shadow")
                },
            }
        )


def _to_step(data: dict[str, Any]) -> WalkStep:
    candidates = tuple(ConsideredEdge(**candidate) for candidate in data["candidates"])
    chosen, reflexes = tuple(data["chosen"]), tuple(data["reflexes"])
    return WalkStep(**{**data, "candidates": candidates, "chosen": chosen, "reflexes": reflexes})


def parse_returned(data: Iterable[dict[str, Any]]) -> tuple[ReturnedDocument, ...]:
    """Parse returned documents from plain data, as in :meth:`Turn.to_dict`."""
    return tuple(_to_returned(item) for item in data)


def _to_returned(data: dict[str, Any]) -> ReturnedDocument:
    path = tuple(PathEdge(**edge) for edge in data["path"])
    support = data["support"] and PathEdge(**data["support"])
    return ReturnedDocument(**{**data, "path": path, "support": support})
