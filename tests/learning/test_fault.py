"""What a turn says when its question comes again; whom a failure blames, and whom it spares."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules import (
    DocumentRecord,
    assign_episode_credit,
    assign_hindsight_credit,
    calibrate_relevance,
    compute_reward_decay,
    infer_fault,
    infer_relevance,
    limit_share,
    share_blame,
)

NOTHING_SHOWN = frozenset("ab")


@pytest.fixture(scope="session")
def asked(returned):
    """A turn whose documents are likely and unlikely to have mattered."""
    return returned(a=0.9, b=0.2)


@pytest.mark.parametrize(
    ("credit", "options", "expected"),
    [
        # Used documents come again, others make room, in proportion to the weight.
        (Credit(1.0, 0.5, {"a": 1.0, "b": 0.0}), {}, {"a": 0.5, "b": -0.5}),
        # An answer that does not show a document says nothing against it.
        (Credit(1.0, 1.0, {"a": 1.0, "b": 0.0}, NOTHING_SHOWN), {}, {"a": 1.0}),
        # A bare success speaks as far as the ranker believed; a bare failure against what was
        # unlikely, half as much: it may be none.
        (Credit(1.0), {}, {"a": 0.9, "b": 0.2}),
        (Credit(-1.0), {}, {"a": -0.05, "b": -0.4}),
        # After a bare success nothing is held against its documents; what it did without was
        # not needed.
        (
            Credit(1.0),
            {"before": {"a": -0.5, "b": 0.3, "c": 0.7, "d": -0.2}},
            {"a": 0.9 + 0.5, "b": 0.2, "c": -0.7},
        ),
        # A bare failure lacked what successes had, each as far as it was thought to be needed.
        (
            Credit(-1.0),
            {"before": {"a": 0.4, "c": 0.9, "d": 0.3, "e": -0.5}},
            {"a": -0.05, "b": -0.4, "c": 0.375, "d": 0.125},
        ),
        # A failure counts as far as its documents answer for it, and may speak for one.
        (Credit(-1.0, 1.0, {"a": -1.0, "b": 0.0}), {}, {"a": -1.0, "b": -1.0}),
        (
            Credit(-0.5, 0.5, {"a": -0.5, "b": 0.0}),
            {"followed": {"a": 0.4}},
            {"a": 0.2, "b": -0.5},
        ),
        (Credit(0.0, 1.0, {"a": 0.0}), {}, {}),
    ],
)
def test_what_a_turn_says(asked, credit, options, expected):
    assert assign_episode_credit(asked, credit, **options) == pytest.approx(expected)


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(-1, 1), st.floats(0.01, 5))
def test_what_a_turn_says_stays_in_its_range(asked, outcome, weight, credit, lacked):
    """A bare success speaks for its documents, and less for what it lacked."""
    for documents in ({}, {"a": credit}):
        found = assign_episode_credit(asked, Credit(outcome, weight, documents))
        assert all(value and -1 <= value <= 1 for value in found.values())
    known = {"a": credit, "c": lacked}
    found = assign_episode_credit(asked, Credit(abs(outcome), weight), before=known)
    assert found.get("a", 0.0) >= 0
    assert 0 <= lacked + found.get("c", 0.0) <= lacked


@pytest.mark.parametrize(
    ("ranked", "expected"),
    [
        ({"a": 0.9, "b": 0.2}, {"a": 0.9, "b": 0.2}),  # half of them matter anyway
        # Odds of 1 : 999 and 1 : 9999 become p and q with p + q = 1, so p = 1 / (1 + √.1).
        (
            {"a": 0.001, "b": 0.0001},
            {
                "a": 1 / (1 + (999 / 9999) ** 0.5),
                "b": 1 - 1 / (1 + (999 / 9999) ** 0.5),
            },
        ),
        ({}, {}),
    ],
)
def test_probabilities_are_moved_by_one_number_of_log_odds(returned, ranked, expected):
    assert calibrate_relevance(returned(**ranked)) == pytest.approx(expected)


ANN = {"ann": {"right": 1.0, "other": -1.0}}


@pytest.mark.parametrize(
    ("said", "voices", "share", "expected"),
    [
        ({"wrong": 1.0, "right": -1.0}, {}, 0.5, 1.0),  # nobody has spoken
        ({"wrong": 1.0}, {"eve": {"right": 3.0}}, 0.5, 1.0),  # she herself has
        ({"right": 1.0, "other": -1.0}, ANN, 0.5, 1.0),  # she says the same
        ({"wrong": 1.0, "right": -1.0}, ANN, 0.5, 0.5),  # against it, half as much
        ({"wrong": 1.0}, ANN, 0.5, 0.5),  # beside it
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "eve": {"wrong": 0.5, "right": -0.5}}, 0.5, 0.0),
        ({"wrong": 1.0, "right": -1.0}, {**ANN, "bob": {"right": 1.0}}, 0.5, 1.0),  # half of two
        ({"wrong": 1.0}, ANN, 0.0, 0.0),  # who may not contradict others still agrees with them
        ({"right": 1.0}, ANN, 0.0, 1.0),
    ],
)
def test_how_much_of_one_user_counts(said, voices, share, expected):
    allowed = limit_share(said, "eve", voices, share, proven=True)
    assert min(1.0, allowed) == pytest.approx(expected)


EVEN = 0.825  # what the worst failure leaves of a reward: every second one has another cause


def failure(*followed, unused=()):
    """A failed turn that followed some documents."""
    return Credit(-1.0, 1.0, dict.fromkeys(followed, -1.0) | dict.fromkeys(unused, 0.0))


FAILED = failure("a", "b", unused="c")
ELSEWHERE = DocumentRecord(tasks=frozenset({"cancel"}))


@pytest.fixture(scope="session")
def refund(returned):
    """A turn about a refund that returned three documents in which nobody believed."""
    return replace(returned(a=0.0, b=0.0, c=0.0), task_type="refund")


def compute_rest(turn, credit, standings=None):
    """What is left of each reward."""
    taken = compute_reward_decay(share_blame(credit, standings or {}, turn))
    return {node: math.exp(-nats) for node, nats in taken.items()}


@pytest.mark.parametrize(
    ("credit", "standings", "expected"),
    [
        # Who was not followed keeps all.
        (FAILED, {}, {"a": EVEN, "b": EVEN}),
        (failure(unused="c"), {}, {}),
        # Documents for other tasks keep all; one for this task among others does not.
        (
            FAILED,
            {
                "a": DocumentRecord(tasks=frozenset({"exchange", "cancel"})),
                "b": DocumentRecord(tasks=frozenset({"refund", "cancel"})),
            },
            {"b": EVEN},
        ),
        # 2 / (2 + successes) of the nats are taken.
        (FAILED, {"a": DocumentRecord(2.0)}, {"a": math.sqrt(EVEN), "b": EVEN}),
        # Half a failure takes half of the nats, by its outcome or by its weight.
        (Credit(-0.5, 1.0, {"a": -0.5}), {}, {"a": math.sqrt(EVEN)}),
        (Credit(-1.0, 0.5, {"a": -1.0}), {}, {"a": math.sqrt(EVEN)}),
        # It is not known who was followed.
        (Credit(-1.0), {}, {}),
        # Nothing is taken after a success, also from what was not used.
        (Credit(1.0, 1.0, {"a": 1.0, "b": 0.0}), {}, {}),
    ],
)
def test_what_a_failure_leaves_of_rewards(refund, credit, standings, expected):
    assert compute_rest(refund, credit, standings) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("beliefs", "credit", "expected"),
    [
        # 1 - .9 · .1 = .91 that not both are right: .1 of it is a's, .9 is b's.
        ({"a": 0.9, "b": 0.1, "c": 0.5}, FAILED, {"a": 0.1 / 0.91, "b": 0.9 / 0.91}),
        # What was followed alone is at fault, however sure the ranker was of it.
        *[({"a": p, "b": 0.5}, failure("a"), {"a": 1.0}) for p in (0.0, 0.5, 1.0)],
    ],
)
def test_the_unlikely_document_is_at_fault(returned, beliefs, credit, expected):
    turn = returned(**beliefs)
    assert infer_fault(turn, credit) == pytest.approx(expected)


def test_a_failure_speaks_for_several_documents_as_far_as_they_were_right(returned):
    """And as far as the chain failed; what was followed alone answers for it."""
    turn, credit = returned(a=0.5, b=0.01), failure("a", "b")
    # By hand: odds 100 : 1 that a lone one was right, one failure in five is none.
    right = 100.0 / 101.0
    none = right * 0.2 / (right * 0.2 + (1.0 - right) * 0.8)
    assert infer_relevance(turn, failure("a")) == pytest.approx({"a": none})
    right = infer_relevance(turn, credit)
    assert assign_hindsight_credit(turn, credit, credit) == right
    half = replace(credit, documents={node: value / 2 for node, value in credit.documents.items()})
    assert assign_hindsight_credit(turn, half, half)["a"] == pytest.approx(right["a"] / 2)
    alone, fair = failure("a"), replace(failure("a"), documents={"a": -0.4})
    assert assign_hindsight_credit(turn, alone, fair) == {"a": -0.4}


@pytest.mark.parametrize(
    ("before", "spoken_for"),
    [({"a": 1.0, "c": 1.0}, "a"), ({"c": 1.0, "b": -1.0}, ""), ({}, "ab")],
)
def test_a_failure_speaks_only_for_what_a_success_of_its_question_used(
    returned, before, spoken_for
):
    """Without any success for all; what was not followed makes room as far as the rest counts."""
    turn, credit = returned(a=0.9, b=0.9, c=0.5), failure("a", "b", unused="c")
    right = infer_relevance(turn, credit)
    expected = {node: right[node] if node in spoken_for else 0.0 for node in "ab"}
    expected["c"] = -sum(expected.values()) / 2
    found = assign_hindsight_credit(turn, credit, credit, before)
    assert found == pytest.approx(expected)
    nobody = failure(unused="abc")
    assert assign_hindsight_credit(turn, nobody, nobody) == {}
