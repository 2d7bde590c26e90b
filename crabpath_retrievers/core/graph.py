"""The memory graph: nodes (chunks of documents), signed edges, and what a walk makes of them.

Weights lie in [-1, 1]; tiers and decay are those of [CrabPath] (``docs/bibliography.md``).

The level of a node: which nodes are hubs, computed from their ids alone.
"""

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeVar

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


class Authority(Enum):
    """How well a node is protected from forgetting, and how far it goes before others [CrabPath].

    Never renumber the stored values. Weights of edges to an ``overlay`` node decay at the usual
    speed, to a ``canonical`` node at a quarter of it, to a ``constitutional`` node not at all; the
    latter is never pruned.
    """

    OVERLAY = 0
    CANONICAL = 1
    CONSTITUTIONAL = 2

    @classmethod
    def of(cls, name: object) -> "Authority":
        """The authority with this name.

        Raises:
            InvalidInputError: No authority has this name.
        """
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

    Attributes:
        key: Surrogate key.
        mentions: In how many texts the node's name is mentioned.
        vector: Unit embedding, shape ``[d]``.
        terms: Words of the text as from :func:`crabpath_retrievers.core.text.encode_terms`.
        authority: Number of its :class:`Authority`.
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
    """Vectors of shape ``[d]``, at least one, as the rows of a matrix in single precision."""
    return to_single_precision(np.concatenate(vectors).reshape(len(vectors), -1))


def to_single_precision(vectors: NDArray[Any]) -> Vector:
    """Vectors in half precision as single precision; others as they are."""
    return _SINGLE.take(vectors.view(np.uint16)) if vectors.dtype == np.float16 else vectors


def compare_vectors(vectors: Sequence[Vector], vector: Vector, stretch: float = 1.0) -> list[float]:
    """Similarity of each unit vector with ``vector``; all have shape ``[d]``.

    Args:
        vectors: The vectors.
        vector: What they are compared with.
        stretch: Of the embedder; see :func:`stretch_cosine`. With 1 similarities are cosines.
    """
    if not vectors:
        return []
    similarities: list[float] = stretch_cosine(stack_vectors(vectors) @ vector, stretch).tolist()
    return similarities


def stretch_cosine(cosine: Number, stretch: float) -> Number:
    """Similarity ``1 - stretch · (1 - cosine)``: 1 for equal texts, about 0 for unrelated ones.

    Embedders differ in the cosine of unrelated texts (.04 in all-MiniLM-L6-v2, .76 in
    multilingual-e5-small), which the stretch takes back: weights and thresholds then mean the same
    with any of them. The order of similarities is that of cosines.
    """
    return cosine if stretch == 1.0 else 1.0 - stretch * (1.0 - cosine)


class OutgoingEdge(NamedTuple):
    """An outgoing edge with the weight that one namespace gives it now.

    Attributes:
        source: Key of the source node.
        target: Target node.
        weight: Effective weight in [-1, 1], after decay.
        prior: Weight before any feedback, in [-1, 1].
    """

    source: int
    target: NodeHead
    kind: EdgeKind
    weight: float
    prior: float


class WalkEdge(NamedTuple):
    """An outgoing edge of a visited node, with what one walk computed for it.

    Attributes:
        source: Source node.
        target: Target node.
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
        """Effective weight: ``floor + (weight − floor) · exp(−rate · (exponent − decay_at))``.

        Args:
            exponent: Accumulated decay exponent now; nothing decays while it is at most
                ``decay_at``.
        """
        weight, decay_at, floor, authority = self  # attributes take longer, edges are many
        if weight == floor or exponent <= decay_at:
            return weight
        return floor + (weight - floor) * math.exp(_DECAY_RATES[authority] * (decay_at - exponent))

    def move_to(self, exponent: float) -> "StoredWeight":
        """Weight as of another exponent; of an earlier one, the weight that decayed to it."""
        growth = min(self._compute_growth(exponent), _MAX_GROWTH)
        weight = self.floor + (self.weight - self.floor) * math.exp(growth)
        return self._replace(weight=weight, decay_at=exponent)

    def can_return_to(self, exponent: float) -> bool:
        """Whether an exponent is earlier, and not so much that the weight then is unknown."""
        return 0.0 <= self._compute_growth(exponent) < _MAX_GROWTH

    def _compute_growth(self, exponent: float) -> float:
        return _DECAY_RATES[self.authority] * (self.decay_at - exponent)


HUB_FANOUT = 16
"""M: one node in 16 of each level is on the next one, as in HNSW (Malkov & Yashunin 2016)."""

_BYTES = 8


def compute_hub_level(node_id: str) -> int:
    """Return ``floor(-ln U / ln M)``, U in (0, 1] from a hash of the id: 0 for 15 of 16 nodes.

    HNSW draws the level at random (Malkov & Yashunin 2016, §4.1); here it is the same for the same
    id on every machine and in every order of arrival. Nodes of level L and above are the hubs of
    level L.
    """
    digest = hashlib.blake2b(node_id.encode(), digest_size=_BYTES).digest()
    drawn = (int.from_bytes(digest, "big") + 1) / 2 ** (8 * _BYTES)
    return int(-math.log(drawn) / math.log(HUB_FANOUT))
