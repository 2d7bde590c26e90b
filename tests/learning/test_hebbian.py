"""Co-use: worked steps, promotion, and never on a failure."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings, TierSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import Tier
from crabpath_retrievers.learning.rules.hebbian import CoUseUpdate, update_co_use

SETTINGS = LearningSettings(hebbian_rate=0.1, promotion_threshold=2)
HABITUAL = TierSettings().habitual
AB, BA = ("a", "b", "co_used"), ("b", "a", "co_used")
USED = Credit(1.0, documents={"b": 1.0, "a": 1.0, "c": 0.0})
REWARD = st.floats(-1, 1)


def learn(credit=USED, existing=None, protos=None, settings=SETTINGS):
    """What joint use changes."""
    return update_co_use(credit, existing or {}, protos or {}, settings, habitual=HABITUAL)


def test_an_edge_moves_towards_one():
    """By h (1 - w): .1 · .6 one way and .1 · .5 the other; c was not used."""
    changed = learn(existing={AB: 0.4, BA: 0.5})
    assert changed == CoUseUpdate(((*AB, pytest.approx(0.06)), (*BA, pytest.approx(0.05))))


def test_a_pair_without_an_edge_is_counted():
    """One count per turn, for both directions together."""
    assert learn() == CoUseUpdate((), {("a", "b"): 1.0})


def test_at_the_threshold_a_pair_becomes_two_edges_that_a_walk_sees():
    """One Hebbian step above the habitual bar: .3 + .1 · .7."""
    changed = learn(protos={("a", "b"): 1.0})
    assert changed.promoted == (("a", "b"),)
    assert changed.deltas == ((*AB, pytest.approx(0.37)), (*BA, pytest.approx(0.37)))
    assert TierSettings().tier_of(changed.deltas[0].delta) is Tier.HABITUAL


def test_a_missing_direction_is_counted_and_the_other_one_grows():
    """Where one of two edges was lost, it comes back at the threshold."""
    changed = learn(existing={AB: 0.4}, protos={("a", "b"): 1.0})
    assert changed.deltas == ((*AB, pytest.approx(0.06)), (*BA, pytest.approx(0.37)))


def test_other_edges_between_the_two_do_not_count():
    """A link says what a text says; co-use has an edge of its own."""
    assert learn(existing={("a", "b", "link"): 0.6}) == learn()


def test_what_counts_less_takes_more_turns():
    """A source of weight .1 needs twenty turns, and moves an edge by a tenth."""
    tenth = Credit(1.0, 0.1, USED.documents)
    count = 0.0
    for turn in range(1, 21):
        changed = learn(tenth, protos={("a", "b"): count})
        assert bool(changed.promoted) == (turn == 20)
        count += changed.count_changes["a", "b"]
    assert learn(tenth, existing={AB: 0.4, BA: 0.4}).deltas[0].delta == pytest.approx(0.006)


def test_a_crowd_counts_as_its_eight_best():
    """Of ten documents the two with least credit are left out: 8 · 7 / 2 pairs."""
    crowd = Credit(1.0, documents={f"d{n}": 1 - n / 20 for n in range(10)})
    counted = learn(crowd).count_changes
    assert len(counted) == 28
    assert {node for pair in counted for node in pair} == {f"d{n}" for n in range(8)}


@pytest.mark.parametrize(
    "credit",
    [
        Credit(1.0),
        Credit(1.0, documents={"a": 1.0}),
        Credit(1.0, documents={"a": 1.0, "b": 0.0}),
        Credit(1.0, 0.0, {"a": 1.0, "b": 1.0}),
    ],
)
def test_it_takes_two_used_documents_and_a_credit_that_counts(credit):
    """Anything less changes nothing."""
    assert learn(credit, protos={("a", "b"): 9.0}) == CoUseUpdate()


@given(st.floats(-1, 0, exclude_max=True), st.dictionaries(st.sampled_from("abcd"), REWARD))
def test_never_on_a_failure(outcome, documents):
    """However its documents were credited."""
    assert (
        learn(Credit(outcome, documents=documents), {AB: 0.1}, {("c", "d"): 9.0}) == CoUseUpdate()
    )


@given(REWARD, st.floats(0, 1))
def test_it_never_lowers_and_never_passes_one(weight, rate):
    """From any weight upwards, and not beyond 1."""
    settings = LearningSettings(hebbian_rate=rate)
    for delta in learn(existing={AB: weight, BA: weight}, settings=settings).deltas:
        assert delta.delta >= 0
        assert weight + delta.delta <= 1 + 1e-12


def test_repeated_co_use_becomes_a_reflex():
    """From .37 the distance to 1 shrinks by a tenth a turn: .63 · .9^11 < .2."""
    weights = [0.37]
    for _ in range(11):
        weights.append(weights[-1] + learn(existing={AB: weights[-1]}).deltas[0].delta)
    assert all(later > earlier for earlier, later in pairwise(weights))
    assert weights[-2] < TierSettings().reflex < weights[-1]
