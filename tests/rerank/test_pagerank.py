"""Personalised PageRank against worked numbers, and against the system solved in full."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.rerank.features import pagerank


def of(pointers, restart, follow=0.5):
    """PageRank for pointers given as ``(source, target, weight)``."""
    rows = np.array(pointers, dtype=np.float64).reshape(-1, 3)
    sources, targets = rows[:, 0].astype(np.intp), rows[:, 1].astype(np.intp)
    return pagerank(sources, targets, rows[:, 2], np.array(restart, dtype=np.float64), follow)


def test_half_of_the_walkers_follow_the_only_pointer():
    """Starting at the first of two: x = [1, .5 · 1], the most visited one counts 1."""
    assert of([(0, 1, 0.6)], [1, 0]) == pytest.approx([1.0, 0.5])


def test_walkers_part_by_the_weights():
    """A quarter and three quarters of the half that follows."""
    assert of([(0, 1, 0.2), (0, 2, 0.6)], [1, 0, 0]) == pytest.approx([1.0, 0.125, 0.375])


def test_a_cycle_is_counted_to_its_end():
    """Two nodes that point at each other: x0 = 1 + x1 / 2, x1 = x0 / 2."""
    assert of([(0, 1, 1.0), (1, 0, 1.0)], [1, 0]) == pytest.approx([1.0, 0.5])


def test_without_pointers_everyone_stays():
    """Only the restart counts."""
    assert of([], [0.5, 1.0]) == pytest.approx([0.5, 1.0])


@given(
    st.lists(
        st.tuples(st.integers(0, 5), st.integers(0, 5), st.sampled_from([0.3, 0.6])), max_size=20
    ),
    st.lists(st.floats(0.01, 1), min_size=6, max_size=6),
)
def test_it_solves_the_whole_system(pointers, restart):
    """Parallel pointers add up; the full matrix gives the same."""
    weights = np.zeros((6, 6))
    for source, target, weight in pointers:
        weights[source, target] += weight
    steps = weights / np.maximum(weights.sum(axis=1, keepdims=True), 1e-12)
    expected = np.linalg.solve(np.eye(6) - 0.5 * steps.T, np.array(restart))
    assert of(pointers, restart) == pytest.approx(expected / expected.max())
