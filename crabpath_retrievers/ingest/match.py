"""Matches removed texts with added ones, one to one: first by equal text, then by similarity.

Pairs in the same file and under the same heading are preferred. A document whose texts moved to
another document has that one as its successor, so a renamed file counts as the same file.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.records import Node, Vector, stretch_cosine
from crabpath_retrievers.ingest.chunking import has_caller_id, make_embedding_text

# More than the similarity lost by rewording a sentence.
_SAME_FILE_BONUS, _SAME_HEADING_BONUS = 0.04, 0.02
_UNMATCHED_SCORE = 0.01  # below the score of any match
_MAX_CANDIDATES = 32  # per new text: templates have thousands of near copies
_BLOCK_ROWS = 1024  # new texts compared in one matrix product


class TextMatch(NamedTuple):
    """An old text, the new version of it, and their similarity."""

    old: Node
    new: Node
    similarity: float


def match_texts(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[str, Vector],
    threshold: float,
    stretch: float,
) -> list[TextMatch]:
    """Match old with new texts; each text is in at most one pair.

    Args:
        old: Nodes whose text the source no longer contains at that place.
        new: Nodes whose text was not there before.
        vectors: Unit vectors, shape ``[d]``, by text, with or without title. Texts without a
            vector are compared by equality only.
        threshold: Similarity above which two different texts are versions of each other.
        stretch: Of the embedder.
    """
    pairs = _pair_by_id(old, new, vectors, stretch)
    successors = _find_successors(old, new)
    old, new = _remove_paired(old, new, pairs)
    pairs += _pair_by_text(old, new, successors)
    # Without titles, a section still matches after its file was renamed.
    for text in (make_embedding_text, attrgetter("content")):
        old, new = _remove_paired(old, new, pairs)
        known = {id(n): vectors[text(n)] for n in (*old, *new) if text(n) in vectors}
        pairs += _pair_similar(old, new, known, successors, threshold, stretch)
    return pairs


def _remove_paired(
    old: Sequence[Node], new: Sequence[Node], pairs: Iterable[TextMatch]
) -> tuple[list[Node], list[Node]]:
    """Return nodes that are not paired yet; new nodes with a caller's id are left out."""
    taken = {id(node) for pair in pairs for node in pair[:2]}
    left = [node for node in old if id(node) not in taken]
    return left, [node for node in new if id(node) not in taken and not has_caller_id(node)]


def _pair_by_id(
    old: Sequence[Node], new: Sequence[Node], vectors: Mapping[str, Vector], stretch: float
) -> list[TextMatch]:
    """Pair documents by the id that the caller chose, whatever their text."""
    by_id = {node.id: node for node in old}
    given = [(by_id[node.id], node) for node in new if has_caller_id(node) and node.id in by_id]
    return [
        TextMatch(
            a,
            b,
            1.0 if a.content == b.content else stretch_cosine(_cosine(a, b, vectors), stretch),
        )
        for a, b in given
    ]


def _cosine(old: Node, new: Node, vectors: Mapping[str, Vector]) -> float:
    a, b = (np.asarray(vectors[make_embedding_text(node)], dtype=np.float32) for node in (old, new))
    return float(a @ b)


def _find_successors(old: Sequence[Node], new: Sequence[Node]) -> dict[str, str]:
    """Map each document to the one that most of its unique texts moved to."""
    before, after = _group_by_text(old), _group_by_text(new)
    moved = Counter(
        (before[text][0].document, after[text][0].document)
        for text in before.keys() & after.keys()
        if len(before[text]) == len(after[text]) == 1
    )
    return {
        source: successor for (source, successor), _ in sorted(moved.items(), key=lambda m: m[1])
    }


def _group_by_text(nodes: Iterable[Node]) -> dict[str, list[Node]]:
    found: dict[str, list[Node]] = defaultdict(list)
    for node in nodes:
        found[node.content].append(node)
    return found


def _pair_by_text(
    old: Sequence[Node], new: Sequence[Node], successors: Mapping[str, str]
) -> list[TextMatch]:
    """Pair equal texts, same document first: a licence may be in a thousand files."""

    def successor(node: Node) -> str:
        return successors.get(node.document, node.document)

    def same_document(node: Node) -> str:
        return node.document

    def any_document(_: Node) -> str:
        return ""

    pairs: list[TextMatch] = []
    for of_old, of_new in (
        (same_document, same_document),
        (successor, same_document),
        (any_document, any_document),
    ):
        for headed in (True, False):
            left, right = _remove_paired(old, new, pairs)
            if of_old is not same_document:
                left = [node for node in left if not has_caller_id(node)]
            pairs += _pair_equal(left, right, _make_key(of_old, headed), _make_key(of_new, headed))
    return pairs


