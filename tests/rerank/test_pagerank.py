"""Personalised PageRank against worked numbers."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from crabpath_retrievers.rerank.pagerank import pagerank


def test_half_of_the_walkers_follow_the_only_pointer():
    """Starting at the first of two: x = [1, .5 · 1], the most visited one counts 1."""
    weights = np.array([[0.0, 0.6], [0.0, 0.0]])
    assert pagerank(weights, np.array([1.0, 0.0]), 0.5) == pytest.approx([1.0, 0.5])


def test_walkers_part_by_the_weights():
    """A quarter and three quarters of the half that follows."""
    weights = np.array([[0.0, 0.2, 0.6], [0, 0, 0], [0, 0, 0]])
    assert pagerank(weights, np.array([1.0, 0.0, 0.0]), 0.5) == pytest.approx([1.0, 0.125, 0.375])


def test_a_cycle_is_counted_to_its_end():
    """Two nodes that point at each other: x0 = 1 + x1 / 2, x1 = x0 / 2."""
    weights = np.array([[0.0, 1.0], [1.0, 0.0]])
    assert pagerank(weights, np.array([1.0, 0.0]), 0.5) == pytest.approx([1.0, 0.5])


@given(
    arrays(np.float64, (5, 5), elements=st.sampled_from([0.0, 0.3, 0.6])),
    arrays(np.float64, 5, elements=st.floats(0.01, 1)),
)
def test_every_node_gets_a_share_and_one_gets_most(weights, restart):
    """Whatever the pointers: finite, positive, the highest is 1."""
    found = pagerank(weights, restart, 0.5)
    assert np.isfinite(found).all()
    assert (found > 0).all()
    assert found.max() == pytest.approx(1.0)
