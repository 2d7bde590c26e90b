"""A failure is shared out: who was likely right answers for little of it."""

import itertools
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.failure_credit import (
    DocumentRecord,
    assign_hindsight_credit,
    compute_reward_decay,
    compute_reward_factor,
    infer_fault,
    infer_relevance,
    share_blame,
)


def failure(*followed, unused=()):
    """A failed turn that followed some documents."""
    return Credit(-1.0, 1.0, dict.fromkeys(followed, -1.0) | dict.fromkeys(unused, 0.0))


def test_the_unlikely_document_is_at_fault(returned):
    """1 - .9 · .1 = .91 that not both are right: .1 of it is a's, .9 is b's."""
    turn = returned(a=0.9, b=0.1, c=0.5)
    expected = {"a": 0.1 / 0.91, "b": 0.9 / 0.91}
    assert infer_fault(turn, failure("a", "b", unused="c")) == pytest.approx(expected)


@pytest.mark.parametrize("probability", [0.0, 0.5, 1.0])
def test_what_was_followed_alone_is_at_fault(returned, probability):
    """However sure the ranker was of it."""
    assert infer_fault(returned(a=probability, b=0.5), failure("a")) == pytest.approx({"a": 1.0})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_fault_is_a_probability_and_falls_with_belief(returned, beliefs):
    """And together they explain at least one failure."""
    turn = returned(**{f"n{place}": p for place, p in enumerate(beliefs)})
    found = infer_fault(turn, failure(*(item.node for item in turn.returned)))
    assert all(0 < fault <= 1 + 1e-9 for fault in found.values())
    assert sum(found.values()) >= 1 - 1e-9
    ranked = sorted(turn.returned, key=lambda item: item.probability)
    faulty = [found[item.node] for item in ranked]
    assert faulty == sorted(faulty, reverse=True)


def test_blame_and_decay_are_shared_out_alike(returned):
    """In the worst region, of documents without successes: by fault alone; success keeps its."""
    turn, credit = returned(a=0.9, b=0.1, c=0.5), failure("a", "b", unused="c")
    shared = share_blame(credit, {}, 0.0, turn)
    fair = shared.documents
    assert fair == pytest.approx({"a": -0.1 / 0.91, "b": -0.9 / 0.91, "c": 0.0})
    taken = compute_reward_decay(turn, shared, LearningSettings())
    assert taken["b"] / taken["a"] == pytest.approx(fair["b"] / fair["a"])
    assert set(taken) == {"a", "b"}
    won = Credit(1.0, 1.0, {"a": 1.0})
    assert share_blame(won, {}, 0.0, turn) is won
    assert compute_reward_decay(turn, won, LearningSettings()) == {}


def test_good_regions_and_successes_protect(returned):
    """And another task answers for nothing."""
    turn, credit = replace(returned(a=0.5), task_type="clean"), failure("a")
    worst = share_blame(credit, {}, 0.0, turn).documents["a"]
    best = share_blame(credit, {}, 1.0, turn).documents["a"]
    proven = share_blame(credit, {"a": DocumentRecord(wins=6.0)}, 0.0, turn).documents["a"]
    foreign = share_blame(credit, {"a": DocumentRecord(tasks=frozenset({"cool"}))}, 0.0, turn)
    assert worst == pytest.approx(-1.0)
    assert worst < best < 0
    assert proven == pytest.approx(-0.25)
    assert not foreign.documents["a"]
    assert (compute_reward_factor(0.0), compute_reward_factor(1.0)) == (0.7, 0.95)


def test_what_was_sure_is_hardly_doubted(returned):
    """The likelier all of it was right, the likelier the failure is none, or had another cause."""
    sure = infer_relevance(returned(a=0.9, b=0.9), failure("a", "b"))
    unsure = infer_relevance(returned(a=0.9, b=0.01), failure("a", "b"))
    assert sure["a"] == pytest.approx(sure["b"])
    assert sure["a"] > 0.7
    assert unsure["b"] < 0.5 < unsure["a"]


def test_what_was_followed_alone_is_doubted(returned):
    """By hand: odds 100 : 1 that it was right, one failure in five is none."""
    right = 100.0 / 101.0
    none = right * 0.2 / (right * 0.2 + (1.0 - right) * 0.8)
    assert infer_relevance(returned(a=0.5), failure("a")) == pytest.approx({"a": none})


def test_a_failure_speaks_for_several_documents_as_far_as_they_were_right(returned):
    """And as far as the chain failed; what was followed alone answers for it."""
    turn, credit = returned(a=0.9, b=0.01), failure("a", "b")
    right = infer_relevance(turn, credit)
    assert assign_hindsight_credit(turn, credit, credit) == right
    half = replace(credit, documents={node: value / 2 for node, value in credit.documents.items()})
    assert assign_hindsight_credit(turn, half, half)["a"] == pytest.approx(right["a"] / 2)
    alone, fair = failure("a"), replace(failure("a"), documents={"a": -0.4})
    assert assign_hindsight_credit(returned(a=0.9), alone, fair) == {"a": -0.4}


def test_a_failure_does_not_speak_for_what_successes_of_its_question_did_without(returned):
    """Only for what one of them used; without any success for all."""
    turn, credit = returned(a=0.9, b=0.9), failure("a", "b")
    right = infer_relevance(turn, credit)
    assert assign_hindsight_credit(turn, credit, credit, {"a": 1.0, "c": 1.0}) == {
        "a": right["a"],
        "b": 0.0,
    }
    assert assign_hindsight_credit(turn, credit, credit, {"c": 1.0, "b": -1.0}) == {
        "a": 0.0,
        "b": 0.0,
    }
    assert assign_hindsight_credit(turn, credit, credit, {}) == right


def test_what_was_not_followed_makes_room_as_far_as_the_rest_was_right(returned):
    """Beside one that misled it is the next to try; where nothing was followed nothing is said."""
    turn = returned(a=0.9, b=0.8, c=0.5)
    alone, both = failure("a", unused="bc"), failure("a", "b", unused="c")
    assert assign_hindsight_credit(turn, alone, alone) == {"a": -1.0, "b": 0.0, "c": 0.0}
    right = infer_relevance(turn, both)
    expected = right | {"c": -(right["a"] + right["b"]) / 2}
    assert assign_hindsight_credit(turn, both, both) == pytest.approx(expected)
    assert assign_hindsight_credit(turn, failure(unused="abc"), failure(unused="abc")) == {}


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_rightness_is_a_probability_and_grows_with_belief(returned, beliefs):
    """Of nothing but what was followed."""
    turn = returned(**{f"n{place}": p for place, p in enumerate(beliefs)}, other=0.9)
    found = infer_relevance(
        turn, failure(*(item.node for item in turn.returned[:-1]), unused=["other"])
    )
    assert "other" not in found
    assert all(0 <= chance <= 1 + 1e-9 for chance in found.values())
    ranked = sorted(turn.returned[:-1], key=lambda item: item.probability)
    chances = [found[item.node] for item in ranked]
    assert all(a <= b + 1e-9 for a, b in itertools.pairwise(chances))