def _make_key(place: Callable[[Node], str], headed: bool) -> Callable[[Node], Hashable]:  # noqa: FBT001
    return lambda node: (node.content, place(node), node.title if headed else "")


def _pair_equal(
    old: Sequence[Node],
    new: Sequence[Node],
    of_old: Callable[[Node], Hashable],
    of_new: Callable[[Node], Hashable],
) -> list[TextMatch]:
    """Pair nodes with equal keys, in order."""
    waiting: dict[Hashable, list[Node]] = defaultdict(list)
    for node in reversed(old):
        waiting[of_old(node)].append(node)
    return [TextMatch(found.pop(), node, 1.0) for node in new if (found := waiting[of_new(node)])]


def _pair_similar(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[int, Vector],
    successors: Mapping[str, str],
    threshold: float,
    stretch: float,
) -> list[TextMatch]:
    """Pair similar texts: the assignment with the largest sum of scores.

    Args:
        old: Unpaired old nodes.
        new: Unpaired new nodes.
        vectors: Unit vectors by ``id()`` of the node.
        successors: Successor of each document.
        threshold: Least similarity of a pair.
        stretch: Of the embedder.
    """
    old = [node for node in old if id(node) in vectors]
    new = [node for node in new if id(node) in vectors]
    rows, columns, similarities = _find_candidates(
        _stack_vectors(old, vectors), _stack_vectors(new, vectors), threshold, stretch
    )
    allowed = [
        (row, column, near)
        for row, column, near in zip(rows, columns, similarities, strict=True)
        if not has_caller_id(old[column]) or old[column].document == new[row].document
    ]
    scores = [
        near
        + _SAME_FILE_BONUS
        * (new[row].document in {old[c].document, successors.get(old[c].document)})
        + _SAME_HEADING_BONUS * (new[row].title == old[c].title)
        for row, c, near in allowed
    ]
    return [
        TextMatch(old[allowed[n][1]], new[allowed[n][0]], allowed[n][2])
        for n in _solve_assignment(
            [pair[0] for pair in allowed], [pair[1] for pair in allowed], scores
        )
    ]


def _stack_vectors(nodes: Sequence[Node], vectors: Mapping[int, Vector]) -> NDArray[np.float32]:
    """Stack the vectors of nodes, shape ``[n, d]``."""
    return np.array([vectors[id(node)] for node in nodes], dtype=np.float32)


def _find_candidates(
    old: NDArray[np.float32], new: NDArray[np.float32], threshold: float, stretch: float
) -> tuple[list[int], list[int], list[float]]:
    """Return rows of ``new``, rows of ``old`` and similarities of the pairs above the threshold."""
    rows: list[int] = []
    columns: list[int] = []
    found: list[float] = []
    if not (len(old) and len(new)):
        return rows, columns, found
    for start in range(0, len(new), _BLOCK_ROWS):
        near = stretch_cosine(new[start : start + _BLOCK_ROWS] @ old.T, stretch)
        for row, line in enumerate(near, start):
            best = np.argsort(-line, kind="stable")[:_MAX_CANDIDATES]
            best = best[line[best] > threshold]
            rows += [row] * len(best)
            columns += best.tolist()
            found += line[best].tolist()
    return rows, columns, found


def _solve_assignment(
    rows: Sequence[int], columns: Sequence[int], scores: Sequence[float]
) -> list[int]:
    """Solve the assignment problem: indices of the chosen pairs, each row and column once.

    Raises:
        MissingExtraError: scipy is not installed.
    """
    if not rows:
        return []
    require_extra("sync", "recognising edited texts")
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    own, row = np.unique(rows, return_inverse=True)
    others, column = np.unique(columns, return_inverse=True)
    # The solver matches every row, so each row gets a dummy column that means "no match".
    none = np.arange(len(own))
    weights = np.concatenate([scores, np.full(len(own), _UNMATCHED_SCORE)])
    at = (np.concatenate([row, none]), np.concatenate([column, len(others) + none]))
    shape = (len(own), len(others) + len(own))
    graph = coo_array((weights, at), shape=shape).tocsr()
    taken, to = min_weight_full_bipartite_matching(graph, maximize=True)
    chosen = set(zip(taken.tolist(), to.tolist(), strict=True))
    found = enumerate(zip(row.tolist(), column.tolist(), strict=True))
    return [number for number, pair in found if pair in chosen]
