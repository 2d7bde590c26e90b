"""One chunk for every document, for corpora of long documents."""

from collections.abc import Sequence

from crabpath_retrievers.rerank.features import FEATURES, Evidence, Matrix

_DOCUMENT = FEATURES.index("document")


def one_of_each(
    documents: Sequence[str], order: Sequence[int], evidence: Evidence, matrix: Matrix
) -> list[int]:
    """Indices of the best chunk of each document, best first.

    What all candidates of a document hold of the query together is noted for its best chunk: a
    long document answers with all of its text.

    Args:
        documents: The document of each candidate.
        order: Indices of the candidates, best first.
        evidence: The candidates.
        matrix: Their features; the column ``document`` is filled in.
    """
    chunks: dict[str, list[int]] = {}
    for place in order:
        chunks.setdefault(documents[place], []).append(place)
    for places in chunks.values():
        matrix[places[0], _DOCUMENT] = evidence.held[places].max(axis=0).sum()
    return [places[0] for places in chunks.values()]
