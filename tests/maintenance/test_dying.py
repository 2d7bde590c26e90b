"""Which notes on probation go."""

import pytest

from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.maintenance.prune import (
    ProbationNote,
    compute_survival_score,
    select_expired_notes,
)

RULES = MaintenanceSettings()
OLD = ProbationNote("n", degree=1, uses=0.0, passes=3.0, unseen=40, authority=0, strongest=0.2)


def goes(**changed):
    """Whether a note goes that is otherwise old and never used."""
    note = OLD._replace(**changed)
    return select_expired_notes([note], 14, 0.3, RULES) == [note.id]


def test_by_hand():
    """α degree + β uses + γ success − δ age / 14."""
    note = ProbationNote("n", degree=2, uses=1.0, passes=3.0, unseen=28, authority=0, strongest=0.0)
    assert compute_survival_score(note, RULES) == pytest.approx(0.2 + 0.5 + 0.25 - 1.0)


def test_who_is_old_and_never_used_goes():
    """Only long after its probation: until then it is not found, and comes back if it is used."""
    assert goes()
    assert not goes(unseen=28)


@pytest.mark.parametrize(
    "changed", [{"uses": 3.0}, {"authority": 1}, {"strongest": 0.3}, {"degree": 20}]
)
def test_what_speaks_for_a_note_keeps_it(changed):
    """Uses, authority, one strong edge, many edges."""
    assert not goes(**changed)


def test_success_lengthens_a_life():
    """The CrabPath v2 specification has the sign the other way round."""
    better = OLD._replace(uses=1.0, passes=0.0)
    assert compute_survival_score(better, RULES) > compute_survival_score(
        better._replace(passes=9.0), RULES
    )
    assert RULES.replace(success_score=0.0).success_score == 0.0
