"""Which learned weights have faded away."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.graph import EdgeKind, effective_weight
from crabpath_retrievers.maintenance.prune import find_faded_weights
from crabpath_retrievers.storage.read.maintenance import LearnedWeight

RULES = MaintenanceSettings()
HALF_LIFE = 100.0
CO_USED, MENTION = EdgeKind.CO_USED.value, EdgeKind.MENTION.value


def after(turns):
    """The exponent after so many turns."""
    return turns * math.log(2.0) / HALF_LIFE


def learned(weight, *, floor=None, authority=0, mark=0.0):
    """A weight as it is stored."""
    return LearnedWeight(
        1, 2, CO_USED if floor is None else MENTION, weight, mark, floor, authority
    )


@pytest.mark.parametrize(
    ("weight", "floor", "turns", "settled", "pruned"),
    [
        (0.4, None, 100, 0, 0),  # .2 is left
        (0.4, None, 301, 0, 1),  # just below .05
        (-0.4, None, 500, 0, 0),  # -.0125 still inhibits
        (-0.4, None, 540, 0, 1),
        (0.9, 0.6, 400, 0, 0),  # .019 above what the text says
        (0.9, 0.6, 500, 1, 0),
        (0.0, 0.6, 700, 1, 0),
        (0.04, None, 13, 0, 0),  # moved too lately
        (0.04, None, 15, 0, 1),
    ],
)
def test_what_is_gone(weight, floor, turns, settled, pruned):
    """By hand, at a half-life of 100 turns."""
    found = find_faded_weights([learned(weight, floor=floor)], after(turns), HALF_LIFE, RULES)
    assert (len(found.at_floor), len(found.pruned)) == (settled, pruned)


def test_authority_is_respected():
    """What leads to a canonical node fades at a quarter of the speed, to a constitutional never."""
    ages = [301, 1_205, 1_000_000]
    gone = [
        [
            bool(find_faded_weights([learned(0.4, authority=a)], after(t), HALF_LIFE, RULES).pruned)
            for t in ages
        ]
        for a in (0, 1, 2)
    ]
    assert gone == [[True, True, True], [False, True, True], [False, False, False]]


@given(
    st.floats(-1, 1),
    st.one_of(st.none(), st.floats(0, 1)),
    st.floats(0, 10_000),
    st.integers(0, 2),
)
def test_no_walk_notices(weight, floor, turns, authority):
    """What goes moves no weight by more than the settings say, and no inhibition is lost."""
    one, exponent = learned(weight, floor=floor, authority=authority), after(turns)
    found = find_faded_weights([one], exponent, HALF_LIFE, RULES)
    if found.at_floor or found.pruned:
        rate = (1.0, 0.25, 0.0)[authority]
        now = effective_weight(weight, floor or 0.0, 0.0, exponent, rate)
        assert -RULES.min_inhibition < now - (floor or 0.0) < RULES.min_weight


def test_a_mark_in_the_future_is_young():
    """Such as after a snapshot was restored."""
    assert find_faded_weights([learned(0.01, mark=9.0)], 1.0, HALF_LIFE, RULES) == ([], [])
