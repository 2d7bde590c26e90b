"""Hints for candidates whose metadata has tags that the caller prefers."""

from collections.abc import Iterable, Mapping, Sequence

from crabpath_retrievers.graph import Candidate, Node


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
