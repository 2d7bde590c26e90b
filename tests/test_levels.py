"""The level of a node follows from its id alone, and a sixteenth of each level is on the next."""

import math
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.graph import HUB_FANOUT, compute_hub_level

MANY = 40_000


@pytest.mark.parametrize("level", [1, 2, 3])
def test_a_sixteenth_of_each_level_stands_on_the_next(level):
    """The share of nodes of level L and above is 16^-L, within five standard errors."""
    share = HUB_FANOUT**-level
    above = sum(compute_hub_level(f"node {i}") >= level for i in range(MANY))
    assert abs(above / MANY - share) < 5 * math.sqrt(share * (1 - share) / MANY)


@settings(max_examples=25)
@given(st.text(max_size=40))
def test_any_text_has_one_level(text):
    """Whatever alphabet it is written in, and whoever asked before; no level is below 0."""
    node_id = text.encode("utf-8", "replace").decode()
    compute_hub_level("another")
    assert compute_hub_level(node_id) == compute_hub_level(node_id) >= 0


def test_levels_do_not_depend_on_order():
    """In any order of arrival every id has the same level."""
    ids = [f"Übung-{i}-検索-🦀" for i in range(2000)]
    levels = {node: compute_hub_level(node) for node in ids}
    np.random.default_rng(0).shuffle(ids)
    assert {node: compute_hub_level(node) for node in ids} == levels
    assert set(levels.values()) >= {0, 1}


def test_levels_are_the_same_in_another_process():
    """They are no hash of Python, which differs from process to process."""
    ids = [f"é{i}" for i in range(100)]
    program = (
        "from crabpath_retrievers.core.graph import compute_hub_level; "
        "print([compute_hub_level(f'\\u00e9{i}') for i in range(100)])"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert told.stdout.decode().strip() == str([compute_hub_level(node) for node in ids])
