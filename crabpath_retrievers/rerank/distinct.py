"""Keeping one chunk of each document, for corpora of long documents."""

from collections.abc import Sequence

from crabpath_retrievers.rerank.features import FEATURES, Evidence, Matrix

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
