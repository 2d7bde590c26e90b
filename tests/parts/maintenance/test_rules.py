"""What is faded, lonely, or to die, by hand; no store is needed to say so."""

import math

import numpy as np
import pytest

from crabpath_retrievers import EdgeKind
from crabpath_retrievers.config import MaintenanceSettings
from crabpath_retrievers.core.records import StoredWeight
from crabpath_retrievers.parts.operation.maintenance import (
    AutoNote,
    LearnedWeight,
    compute_survival_score,
    find_faded_weights,
    find_neighbours,
    is_expired,
    make_similar_edges,
)

RULES = MaintenanceSettings()
OLD = AutoNote("n", last=0, degree=1, uses=0.0, passes=3.0, authority=0, strongest=0.2)


@pytest.mark.parametrize(
    ("changed", "goes"),
    [
        ({}, True),
        ({"unseen": 28}, False),  # only long after its probation
        *((kept, False) for kept in ({"uses": 3.0}, {"authority": 1}, {"degree": 20})),
        ({"strongest": 0.3}, False),
    ],
)
def test_notes_that_are_old_and_never_used_go(changed, goes):
    unseen = changed.pop("unseen", 40)
    assert is_expired(OLD._replace(**changed), unseen, 14, 0.3, RULES) is goes


def test_the_survival_score_by_hand():
    """α degree + β uses + γ success − δ age / 14; the CrabPath v2 specification has −γ."""
    note = OLD._replace(degree=2, uses=1.0)
    assert compute_survival_score(note, 28, RULES) == pytest.approx(0.2 + 0.5 + 0.25 - 1.0)
    failed, never = note._replace(passes=9.0), note._replace(passes=0.0)
    assert compute_survival_score(failed, 28, RULES) < compute_survival_score(never, 28, RULES)


def shed(weight, turns, *, floor=None, authority=0, mark=0.0):
    """How many weights settle at their floor, and how many go; the half-life is 100 turns."""
    kind = (EdgeKind.CO_USED if floor is None else EdgeKind.MENTION).value
    stored = StoredWeight(weight, mark, floor or 0.0, authority)
    learned = LearnedWeight(1, 2, kind, stored, in_text=floor is not None)
    found = find_faded_weights([learned], turns * math.log(2.0) / 100.0, 100.0, RULES)
    return tuple(map(len, found))


@pytest.mark.parametrize(
    ("weight", "turns", "options", "expected"),
    [
        (0.4, 100, {}, (0, 0)),  # .2 is left
        (0.4, 301, {}, (0, 1)),  # just below .05
        (-0.4, 500, {}, (0, 0)),  # -.0125 still inhibits
        (-0.4, 540, {}, (0, 1)),
        (0.9, 400, {"floor": 0.6}, (0, 0)),  # .019 above what the text says
        (0.9, 500, {"floor": 0.6}, (1, 0)),
        (0.0, 700, {"floor": 0.6}, (1, 0)),
        (0.04, 13, {}, (0, 0)),  # moved too lately
        (0.01, 100, {"mark": 9.0}, (0, 0)),  # such as after a snapshot was restored
        # What leads to a canonical node fades at a quarter of the speed, to a constitutional never.
        (0.4, 301, {"authority": 1}, (0, 0)),
        (0.4, 1_205, {"authority": 1}, (0, 1)),
        (0.4, 1_000_000, {"authority": 2}, (0, 0)),
    ],
)
def test_which_learned_weights_have_faded_away(weight, turns, options, expected):
    assert shed(weight, turns, **options) == expected


def test_lonely_nodes_are_joined_to_the_nearest_of_all_blocks():
    """Itself left out, none beyond the least cosine, at most so many; both ways."""
    angles = (0.0, 0.1, 0.2, 0.3, 2.0)
    vectors = np.array([[np.cos(a), np.sin(a)] for a in angles], dtype=np.float32)
    blocks = [([1, 2], list(vectors[:2])), ([3, 4, 5], list(vectors[2:]))]
    (found,) = find_neighbours(vectors[:1], blocks, [1], most=2, least=0.5)
    assert [key for _, key in found] == [2, 3]
    assert found[0][0] == pytest.approx(np.cos(0.1), abs=1e-6)
    assert find_neighbours(vectors[4:], blocks, [5], most=3, least=0.5) == [[]]
    edges = list(make_similar_edges([1], [found[:1]], 0.3))
    assert [(e.source, e.target, e.kind, e.prior, e.floor) for e in edges] == [
        (1, 2, EdgeKind.SIMILAR, 0.3, 0.3),
        (2, 1, EdgeKind.SIMILAR, 0.3, 0.3),
    ]
