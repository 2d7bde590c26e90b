"""Co-use where only outcomes are told."""

import pytest

from crabpath_retrievers.config import LearningSettings, TierSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.hebbian import CoUseUpdate, infer_co_use

SETTINGS = LearningSettings(hebbian_rate=0.1, promotion_threshold=2)
HABITUAL = TierSettings().habitual
AB, BA, AC = ("a", "b", "co_used"), ("b", "a", "co_used"), ("a", "c", "co_used")


def learn(turn, credit=None, existing=None, protos=None):
    """What a scalar outcome changes."""
    known = existing or {}, protos or {}, SETTINGS
    return infer_co_use(turn, credit or Credit(1.0), *known, habitual=HABITUAL)


def test_what_likely_mattered_counts_for_half(returned):
    """The third one is not likely to have been needed."""
    assert learn(returned(a=0.9, b=0.8, c=0.1)) == CoUseUpdate((), {("a", "b"): 0.5})


def test_the_fourth_common_success_makes_two_edges(returned):
    """One Hebbian step above the habitual bar: .3 + .1 · .7."""
    found = learn(returned(a=0.9, b=0.8), protos={("a", "b"): 1.5})
    assert found.promoted == (("a", "b"),)
    assert {delta[:3]: delta.delta for delta in found.deltas} == pytest.approx({AB: 0.37, BA: 0.37})


def test_a_success_without_the_other_end_lowers_an_edge(returned):
    """By .6, as far as a was believed (.9) and its other company was there (.5 of .5 + .3)."""
    found = learn(returned(a=0.9, b=0.8), existing={AB: 0.5, BA: 0.5, AC: 0.3})
    deltas = {delta[:3]: delta.delta for delta in found.deltas}
    assert deltas[AC] == pytest.approx(-0.6 * 0.9 * (0.5 / 0.8) * 0.3)
    assert deltas[AB] == pytest.approx(0.1 * 0.5)


def test_a_success_without_the_other_end_takes_from_a_count(returned):
    """Half a count, as far as the one that was there was believed; nothing where both were not."""
    protos = {("a", "c"): 1.0, ("b", "c"): 0.1, ("x", "y"): 1.0}
    found = learn(returned(a=0.9, b=0.8), protos=protos).count_changes
    assert found == pytest.approx({("a", "b"): 0.5, ("a", "c"): -0.45, ("b", "c"): -0.1})


def test_where_none_of_its_company_is_there_the_turn_is_about_something_else(returned):
    """An edge of a document that stands alone stays."""
    found = learn(returned(a=0.9, x=0.8), existing={AB: 0.5, AC: 0.3})
    assert all(delta.delta == 0 for delta in found.deltas)


@pytest.mark.parametrize("credit", [Credit(-1.0), Credit(0.0), Credit(1.0, 1.0, {"a": 1.0})])
def test_only_a_bare_success_says_anything(returned, credit):
    """A failure says nothing of pairs, and where use was told, that counts."""
    assert learn(returned(a=0.9, b=0.8), credit, existing={AB: 0.5}) == CoUseUpdate()


def test_half_a_success_moves_half_as_much(returned):
    """In proportion to the weight of the feedback."""
    whole = learn(returned(a=0.9, b=0.8), existing={AC: 0.3, AB: 0.5, BA: 0.5})
    half = learn(returned(a=0.9, b=0.8), Credit(1.0, 0.5), existing={AC: 0.3, AB: 0.5, BA: 0.5})
    for full, less in zip(whole.deltas, half.deltas, strict=True):
        assert less.delta == pytest.approx(full.delta / 2)
