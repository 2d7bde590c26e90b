"""A failure is shared out: who was likely right, helped often or is for other tasks is spared."""

import math
from dataclasses import replace

import pytest

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.failure_credit import (
    DocumentRecord,
    assign_hindsight_credit,
    compute_reward_decay,
    infer_fault,
    infer_relevance,
    share_blame,
)

EVEN = 0.825  # what the worst failure leaves of a reward: every second one has another cause


def failure(*followed, unused=()):
    """A failed turn that followed some documents."""
    return Credit(-1.0, 1.0, dict.fromkeys(followed, -1.0) | dict.fromkeys(unused, 0.0))


FAILED = failure("a", "b", unused="c")
ELSEWHERE = DocumentRecord(tasks=frozenset({"cancel"}))


@pytest.fixture(scope="session")
def asked(returned):
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
        (FAILED, {"a": DocumentRecord(20.0)}, {"a": EVEN ** (2 / 22), "b": EVEN}),
        (FAILED, {"a": DocumentRecord(2.0)}, {"a": math.sqrt(EVEN), "b": EVEN}),
        # Half a failure takes half of the nats, by its outcome or by its weight.
        (Credit(-0.5, 1.0, {"a": -0.5}), {}, {"a": math.sqrt(EVEN)}),
        (Credit(-1.0, 0.5, {"a": -1.0}), {}, {"a": math.sqrt(EVEN)}),
        # It is not known who was followed.
        (Credit(-1.0), {}, {}),
        # Nothing is taken after a success, also from what was not used.
        (Credit(1.0, 1.0, {"a": 1.0, "b": 0.0}), {}, {}),
        (Credit(0.0, 1.0, {"a": 0.0, "b": 0.0}), {}, {}),
    ],
)
def test_what_a_failure_leaves_of_rewards(asked, credit, standings, expected):
    assert compute_rest(asked, credit, standings) == pytest.approx(expected)


def test_blame_is_shared_out(asked):
    """In proportion; what was not used and a success stay as they are."""
    standings = {"a": DocumentRecord(2.0), "b": ELSEWHERE}
    fair, share = share_blame(FAILED, standings, asked), math.log(EVEN) / math.log(0.7)
    assert fair.documents == {"a": pytest.approx(-share / 2), "b": 0.0, "c": 0.0}
    assert (fair.outcome, fair.weight) == (-1.0, 1.0)
    won = Credit(1.0, 1.0, {"a": 1.0, "b": 0.0})
    assert share_blame(won, standings, asked) == won
    # That documents answer for nothing is known: it is no bare outcome.
    fair = share_blame(FAILED, dict.fromkeys("ab", ELSEWHERE), asked)
    assert set(fair.documents) == set("abc")
    assert not any(fair.documents.values())


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
