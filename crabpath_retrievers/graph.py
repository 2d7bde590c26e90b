"""The memory graph: nodes (chunks of documents), signed edges (pointers) and their tiers.

Weights lie in [-1, 1] (documents 000 §2 and 003 §2).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

Vector = NDArray[np.float32]


# numpy turns half into single precision one number at a time; looking it up takes a third of that.
_SINGLE = np.arange(1 << 16, dtype="<u2").view("<f2").astype(np.float32)


class EdgeKind(Enum):
    """Why an edge stands in the graph. The values are stored; never renumber them."""

    STOP = 0
    SIBLING = 1
    LINK = 2
    LINKED_BY = 3
    MENTION = 4
    MENTIONED_BY = 5
    SHARED_TERM = 6
    SIMILAR = 7
    FOLLOWS = 8
    TOOL = 9
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
        """Keep the label: it is read for every pointer of a walk."""
        self.label = self.name.lower()
        """The name shown to users and written into records, such as ``mentioned_by``."""

    # Members are single: looking one up by its name, as Enum does, costs three times as much.
    __hash__ = object.__hash__


OVERLAY_KINDS = (EdgeKind.CO_USED, EdgeKind.INHIBITS, EdgeKind.TAUGHT)
"""Kinds that stand in the overlay of a namespace alone, and are walked; prior and floor are 0."""

TYPED_KINDS = (
    EdgeKind.TEMPORAL,
    EdgeKind.SAME_ACTION,
    EdgeKind.CAUSED_SUCCESS,
    EdgeKind.CAUSED_FAILURE,
    EdgeKind.IRRELEVANT,
    EdgeKind.REGION_TRANSITION,
    EdgeKind.GRANGER_CAUSAL,
)
"""Kinds that say what came of steps (document 004 B): searched by their own queries, not walked."""

LEARNED = frozenset({EdgeKind.FOLLOWS, EdgeKind.TOOL, *OVERLAY_KINDS, *TYPED_KINDS})
"""Kinds that come from use, not from a text: they stay when the text of a node is read again."""


class Authority(Enum):
    """How far a node is above learning (document 003). The values are stored; never renumber them.

    The weights of edges that lead to an ``overlay`` node decay as usual, to a ``canonical`` one at
    a quarter of that speed, to a ``constitutional`` one never; that one is never pruned or merged.
    """

    OVERLAY = 0
    CANONICAL = 1
    CONSTITUTIONAL = 2

    @classmethod
    def of(cls, name: object) -> "Authority":
        """The authority of that name.

        Raises:
            InvalidInputError: There is none.
        """
        if not isinstance(name, str) or name not in AUTHORITIES:
            msg = f"authority must be one of {', '.join(AUTHORITIES)}, not {shown(name)}"
            raise InvalidInputError(msg)
        return AUTHORITIES[name]


AUTHORITIES: Mapping[str, Authority] = {a.name.lower(): a for a in Authority}
"""By name."""

DECAY_RATES = (1.0, 0.25, 0.0)
"""Speed of decay of what leads to a node, relative to the usual one, by authority."""


class Tier(Enum):
    """What a walk does with an edge, by its effective weight (document 000 §2)."""

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
        id: Stable identity, from content and source or given by the caller.
        document: What is updated and removed as one: the id that the caller gave, else the source.
        source: Where the text comes from; neighbouring chunks of one source are siblings.
        content: The text that is returned to the caller.
        title: Name of the document or section, empty when it has none.
        names: Normalised names under which other texts may mention this node.
        addresses: Link targets that lead to this node (paths, URLs, wiki names).
        references: Link targets that this node's text points at.
        position: Order of the chunk inside its document; not part of its identity.
        metadata: JSON-safe metadata of the document.
        digest: Fingerprint of text and metadata; equal digests mean "nothing changed".
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
    """A directed pointer between two nodes, by surrogate key.

    Attributes:
        prior: Weight before anything was learned, in [-1, 1].
        floor: Weight to which forgetting returns the edge, in [-1, 1].
    """

    source: int
    target: int
    kind: EdgeKind
    prior: float
    floor: float


class NodeHead(NamedTuple):
    """What a walk needs of a node: identity, name statistics, unit vector ``[d]``, coded words."""

    key: int
    id: str
    title: str
    mentions: int
    vector: Vector
    terms: bytes = b""

    @property
    def rarity(self) -> float:
        """How telling the node's name is, in (0, 1]: ``1 / sqrt(1 + mentions)``."""
        return 1.0 / math.sqrt(1.0 + self.mentions)


def cosines(vectors: Sequence[Vector], vector: Vector) -> list[float]:
    """Cosine of each unit vector, at least one, with another one; all of shape ``[d]``."""
    stacked = np.concatenate(vectors).reshape(len(vectors), -1)
    if stacked.dtype == np.float16:
        stacked = _SINGLE.take(stacked.view(np.uint16))
    found: list[float] = (stacked @ vector).tolist()
    return found


class Pointer(NamedTuple):
    """An outgoing edge as one namespace sees it now.

    Attributes:
        source: Key of the node it leaves.
        target: The node that it leads to.
        weight: Effective weight in [-1, 1], decay included.
        prior: Weight that the text alone gives.
    """

    source: int
    target: NodeHead
    kind: EdgeKind
    weight: float
    prior: float


def effective_weight(
    weight: float, floor: float, mark: float, exponent: float, rate: float = 1.0
) -> float:
    """Weight after lazy decay: ``floor + (weight − floor) · exp(−rate · (exponent − mark))``.

    Args:
        weight: Weight at the last touch, in [-1, 1].
        floor: Value that decay approaches.
        mark: Accumulated decay exponent of the namespace at the last touch.
        exponent: Accumulated decay exponent now; a mark in the future does not decay.
        rate: Speed of decay, in [0, 1]; see ``DECAY_RATES``.
    """
    if weight == floor or exponent <= mark:
        return weight
    return floor + (weight - floor) * math.exp(rate * (mark - exponent))
