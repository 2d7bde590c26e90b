"""Choosing documents for a token budget, without saying the same twice."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.graph import Node, NodeHead

_DUPLICATE = 0.95  # cosine above which two texts say the same


@dataclass(frozen=True, slots=True)
class Selection:
    """Bounds of a selection: documents, tokens, and how long a token is in characters."""

    k: int
    max_tokens: int
    characters_per_token: float


def select(
    heads: Sequence[NodeHead], documents: Mapping[str, Node], bounds: Selection
) -> list[int]:
    """Indices of the documents to keep, in rank order.

    Args:
        heads: Ranked nodes with their vectors.
        documents: Their contents by id.
        bounds: How many documents and tokens. A document that does not fit is passed over, so
            a shorter one behind it may still come.
    """
    kept: list[int] = []
    left = bounds.max_tokens
    for index, head in enumerate(heads):
        node = documents.get(head.id)
        if node is None or any(_same(head, heads[other], node, documents) for other in kept):
            continue
        tokens = math.ceil(len(node.content) / bounds.characters_per_token)
        if tokens > left:
            continue
        left -= tokens
        kept.append(index)
        if len(kept) == bounds.k:
            break
    return kept


def _same(first: NodeHead, second: NodeHead, node: Node, documents: Mapping[str, Node]) -> bool:
    if node.content == documents[second.id].content:
        return True
    cosine = np.dot(first.vector.astype(np.float32), second.vector.astype(np.float32))
    return bool(cosine >= _DUPLICATE)
