"""Ordering for what documents hold together: worked orders, and a score that never rises."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crabpath_retrievers.rerank.ranker import greedy_coverage


def test_a_document_that_adds_words_passes_one_that_repeats():
    """The second repeats the first's word; the third, less relevant by .5, adds 1 unit."""
    held = np.array([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0]])
    order, added = greedy_coverage(np.array([3.0, 2.0, 1.5]), held, 1.0, k=2)
    assert order == [0, 2, 1]
    assert added.tolist() == [1.0, 0.0, 1.0]


def test_weight_zero_leaves_the_order_of_relevance():
    """Ties keep their order."""
    held = np.eye(3)
    assert greedy_coverage(np.array([1.0, 2.0, 2.0]), held, 0.0, k=3)[0] == [1, 2, 0]


def test_beyond_k_documents_keep_what_is_left():
    """Only the first is chosen; the others are sorted by what they would add then."""
    held = np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 1.0]])
    order, added = greedy_coverage(np.zeros(3), held, 1.0, k=1)
    assert order == [0, 2, 1]
    assert added.tolist() == [2.0, 0.0, 1.0]


def test_nothing_to_order():
    """No documents, or a query without words."""
    assert greedy_coverage(np.zeros(0), np.zeros((0, 3)), 1.0, 5)[0] == []
    assert greedy_coverage(np.array([1.0, 2.0]), np.zeros((2, 0)), 1.0, 5)[0] == [1, 0]


@given(
    arrays(np.float64, 12, elements=st.floats(-9, 9)),
    arrays(np.float64, (12, 4), elements=st.sampled_from([0.0, 1.0])),
    st.integers(0, 14),
)
def test_the_score_never_rises_along_the_order(odds, present, k):
    """Every document is ranked once, and scores fall from first to last."""
    held = present * np.array([3.0, 1.0, 0.5, 0.2])
    order, added = greedy_coverage(odds, held, 0.7, k)
    assert sorted(order) == list(range(12))
    scores = (odds + 0.7 * added)[order]
    assert (np.diff(scores) <= 1e-9).all()
