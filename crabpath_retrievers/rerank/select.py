"""Selecting documents within a token budget, without near-duplicates."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.graph import Node, NodeHead

_DUPLICATE = 0.95  # cosine from which two texts count as duplicates


@dataclass(frozen=True, slots=True)
class SelectionLimits:
    """Limits of a selection.

    Attributes:
        k: Most documents.
        max_tokens: Most tokens of all documents together.
        characters_per_token: Mean length of a token.
    """

    k: int
    max_tokens: int
    characters_per_token: float


def select_within_budget(
    heads: Sequence[NodeHead], documents: Mapping[str, Node], bounds: SelectionLimits
) -> list[int]:
    """Indices of the documents to keep, in rank order.

    Args:
        heads: Ranked nodes, best first.
        documents: Their contents by id.
        bounds: Limits. A document that does not fit is skipped, so that a shorter one after it
            may still fit.
    """
    kept: list[int] = []
    remaining = bounds.max_tokens
    for index, head in enumerate(heads):
        node = documents.get(head.id)
        if node is None or any(
            _is_duplicate(head, heads[other], node, documents) for other in kept
        ):
            continue
        tokens = math.ceil(len(node.content) / bounds.characters_per_token)
        if tokens > remaining:
            continue
        remaining -= tokens
        kept.append(index)
        if len(kept) == bounds.k:
            break
    return kept


def _is_duplicate(
    first: NodeHead, second: NodeHead, node: Node, documents: Mapping[str, Node]
) -> bool:
    if node.content == documents[second.id].content:
        return True
    cosine = np.dot(first.vector.astype(np.float32), second.vector.astype(np.float32))
    return bool(cosine >= _DUPLICATE)
