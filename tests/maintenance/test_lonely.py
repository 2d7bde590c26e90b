"""With whom a lonely node is connected."""

import numpy as np
import pytest

from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.maintenance.connect import find_neighbours, make_similar_edges


def unit(*angles):
    """Unit vectors in a plane."""
    return np.array([[np.cos(a), np.sin(a)] for a in angles], dtype=np.float32)


def test_the_nearest_over_all_blocks():
    """Itself left out, none beyond the least cosine, at most so many."""
    vectors = unit(0.0, 0.1, 0.2, 0.3, 2.0)
    blocks = [([1, 2], list(vectors[:2])), ([3, 4, 5], list(vectors[2:]))]
    (found,) = find_neighbours(vectors[:1], blocks, [1], most=2, least=0.5)
    assert [near.key for near in found] == [2, 3]
    assert found[0].cosine == pytest.approx(np.cos(0.1), abs=1e-6)
    assert find_neighbours(vectors[4:], blocks, [5], most=3, least=0.5) == [[]]


def test_edges_go_both_ways():
    """With the prior that similarity has."""
    vectors = unit(0.0, 0.1)
    near = find_neighbours(vectors[:1], [([1, 2], list(vectors))], [1], most=3, least=0.5)
    edges = list(make_similar_edges([1], near, 0.3))
    assert [(e.source, e.target, e.kind, e.prior, e.floor) for e in edges] == [
        (1, 2, EdgeKind.SIMILAR, 0.3, 0.3),
        (2, 1, EdgeKind.SIMILAR, 0.3, 0.3),
    ]
