"""What a failure takes from rewards: three rules that spare, and what the blind rule takes."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.learning.rules.failure_credit import (
    DocumentRecord,
    compute_responsibility,
    compute_reward_decay,
    compute_reward_factor,
    share_blame,
)

RULES = {rule: LearningSettings(reward_decay=rule) for rule in ("context", "blind", "none")}
FAILED = Credit(-1.0, 1.0, {"a": -1.0, "b": -1.0, "c": 0.0})


@pytest.fixture(scope="session")
def asked(turn_of):
    """A turn about a refund that returned three documents in which nobody believed."""
    turn = turn_of(returned=[["a"], ["b"], ["c"]])
    returned = tuple(replace(item, probability=0.0) for item in turn.returned)
    return replace(turn, returned=returned, task_type="refund")


def left(turn, credit, standings=None, quality=0.0, rule="context"):
    """What is left of each reward."""
    fair = share_blame(credit, standings or {}, quality, turn)
    taken = compute_reward_decay(turn, fair, RULES[rule])
    return {node: math.exp(-nats) for node, nats in taken.items()}


@pytest.mark.parametrize(("quality", "expected"), [(0.0, 0.7), (0.5, 0.825), (1.0, 0.95)])
def test_the_region_says_how_much_is_left(asked, quality, expected):
    """.7 + .25 quality, as CVX RFC-013 E has it, of a document without successes."""
    assert compute_reward_factor(quality) == pytest.approx(expected)
    found = left(asked, FAILED, quality=quality)
    assert found == {"a": pytest.approx(expected), "b": pytest.approx(expected)}


def test_a_document_that_was_not_followed_keeps_all(asked):
    """Returned and not used: it did not lead there."""
    assert set(left(asked, FAILED)) == {"a", "b"}
    assert left(asked, Credit(-1.0, 1.0, {"c": 0.0})) == {}


def test_a_document_for_other_tasks_keeps_all(asked):
    """One for this task, or for no task in particular, answers."""
    standings = {
        "a": DocumentRecord(tasks=frozenset({"exchange", "cancel"})),
        "b": DocumentRecord(tasks=frozenset({"refund", "cancel"})),
    }
    assert left(asked, FAILED, standings) == {"b": pytest.approx(0.7)}
    assert compute_responsibility(standings["a"], 0.0, "refund") == 0.0
    assert compute_responsibility(standings["a"], 0.0, None) == 1.0


def test_what_often_helped_barely_moves(asked):
    """20 successes: 2/22 of the nats, .968 instead of .7 is left."""
    found = left(asked, FAILED, {"a": DocumentRecord(wins=20.0)})
    assert found["a"] == pytest.approx(0.7 ** (2 / 22))
    assert found["a"] > 0.96
    assert found["b"] == pytest.approx(0.7)
    assert left(asked, FAILED, {"a": DocumentRecord(wins=2.0)})["a"] == pytest.approx(
        math.sqrt(0.7)
    )


@pytest.mark.parametrize(("outcome", "weight"), [(-0.5, 1.0), (-1.0, 0.5)])
def test_half_a_failure_takes_half_of_the_nats(asked, outcome, weight):
    """By its outcome, or by who says so; under both rules."""
    credit = Credit(outcome, weight, {"a": outcome})
    assert left(asked, credit)["a"] == pytest.approx(math.sqrt(0.7))
    assert left(asked, credit, rule="blind")["a"] == pytest.approx(math.sqrt(0.85))


def test_the_blind_rule_takes_15_percent_of_all(asked):
    """Whoever was followed, however good they are."""
    standings = {"a": DocumentRecord(20.0, frozenset({"cancel"}))}
    found = left(asked, FAILED, standings, 1.0, "blind")
    assert found == {node: pytest.approx(0.85) for node in "abc"}
    assert left(asked, Credit(-1.0), rule="blind") == found


def test_a_bare_failure_blames_nobody(asked):
    """It is not known who was followed."""
    assert left(asked, Credit(-1.0)) == {}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("outcome", [1.0, 0.3, 0.0])
def test_nothing_is_taken_after_a_success(asked, rule, outcome):
    """Nor after an outcome of 0, also from what was not used."""
    assert compute_reward_decay(asked, Credit(outcome), RULES[rule]) == {}
    assert (
        compute_reward_decay(asked, Credit(outcome, 1.0, {"a": outcome, "b": 0.0}), RULES[rule])
        == {}
    )


def test_none_takes_nothing(asked):
    """Not even from the worst."""
    assert left(asked, FAILED, rule="none") == {}


def test_blame_is_shared_out(asked):
    """In proportion; what was not used and a success stay as they are."""
    standings = {"a": DocumentRecord(2.0), "b": DocumentRecord(tasks=frozenset({"cancel"}))}
    fair = share_blame(FAILED, standings, 0.0, asked)
    assert fair.documents == {"a": pytest.approx(-0.5), "b": 0.0, "c": 0.0}
    assert (fair.outcome, fair.weight) == (-1.0, 1.0)
    won = Credit(1.0, 1.0, {"a": 1.0, "b": 0.0})
    assert share_blame(won, standings, 0.0, asked) is won


def test_all_for_other_tasks_is_no_bare_outcome(asked):
    """Documents of which it is known that they answer for nothing stay known."""
    standings = dict.fromkeys("ab", DocumentRecord(tasks=frozenset({"cancel"})))
    fair = share_blame(FAILED, standings, 0.0, asked)
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
    found = left(asked, credit, {"a": standing}, quality).get("a", 1.0)
    assert 0.7 - 1e-12 <= found <= 1.0
    assert 0 <= compute_responsibility(standing, quality, "refund") <= 1
    assert compute_responsibility(standing, quality, "refund") <= compute_responsibility(
        DocumentRecord(), quality, None
    )
    assert compute_responsibility(standing, 1.0, None) <= compute_responsibility(
        standing, quality, None
    )
