"""Selecting documents within a token budget, without near-duplicates.

Keeping one chunk of each document, for corpora of long documents.

Hints for candidates whose metadata has tags that the caller prefers.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.core.graph import Candidate, Node, NodeHead
from crabpath_retrievers.rerank.features import FEATURES, Evidence, Matrix

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


_DOCUMENT = FEATURES.index("document")


def select_best_chunks(
    documents: Sequence[str], order: Sequence[int], evidence: Evidence, matrix: Matrix
) -> list[int]:
    """Indices of the best chunk of each document, best first.

    The query's information in all candidates of a document counts for its best chunk, since a
    long document answers with all of its text.

    Args:
        documents: Document id of each candidate.
        order: Indices of the candidates, best first.
        evidence: The candidates.
        matrix: Features of the candidates; the column ``document`` is filled in.
    """
    chunks: dict[str, list[int]] = {}
    for index in order:
        chunks.setdefault(documents[index], []).append(index)
    for indices in chunks.values():
        matrix[indices[0], _DOCUMENT] = evidence.term_weights[indices].max(axis=0).sum()
    return [indices[0] for indices in chunks.values()]


def apply_tag_hints(
    pool: Sequence[Candidate], nodes: Mapping[str, Node], tags: Iterable[str]
) -> list[Candidate]:
    """The candidates, with ``hint`` set to 1 where a metadata value is one of the tags.

    Args:
        pool: The candidates.
        nodes: Their nodes by id; those of unknown nodes stay as they are.
        tags: Preferred values of metadata.
    """
    wanted = set(tags)
    return [
        hit._replace(hint=1.0)
        if (node := nodes.get(hit.head.id)) and wanted & _as_texts(node.metadata.values())
        else hit
        for hit in pool
    ]


def _as_texts(values: Iterable[object]) -> set[str]:
    texts: set[str] = set()
    for value in values:
        texts |= {str(v) for v in value} if isinstance(value, list) else {str(value)}
    return texts
