"""What a turn says when its question comes again."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.turn import ReturnedDocument
from crabpath_retrievers.learning.rules.episode_credit import assign_episode_credit


@pytest.fixture(scope="session")
def asked(turn_of):
    """A turn that returned a with probability .9 and b with .2."""
    items = tuple(ReturnedDocument(n, p, "seed", (), {}) for n, p in (("a", 0.9), ("b", 0.2)))
    return replace(turn_of(), returned=items)


def test_used_documents_come_again_and_others_make_room(asked):
    """In proportion to the weight of the feedback."""
    credit = Credit(1.0, 0.5, {"a": 1.0, "b": 0.0})
    assert assign_episode_credit(asked, credit) == {"a": 0.5, "b": -0.5}


def test_an_answer_that_does_not_show_a_document_says_nothing_against_it(asked):
    """It may have been used all the same."""
    credit = Credit(1.0, 1.0, {"a": 1.0, "b": 0.0}, frozenset("ab"))
    assert assign_episode_credit(asked, credit) == {"a": 1.0}


def test_a_bare_success_speaks_as_far_as_the_ranker_believed(asked):
    """The likely document gets most of it."""
    assert assign_episode_credit(asked, Credit(1.0)) == pytest.approx({"a": 0.9, "b": 0.2})


def test_a_bare_failure_speaks_against_what_was_unlikely(asked):
    """The likely document is hardly touched; half as much as a success would, it may be none."""
    assert assign_episode_credit(asked, Credit(-1.0)) == pytest.approx({"a": -0.05, "b": -0.4})


def test_a_bare_success_holds_all_that_was_needed(asked):
    """What failures held against its documents is gone, and what it did without was not needed."""
    before = {"a": -0.5, "b": 0.3, "c": 0.7, "d": -0.2}
    found = assign_episode_credit(asked, Credit(1.0), before=before)
    assert found == pytest.approx({"a": 0.9 + 0.5, "b": 0.2, "c": -0.7})


def test_a_bare_failure_lacked_what_successes_had(asked):
    """Each of them as far as it was thought to be needed; all of them together as one."""
    before = {"a": 0.4, "c": 0.9, "d": 0.3, "e": -0.5}
    found = assign_episode_credit(asked, Credit(-1.0), before=before)
    assert found == pytest.approx({"a": -0.05, "b": -0.4, "c": 0.375, "d": 0.125})


def test_a_failure_counts_as_far_as_its_documents_answer_for_it(asked):
    """Who answers for nothing is not held against; who was not used makes room as ever."""
    credit = Credit(-1.0, 1.0, {"a": -1.0, "b": 0.0})
    assert assign_episode_credit(asked, credit) == {"a": -1.0, "b": -1.0}
    assert assign_episode_credit(asked, credit, {"a": -0.2}) == {"a": -0.2, "b": -1.0}
    assert assign_episode_credit(asked, credit, {"a": 0.0}) == {"b": -1.0}


def test_all_experience_speaks_for_what_failed(asked):
    """As a success would, for comparison with the default."""
    credit = Credit(-1.0, 1.0, {"a": -1.0, "b": 0.0})
    assert assign_episode_credit(asked, credit, all_experience=True) == {"a": 1.0, "b": -1.0}


def test_an_outcome_of_zero_says_nothing(asked):
    """Neither success nor failure."""
    assert assign_episode_credit(asked, Credit(0.0, 1.0, {"a": 0.0})) == {}


@pytest.mark.parametrize("documents", [{"a": 1.0, "b": 0.0}, {"a": 1.0}, {}])
@pytest.mark.parametrize("inferred", [frozenset(), frozenset("ab")])
def test_with_all_experience_a_failure_speaks_as_a_success_does(asked, documents, inferred):
    """For what it followed, which is what CVX RFC-013 E warns of; successes stay as they are."""
    blamed = {node: -value for node, value in documents.items()}
    failed, won = Credit(-1.0, 0.5, blamed, inferred), Credit(1.0, 0.5, documents, inferred)
    assert assign_episode_credit(asked, failed, all_experience=True) == assign_episode_credit(
        asked, won
    )
    assert assign_episode_credit(asked, won, all_experience=True) == assign_episode_credit(
        asked, won
    )
    assert assign_episode_credit(asked, failed) != assign_episode_credit(asked, won)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1))
def test_it_stays_in_its_range(asked, outcome, weight, credit):
    """Whatever the feedback says."""
    for documents in ({}, {"a": credit}):
        found = assign_episode_credit(asked, Credit(outcome, weight, documents))
        assert all(value and -1 <= value <= 1 for value in found.values())


@given(st.floats(0.01, 1), st.floats(0.01, 1), st.floats(-5, 5), st.floats(0.01, 5))
def test_after_a_bare_success_nothing_is_held_against_its_documents(
    asked, outcome, weight, before, lacked
):
    """And nothing that it lacked is spoken for more than before."""
    known = {"a": before, "c": lacked}
    found = assign_episode_credit(asked, Credit(outcome, weight), before=known)
    assert before + found["a"] > before
    assert 0 <= lacked + found["c"] < lacked


def test_a_failure_may_speak_for_what_it_followed(asked):
    """What was not followed makes room as ever."""
    credit = Credit(-0.5, 0.5, {"a": -0.5, "b": 0.0})
    assert assign_episode_credit(asked, credit, {"a": 0.4}) == pytest.approx({"a": 0.2, "b": -0.5})
