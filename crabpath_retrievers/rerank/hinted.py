"""Candidates that the caller prefers by their metadata."""

from collections.abc import Iterable, Mapping, Sequence

from crabpath_retrievers.graph import Node
from crabpath_retrievers.rerank.features import Hit


def hinted(pool: Sequence[Hit], nodes: Mapping[str, Node], tags: Iterable[str]) -> list[Hit]:
    """The candidates; those whose metadata carries one of the tags with a hint.

    Args:
        pool: Candidates.
        nodes: Their nodes by id, as far as they are known.
        tags: Values of metadata.
    """
    wanted = set(tags)
    return [
        hit._replace(hint=1.0)
        if (node := nodes.get(hit.head.id)) and wanted & _values(node.metadata.values())
        else hit
        for hit in pool
    ]


def _values(values: Iterable[object]) -> set[str]:
    found: set[str] = set()
    for value in values:
        found |= {str(v) for v in value} if isinstance(value, list) else {str(value)}
    return found
