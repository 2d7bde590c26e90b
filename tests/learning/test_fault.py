"""A failure is shared out: who was likely right, helped often or is for other tasks is spared."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.failure_credit import (
    DocumentRecord,
    assign_hindsight_credit,
    compute_responsibility,
    compute_reward_decay,
    compute_reward_factor,
    infer_fault,
    infer_relevance,
    share_blame,
)

RULES = {rule: LearningSettings(reward_decay=rule) for rule in ("context", "blind", "none")}


def failure(*followed, unused=()):
    """A failed turn that followed some documents."""
    return Credit(-1.0, 1.0, dict.fromkeys(followed, -1.0) | dict.fromkeys(unused, 0.0))


FAILED = failure("a", "b", unused="c")
ELSEWHERE = DocumentRecord(tasks=frozenset({"cancel"}))


@pytest.fixture(scope="session")
def asked(returned):
    """A turn about a refund that returned three documents in which nobody believed."""
    return replace(returned(a=0.0, b=0.0, c=0.0), task_type="refund")


def compute_rest(turn, credit, standings=None, quality=0.0, rule="context"):
    """What is left of each reward."""
    fair = share_blame(credit, standings or {}, quality, turn)
    taken = compute_reward_decay(turn, fair, RULES[rule])
    return {node: math.exp(-nats) for node, nats in taken.items()}


BLIND = dict.fromkeys("abc", 0.85)


@pytest.mark.parametrize(
    ("credit", "options", "expected"),
    [
        # .7 + .25 quality of the region (CVX RFC-013 E); who was not followed keeps all.
        (FAILED, {"quality": 0.0}, {"a": 0.7, "b": 0.7}),
        (FAILED, {"quality": 0.5}, {"a": 0.825, "b": 0.825}),
        (FAILED, {"quality": 1.0}, {"a": 0.95, "b": 0.95}),
        (failure(unused="c"), {}, {}),
        # Documents for other tasks keep all; one for this task among others does not.
        (
            FAILED,
            {
                "standings": {
                    "a": DocumentRecord(tasks=frozenset({"exchange", "cancel"})),
                    "b": DocumentRecord(tasks=frozenset({"refund", "cancel"})),
                }
            },
            {"b": 0.7},
        ),
        # 2 / (2 + successes) of the nats are taken.
        (FAILED, {"standings": {"a": DocumentRecord(20.0)}}, {"a": 0.7 ** (2 / 22), "b": 0.7}),
        (FAILED, {"standings": {"a": DocumentRecord(2.0)}}, {"a": math.sqrt(0.7), "b": 0.7}),
        # Half a failure takes half of the nats, by its outcome or by its weight.
        (Credit(-0.5, 1.0, {"a": -0.5}), {}, {"a": math.sqrt(0.7)}),
        (Credit(-1.0, 0.5, {"a": -1.0}), {}, {"a": math.sqrt(0.7)}),
        # It is not known who was followed.
        (Credit(-1.0), {}, {}),
        # The blind rule takes 15 % of all, however good they are; no rule takes nothing.
        (FAILED, {"standings": {"a": ELSEWHERE}, "quality": 1.0, "rule": "blind"}, BLIND),
        (Credit(-1.0), {"rule": "blind"}, BLIND),
        (Credit(-0.5), {"rule": "blind"}, dict.fromkeys("abc", math.sqrt(0.85))),
        (Credit(-1.0, 0.5), {"rule": "blind"}, dict.fromkeys("abc", math.sqrt(0.85))),
        (FAILED, {"rule": "none"}, {}),
        # Nothing is taken after a success, also from what was not used.
        *[
            (Credit(outcome, 1.0, documents), {"rule": rule}, {})
            for rule in RULES
            for outcome in (1.0, 0.3, 0.0)
            for documents in ({}, {"a": outcome, "b": 0.0})
        ],
    ],
)
def test_what_a_failure_leaves_of_rewards(asked, credit, options, expected):
    assert compute_rest(asked, credit, **options) == pytest.approx(expected)


def test_blame_is_shared_out(asked):
    """In proportion; what was not used and a success stay as they are."""
    standings = {"a": DocumentRecord(2.0), "b": ELSEWHERE}
    fair = share_blame(FAILED, standings, 0.0, asked)
    assert fair.documents == {"a": pytest.approx(-0.5), "b": 0.0, "c": 0.0}
    assert (fair.outcome, fair.weight) == (-1.0, 1.0)
    won = Credit(1.0, 1.0, {"a": 1.0, "b": 0.0})
    assert share_blame(won, standings, 0.0, asked) is won
    # That documents answer for nothing is known: it is no bare outcome.
    fair = share_blame(FAILED, dict.fromkeys("ab", ELSEWHERE), 0.0, asked)
    assert set(fair.documents) == set("abc")
    assert not any(fair.documents.values())


@given(
    st.floats(0, 1),
    st.floats(0, 1000),
    st.floats(-1, -0.001),
    st.floats(0, 1),
    st.sampled_from([None, "refund"]),
)
def test_a_failure_takes_between_nothing_and_three_tenths(
    asked, quality, wins, outcome, weight, task
):
    """And less the better the region, and the more successes."""
    standing = DocumentRecord(wins, frozenset() if task is None else frozenset({task}))
    credit = Credit(outcome, weight, {"a": outcome})
    found = compute_rest(asked, credit, {"a": standing}, quality).get("a", 1.0)
    assert 0.7 - 1e-12 <= found <= 1.0
    share = compute_responsibility(standing, quality, "refund")
    assert 0 <= share <= min(1, compute_responsibility(DocumentRecord(), quality, None))
    better = compute_responsibility(standing, 1.0, None)
    assert better <= compute_responsibility(standing, quality, None)
    assert compute_responsibility(ELSEWHERE, quality, "refund") == 0.0
    assert compute_responsibility(ELSEWHERE, 0.0, None) == 1.0
    assert compute_reward_factor(quality) == pytest.approx(0.7 + 0.25 * quality)


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
    # In the worst region blame and decay are shared out by fault alone.
    shared = share_blame(credit, {}, 0.0, turn)
    assert shared.documents == pytest.approx(
        dict.fromkeys(credit.documents, 0.0) | {node: -fault for node, fault in expected.items()}
    )
    taken = compute_reward_decay(turn, shared, LearningSettings())
    nats = -math.log(0.7)
    assert taken == pytest.approx({node: fault * nats for node, fault in expected.items()})


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_fault_falls_and_rightness_grows_with_belief(returned, beliefs):
    """Both are probabilities, of nothing but what was followed; faults explain the failure."""
    turn = returned(**{f"n{place}": p for place, p in enumerate(beliefs)}, other=0.9)
    ranked = sorted(turn.returned[:-1], key=lambda item: item.probability)
    credit = failure(*(item.node for item in ranked), unused=["other"])
    fault, right = infer_fault(turn, credit), infer_relevance(turn, credit)
    assert fault.keys() == right.keys() == {item.node for item in ranked}
    assert all(0 < share <= 1 + 1e-9 for share in fault.values())
    assert sum(fault.values()) >= 1 - 1e-9
    assert all(0 <= chance <= 1 + 1e-9 for chance in right.values())
    for less, more in itertools.pairwise(item.node for item in ranked):
        assert fault[less] >= fault[more]
        assert right[less] <= right[more] + 1e-9


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


@pytest.mark.parametrize(
    ("before", "spoken_for"),
    [({"a": 1.0, "c": 1.0}, "a"), ({"c": 1.0, "b": -1.0}, ""), ({}, "ab")],
)
def test_a_failure_speaks_only_for_what_a_success_of_its_question_used(
    returned, before, spoken_for
):
    """Without any success for all."""
    turn, credit = returned(a=0.9, b=0.9), failure("a", "b")
    right = infer_relevance(turn, credit)
    expected = {node: right[node] if node in spoken_for else 0.0 for node in "ab"}
    assert assign_hindsight_credit(turn, credit, credit, before) == expected


def test_what_was_not_followed_makes_room_as_far_as_the_rest_was_right(returned):
    """Beside one that misled it is the next to try; where nothing was followed nothing is said."""
    turn = returned(a=0.9, b=0.8, c=0.5)
    alone, both = failure("a", unused="bc"), failure("a", "b", unused="c")
    assert assign_hindsight_credit(turn, alone, alone) == {"a": -1.0, "b": 0.0, "c": 0.0}
    right = infer_relevance(turn, both)
    expected = right | {"c": -(right["a"] + right["b"]) / 2}
    assert assign_hindsight_credit(turn, both, both) == pytest.approx(expected)
    assert assign_hindsight_credit(turn, failure(unused="abc"), failure(unused="abc")) == {}
