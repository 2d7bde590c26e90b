"""Features of (query, node, path) that need no feedback.

All lie in [0, 1] for typical input, so that one set of weights serves corpora of any size.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.graph import EdgeKind, NodeHead
from crabpath_retrievers.traversal import Arrival

FEATURES = (
    "bias",
    "similarity",
    "lexical",
    "name",
    "rarity",
    "mention",
    "mentioned_by",
    "link",
    "linked_by",
    "sibling",
    "shared_term",
    "similar",
    "learned",
    "far",
    "hint",
    "inhibition",
)
"""Columns of the feature matrix, in order.

bias: 1. similarity: cosine of query and node. lexical: BM25 relative to the best hit. name: the
query contains the node's name, times its rarity. rarity: 1/√(1 + mentions) of a node that a
pointer leads to. mention … similar: strongest pointer of that kind, one hop from an entry.
learned: strongest pointer that exists only because of feedback. far: strongest route of two or
more hops. hint: the caller suggested it. inhibition: how strongly pointers advise against it.
"""

_COLUMN = {name: column for column, name in enumerate(FEATURES)}
_FAR, _RARITY = _COLUMN["far"], _COLUMN["rarity"]
_KIND_COLUMN = {
    EdgeKind.MENTION: _COLUMN["mention"],
    EdgeKind.MENTIONED_BY: _COLUMN["mentioned_by"],
    EdgeKind.LINK: _COLUMN["link"],
    EdgeKind.LINKED_BY: _COLUMN["linked_by"],
    EdgeKind.SIBLING: _COLUMN["sibling"],
    EdgeKind.SHARED_TERM: _COLUMN["shared_term"],
    EdgeKind.SIMILAR: _COLUMN["similar"],
    EdgeKind.FOLLOWS: _COLUMN["learned"],
    EdgeKind.TOOL: _COLUMN["learned"],
}

Matrix = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Hit:
    """A node that may be returned, with what search says about it.

    Attributes:
        similarity: Cosine of query and node, in [-1, 1].
        lexical: BM25 relative to the best hit of the query, in [0, 1].
        name: Rarity of the node's name when the query contains it, else 0.
        hint: 1 when the caller suggested the node, else 0.
        found: Whether a search engine found it, rather than a pointer.
    """

    head: NodeHead
    similarity: float
    lexical: float = 0.0
    name: float = 0.0
    hint: float = 0.0
    found: bool = True


def feature_matrix(
    hits: Sequence[Hit],
    arrivals: Iterable[Arrival],
    inhibition: Mapping[int, tuple[NodeHead, float]],
) -> Matrix:
    """Features of every hit, shape ``[len(hits), len(FEATURES)]``."""
    rows = {hit.head.key: _own(hit, inhibition) for hit in hits}
    for arrival in arrivals:
        pointer = arrival.option.pointer
        row = rows.get(pointer.target.key)
        if row is not None:
            column = _KIND_COLUMN[pointer.kind] if arrival.hop == 1 else _FAR
            row[column] = max(row[column], arrival.strength)
            row[_RARITY] = pointer.target.rarity
    return np.array(list(rows.values())).reshape(len(hits), len(FEATURES))


def _own(hit: Hit, inhibition: Mapping[int, tuple[NodeHead, float]]) -> list[float]:
    """What is known of a hit without the pointers that lead to it."""
    row = [0.0] * len(FEATURES)
    row[_COLUMN["bias"]] = 1.0
    row[_COLUMN["similarity"]] = hit.similarity
    row[_COLUMN["lexical"]] = hit.lexical
    row[_COLUMN["name"]] = hit.name
    row[_COLUMN["hint"]] = hit.hint
    if hit.head.key in inhibition:
        row[_COLUMN["inhibition"]] = inhibition[hit.head.key][1]
    return row
