"""What a judged turn counts, by hand: at every level, for all tasks and for its own."""

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers.core.changes.history import TransitionCount
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.transitions import (
    SEARCH_ACTION,
    ObservedStep,
    count_steps,
    count_turn_steps,
    get_action_type,
    sum_steps,
)

PLACES = ((0, 0), (1, 7))
REGIONS = {"a": {1: 7}, "b": {1: 8}}


@pytest.fixture(scope="session")
def asked(turn_of):
    """A turn that found a by search and b by a link."""
    made = turn_of(returned=[["a"], ["a", "b"]])
    one, two = made.returned
    return replace(made, returned=(one, replace(two, support=two.path[-1])))


def known(turn, credit, usual=0.0, regions=None):
    """Counts by place; what came by has no action."""
    found = count_turn_steps(turn, credit, PLACES, REGIONS if regions is None else regions, usual)
    assert len({step.place for step in found}) == len(found)
    return {step.place: step.counts for step in found}


def test_the_action_is_the_kind_of_the_strongest_pointer(asked):
    """Or the search that found it."""
    assert [get_action_type(item) for item in asked.returned] == [SEARCH_ACTION, "link"]


def test_used_and_unused(asked):
    """Used is a success of its step, not used a failure; all end the turn."""
    found = known(asked, Credit(1.0, 0.5, {"a": 1.0, "b": 0.0}), usual=0.5)
    assert found == {
        (0, 0, "", "", 0): (0.5, 0.5, 0.5, 0.375),
        (1, 7, "", "", 0): (0.5, 0.5, 0.5, 0.375),
        (0, 0, "", SEARCH_ACTION, 0): (0.5, 0.5, 0.5, 0.5),
        (1, 7, "", SEARCH_ACTION, 7): (0.5, 0.5, 0.5, 0.5),
        (0, 0, "", "link", 0): (0.5, 0.0, 0.5, 0.0),
        (1, 7, "", "link", 8): (0.5, 0.0, 0.5, 0.0),
    }


def test_blamed_is_as_unused(asked):
    """A failure of the step, also where the turn failed by half only."""
    found = known(asked, Credit(-0.5, 1.0, {"a": -0.5, "b": 0.0}))
    assert found[1, 7, "", SEARCH_ACTION, 7] == (1.0, 0.0, 1.0, 0.0)
    assert found[1, 7, "", "link", 8] == (1.0, 0.0, 1.0, 0.0)
    assert found[1, 7, "", "", 0] == (1.0, 0.25, 1.0, 0.5)


def test_what_an_answer_does_not_show_is_not_counted(asked):
    """It may have been used all the same; what it does show is."""
    found = known(asked, Credit(1.0, 1.0, {"a": 0.8, "b": 0.0}, frozenset("ab")))
    assert found[0, 0, "", SEARCH_ACTION, 0] == (1.0, 0.8, 1.0, 0.8)
    assert not any(action == "link" for _, _, _, action, _ in found)


def test_documents_of_which_nothing_is_known_are_not_counted(asked):
    """Where something is known of others."""
    found = known(asked, Credit(1.0, 1.0, {"b": 1.0}))
    assert {action for _, _, _, action, _ in found} == {"", "link"}


@pytest.mark.parametrize(("outcome", "won"), [(1.0, 1.0), (0.0, 0.5), (-1.0, 0.0)])
def test_a_bare_outcome_is_shared(asked, outcome, won):
    """The documents are one step together."""
    found = known(asked, Credit(outcome))
    assert found[0, 0, "", "link", 0] == (0.5, won / 2, 0.5, won / 2)
    trials = [n for (*_, action, _), (n, *_) in found.items() if action]
    assert sum(trials) == len(PLACES)


def test_a_type_of_task_is_counted_beside_all(asked):
    """The same numbers twice."""
    found = known(replace(asked, task_type="refund"), Credit(1.0, 1.0, {"a": 1.0}))
    plain = known(asked, Credit(1.0, 1.0, {"a": 1.0}))
    assert len(found) == 2 * len(plain)
    assert {p: n for p, n in found.items() if not p[2]} == plain
    assert {(*p[:2], "", *p[3:]): n for p, n in found.items() if p[2] == "refund"} == plain


def test_a_turn_that_returned_nothing_still_came_by(turn_of):
    """Nothing else is known of it; a weight of 0 counts nothing at all."""
    found = known(turn_of(), Credit(-1.0))
    assert set(found) == {(0, 0, "", "", 0), (1, 7, "", "", 0)}
    assert known(turn_of(), Credit(1.0, 0.0)) == {}


def test_where_a_document_lies_may_not_be_known(asked):
    """Then it is not known where the step led."""
    found = known(asked, Credit(1.0, 1.0, {"b": 1.0}), regions={})
    assert found[1, 7, "", "link", 0] == (1.0, 1.0, 1.0, 1.0)


def test_a_step_that_goes_on(asked):
    """It ends nothing, and leads somewhere on each level by itself."""
    taken = ObservedStep(((0, 0), (2, 3), (1, 7)), "find", {2: 4, 1: 9}, 0.25, 1.0, is_last=False)
    assert list(count_steps([taken], ["", "t"])) == [
        TransitionCount(level, region, task, "find", led, 1.0, 0.25)
        for level, region, led in ((0, 0, 0), (2, 3, 4), (1, 7, 9))
        for task in ("", "t")
    ]


STEP = st.builds(
    TransitionCount,
    st.integers(0, 1),
    st.integers(0, 2),
    st.sampled_from(["", "t"]),
    st.sampled_from(["", "x"]),
    st.integers(0, 1),
    *[st.integers(0, 3).map(float)] * 4,
)


@settings(max_examples=40)
@given(st.lists(STEP, max_size=8))
def test_sums_are_sums(steps):
    """Each place once, nothing lost; taken back there is nothing left."""
    found = sum_steps(steps)
    assert len({step.place for step in found}) == len(found)
    for place in {step.place for step in steps}:
        total = sum(step.trials for step in steps if step.place == place)
        assert sum(step.trials for step in found if step.place == place) == total
    back = [TransitionCount(*step.place, *(-n for n in step.counts)) for step in found]
    assert sum_steps([*steps, *back]) == []
