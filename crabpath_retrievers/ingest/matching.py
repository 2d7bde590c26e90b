"""Which vanished text lives on in which new one: one to one, first by equal text, then by meaning.

The same file and the same heading are preferred. A file that lost texts to another one has that as
its heir: a renamed file is the same file.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.graph import Node, Vector
from crabpath_retrievers.ingest.chunking import embedded_text
from crabpath_retrievers.ingest.identity import is_given

_SAME_FILE_BONUS, _SAME_HEADING_BONUS = 0.04, 0.02  # more cosine than rewording a sentence costs
_UNMATCHED_SCORE = 0.01  # less than any match is worth
_MAX_CANDIDATES = 32  # of one new text: templates are alike by the thousand
_BLOCK_ROWS = 1024  # new texts that are compared at once


class Pair(NamedTuple):
    """An old text, the new one that it became, and the cosine of both."""

    old: Node
    new: Node
    similarity: float


def matched(
    old: Sequence[Node], new: Sequence[Node], vectors: Mapping[str, Vector], threshold: float
) -> list[Pair]:
    """Pairs of old and new texts, every text in at most one.

    Args:
        old: Nodes whose text is no longer where it was.
        new: Nodes whose text was not there before.
        vectors: Unit vectors, shape ``[d]``, by text, with title or without; texts that have none
            are not compared.
        threshold: Cosine above which different texts are versions of one.
    """
    pairs = _pair_by_id(old, new, vectors)
    successors = _find_successors(old, new)
    old, new = _remove_paired(old, new, pairs)
    pairs += _pair_by_text(old, new, successors)
    # A section's own words may be the same while the name of its file changed.
    for text in (embedded_text, own_text):
        old, new = _remove_paired(old, new, pairs)
        known = {id(n): vectors[text(n)] for n in (*old, *new) if text(n) in vectors}
        pairs += _pair_similar(old, new, known, successors, threshold)
    return pairs


def own_text(node: Node) -> str:
    """What a section says, without the title under which it stands."""
    return node.content


def _remove_paired(
    old: Sequence[Node], new: Sequence[Node], pairs: Iterable[Pair]
) -> tuple[list[Node], list[Node]]:
    """What is not paired and may be; an id that the caller gave is not handed on."""
    taken = {id(node) for pair in pairs for node in pair[:2]}
    left = [node for node in old if id(node) not in taken]
    return left, [node for node in new if id(node) not in taken and not is_given(node)]


def _pair_by_id(
    old: Sequence[Node], new: Sequence[Node], vectors: Mapping[str, Vector]
) -> list[Pair]:
    """Documents with ids of their own: they are the same whatever they say."""
    by_id = {node.id: node for node in old}
    given = [(by_id[node.id], node) for node in new if is_given(node) and node.id in by_id]
    return [Pair(a, b, 1.0 if a.content == b.content else _cosine(a, b, vectors)) for a, b in given]


def _cosine(old: Node, new: Node, vectors: Mapping[str, Vector]) -> float:
    a, b = (np.asarray(vectors[embedded_text(node)], dtype=np.float32) for node in (old, new))
    return float(a @ b)


def _find_successors(old: Sequence[Node], new: Sequence[Node]) -> dict[str, str]:
    """The document to which most texts of a document went, by texts that stand once only."""
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
) -> list[Pair]:
    """Equal texts, the nearest first: a licence may stand in a thousand files."""

    def successor(node: Node) -> str:
        return successors.get(node.document, node.document)

    def same_document(node: Node) -> str:
        return node.document

    def any_document(_: Node) -> str:
        return ""

    pairs: list[Pair] = []
    for of_old, of_new in (
        (same_document, same_document),
        (successor, same_document),
        (any_document, any_document),
    ):
        for headed in (True, False):
            left, right = _remove_paired(old, new, pairs)
            if of_old is not same_document:
                left = [node for node in left if not is_given(node)]
            pairs += _pair_equal(left, right, _make_key(of_old, headed), _make_key(of_new, headed))
    return pairs


def _make_key(place: Callable[[Node], str], headed: bool) -> Callable[[Node], Hashable]:  # noqa: FBT001
    return lambda node: (node.content, place(node), node.title if headed else "")


def _pair_equal(
    old: Sequence[Node],
    new: Sequence[Node],
    of_old: Callable[[Node], Hashable],
    of_new: Callable[[Node], Hashable],
) -> list[Pair]:
    """Pairs with equal keys, in the order in which they stand."""
    waiting: dict[Hashable, list[Node]] = defaultdict(list)
    for node in reversed(old):
        waiting[of_old(node)].append(node)
    return [Pair(found.pop(), node, 1.0) for node in new if (found := waiting[of_new(node)])]


def _pair_similar(
    old: Sequence[Node],
    new: Sequence[Node],
    vectors: Mapping[int, Vector],
    successors: Mapping[str, str],
    threshold: float,
) -> list[Pair]:
    """Versions of a text: the pairs above the threshold that are together worth most.

    Vectors are those of the nodes by identity.
    """
    old = [node for node in old if id(node) in vectors]
    new = [node for node in new if id(node) in vectors]
    rows, columns, cosines = _find_candidates(
        _stack_vectors(old, vectors), _stack_vectors(new, vectors), threshold
    )
    allowed = [
        (row, column, cosine)
        for row, column, cosine in zip(rows, columns, cosines, strict=True)
        if not is_given(old[column]) or old[column].document == new[row].document
    ]
    scores = [
        cosine
        + _SAME_FILE_BONUS
        * (new[row].document in {old[c].document, successors.get(old[c].document)})
        + _SAME_HEADING_BONUS * (new[row].title == old[c].title)
        for row, c, cosine in allowed
    ]
    return [
        Pair(old[allowed[n][1]], new[allowed[n][0]], allowed[n][2])
        for n in _solve_assignment(
            [pair[0] for pair in allowed], [pair[1] for pair in allowed], scores
        )
    ]


def _stack_vectors(nodes: Sequence[Node], vectors: Mapping[int, Vector]) -> NDArray[np.float32]:
    """Vectors of the nodes, shape ``[n, d]``."""
    return np.array([vectors[id(node)] for node in nodes], dtype=np.float32)


def _find_candidates(
    old: NDArray[np.float32], new: NDArray[np.float32], threshold: float
) -> tuple[list[int], list[int], list[float]]:
    """Rows of ``new``, rows of ``old`` and their cosines, where those are above the threshold."""
    rows: list[int] = []
    columns: list[int] = []
    found: list[float] = []
    if not (len(old) and len(new)):
        return rows, columns, found
    for start in range(0, len(new), _BLOCK_ROWS):
        cosines = new[start : start + _BLOCK_ROWS] @ old.T
        for row, line in enumerate(cosines, start):
            best = np.argsort(-line, kind="stable")[:_MAX_CANDIDATES]
            best = best[line[best] > threshold]
            rows += [row] * len(best)
            columns += best.tolist()
            found += line[best].tolist()
    return rows, columns, found


def _solve_assignment(
    rows: Sequence[int], columns: Sequence[int], scores: Sequence[float]
) -> list[int]:
    """Which of the candidates are chosen: no row and no column twice, their worth is largest."""
    if not rows:
        return []
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import min_weight_full_bipartite_matching

    own, row = np.unique(rows, return_inverse=True)
    others, column = np.unique(columns, return_inverse=True)
    # The solver matches every row: each has a column of its own that says "none".
    none = np.arange(len(own))
    weights = np.concatenate([scores, np.full(len(own), _UNMATCHED_SCORE)])
    at = (np.concatenate([row, none]), np.concatenate([column, len(others) + none]))
    shape = (len(own), len(others) + len(own))
    graph = coo_array((weights, at), shape=shape).tocsr()
    taken, to = min_weight_full_bipartite_matching(graph, maximize=True)
    chosen = set(zip(taken.tolist(), to.tolist(), strict=True))
    found = enumerate(zip(row.tolist(), column.tolist(), strict=True))
    return [number for number, pair in found if pair in chosen]
