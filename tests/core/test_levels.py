"""The level of a node follows from its id alone, and a sixteenth of each level is on the next."""

import math

import pytest

from crabpath_retrievers.core.graph import HUB_FANOUT, compute_hub_level

MANY = 20_000


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_sixteenth_of_each_level_stands_on_the_next(level):
    """The share of nodes of level L and above is 16^-L, within five standard errors."""
    share = HUB_FANOUT**-level
    above = sum(compute_hub_level(f"node {i}") >= level for i in range(MANY))
    assert abs(above / MANY - share) < 5 * math.sqrt(share * (1 - share) / MANY)


def test_levels_are_the_same_in_every_process():
    """They are no hash of Python, which differs from process to process."""
    levels = [compute_hub_level(f"Übung-{i}-検索-🦀") for i in range(400)]
    assert (levels.index(1), levels.index(2), min(levels)) == (12, 312, 0)
