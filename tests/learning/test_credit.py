"""Credit of documents, the mean outcome they are compared with, how far memories are believed."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crabpath_retrievers import Feedback, ReturnedDocument
from crabpath_retrievers.core.feedback import Baseline, Credit, advantage
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.credit import assign_credit
from crabpath_retrievers.rerank import (
    PASSES,
    USES,
    Calibration,
    Reliability,
    count_log_odds,
    measure_memories,
    measure_scales,
)

NO_OUTCOMES = [math.nan, -math.inf, 1.01, "1", None, True]


@pytest.mark.parametrize("value", NO_OUTCOMES)
def test_what_is_no_outcome_is_refused(value):
    with pytest.raises(InvalidInputError, match="outcome must be a number from -1"):
        Feedback("turn", value)
    with pytest.raises(InvalidInputError, match="the mean outcome must be"):
        Baseline(value)


@pytest.fixture(scope="session")
def turn(returned):
    """A turn that returned three documents."""
    return returned(a=0.5, b=0.5, c=0.5)


HALF = {"a": 1.0, "b": 0.5, "c": 0.0}


@pytest.mark.parametrize("z", [1.0, 0.3, 0.0, -0.8, -1.0])
@pytest.mark.parametrize(
    ("known", "supported", "expected"),
    [
        # Used gets the outcome, the rest nothing.
        ({"used": ["b"]}, None, {"a": 0, "b": 1, "c": 0}),
        ({"used": []}, None, {"a": 0, "b": 0, "c": 0}),
        # Unused alone says nothing of the others.
        ({"unused": ["a", "b"]}, None, {"a": 0, "b": 0}),
        # What was not returned gets no credit: walked past, unknown, or supported by mistake.
        ({"used": ["a", "walked", "unknown"]}, None, {"a": 1, "b": 0, "c": 0}),
        ({}, {"a": 1.0, "walked": 1.0}, {"a": 1, "b": 0, "c": 0}),
        ({}, {"walked": 1.0}, {}),
        # Support shares the outcome.
        ({"answer": "?"}, HALF, HALF),
        # Nothing finer known, also with a correction: the outcome is that of the whole turn.
        *[({"answer": "?"}, nothing, {}) for nothing in (None, {}, {"a": 0.0, "b": 0.0})],
        ({"correction": "Rather so."}, None, {}),
        # What the host says goes before what was found; unused before used.
        ({"used": ["b"]}, {"a": 1.0}, {"a": 0, "b": 1, "c": 0}),
        ({"unused": ["a"]}, {"a": 1.0, "b": 0.5}, {"a": 0, "b": 0.5, "c": 0}),
    ],
)
def test_shares_of_the_outcome(turn, z, known, supported, expected):
    credit = assign_credit(turn, Feedback("t", z, **known), supported, 0.25)
    found = credit.documents
    assert found == pytest.approx({node: z * share for node, share in expected.items()})
    # A negative zero would be shown as blame.
    assert all(math.copysign(1.0, value) > 0 for value in found.values() if value == 0)
    # Weight scales what is learned, not what is said.
    assert (credit.outcome, credit.weight) == (z, 0.25)
    assert credit.used == tuple(node for node in "abc" if found.get(node, 0.0) > 0)


@pytest.mark.parametrize(
    ("said", "support", "inferred", "is_stated"),
    [
        # A document that the host calls unused is known to be.
        ({"unused": ["c"], "answer": "?"}, {"a": 1.0, "b": 0.0}, {"a", "b"}, True),
        ({"answer": "?"}, {"a": 1.0}, {"a", "b", "c"}, False),
        ({"used": ["a"], "answer": "?"}, None, set(), True),
    ],
)
def test_what_was_found_out_is_kept_apart_from_what_was_said(
    turn, said, support, inferred, is_stated
):
    found = assign_credit(turn, Feedback("t", 1.0, **said), support, 1.0)
    assert (found.inferred, found.has_stated_use) == (inferred, is_stated)


def after(*outcomes):
    """The baseline after these outcomes."""
    baseline = Baseline()
    for z in outcomes:
        baseline = baseline.with_outcome(z)
    return baseline


@pytest.mark.parametrize(
    ("z", "baseline", "expected"),
    [
        (1.0, 0.0, 1.0),
        (1.0, 0.8, 0.2),
        (0.5, 0.8, 0.0),  # a success below the average
        (1.0, -1.0, 2.0),
        (-1.0, 0.8, -1.8),
        (-0.5, -0.8, 0.0),  # a failure above the average
        (0.0, 0.8, 0.0),  # returned and not used
        (0.0, -0.8, 0.0),
    ],
)
def test_the_advantage_never_turns_the_sign_of_the_credit(z, baseline, expected):
    assert advantage(z, baseline) == pytest.approx(expected)


@given(st.lists(st.floats(-1, 1), min_size=1, max_size=130))
def test_the_last_outcome_is_taken_back(outcomes):
    """In reverse order each baseline is the one before, also where it rests on the most."""
    assert after(1, 1, -1, 0) == Baseline(0.25, 4)  # it is the mean of the outcomes
    middle = after(1.0, -1.0, 0.5).without(-1.0, [0.5])
    assert (middle.mean, middle.count) == (pytest.approx(0.75), 2)
    known = [after()]
    for z in outcomes:
        known.append(known[-1].with_outcome(z))
    now = known.pop()
    for z in reversed(outcomes):
        before = known.pop()
        now = now.without(z, [])
        assert now.count == before.count
        assert now.mean == pytest.approx(before.mean, abs=1e-6)
        assert -1 <= before.mean <= 1


@pytest.mark.parametrize(
    ("spoken", "kind", "factor"),
    [
        # A new namespace believes its memories in part: they may help, and can do little harm.
        ({}, "episode", pytest.approx(0.4)),
        # What is never used loses its weight: a hundred passes leave a fiftieth.
        ({"episode": (0.0, 95.0)}, "episode", pytest.approx(0.02)),
        # What is used as often as usual is believed: it need not be right more often.
        ({"usage": (25.0, 97.0)}, "usage", 1.0),
        # Where a fifth of all documents is called used, a fifth proves nothing.
        (
            {"returned": (340.0, 1000.0), "unlikely": (120.0, 600.0), "episode": (20.0, 100.0)},
            "episode",
            pytest.approx(0.05, abs=0.05),
        ),
    ],
)
def test_memories_are_believed_as_far_as_they_are_used(spoken, kind, factor):
    assert Reliability(spoken).factor(kind) == factor


def test_only_documents_with_credit_of_their_own_count(turn_of):
    """Of the others nothing is known; strengths below 0 speak for nobody."""
    said = {"a": {"episode": 0.5}, "b": {"episode": 0.3}, "c": {"usage": -0.2}}
    items = tuple(ReturnedDocument(n, 0.5, "seed", (), features) for n, features in said.items())
    asked = replace(turn_of(), returned=items)
    credit = Credit(1.0, 0.5, {"a": 1.0, "c": 0.0})
    assert measure_memories([(asked, credit)]) == {
        "returned": (0.5, 1.0),
        "episode": (0.25, 0.25),
    }


def test_outcomes_are_evidence_where_they_are_no_surprise():
    """From one half, before any, towards 1 where all succeed; none where half of them fail."""
    assert Baseline().evidence == 0.5
    assert Baseline(1.0, 100).evidence == pytest.approx(102 / 104)
    assert Baseline(0.5, 4).evidence == 0.5
    assert Baseline(0.0, 100).evidence == pytest.approx(2 / 104)
    assert Baseline(-0.9, 100).evidence == Baseline(-1.0, 2).evidence == 0.0


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=250), st.data())
def test_any_outcome_is_taken_back_as_if_it_had_never_been_there(outcomes, data):
    place = data.draw(st.integers(0, len(outcomes) - 1))
    first, later = outcomes[:place], outcomes[place + 1 :]
    now, never = after(*outcomes).without(outcomes[place], later), after(*first, *later)
    assert (now.mean, now.count) == (pytest.approx(never.mean, abs=1e-9), never.count)


def make_counts(returned, uses, lessons=0):
    """Feedback on one document for each of these log-odds, with its use."""
    turn = returned(**{f"d{i}": 0.5 for i in range(len(uses))})
    items = zip(turn.returned, uses, strict=True)
    turn = replace(turn, returned=tuple(replace(item, log_odds=odds) for item, (odds, _) in items))
    credit = Credit(1.0, documents={f"d{i}": use for i, (_, use) in enumerate(uses)})
    return count_log_odds([(turn, credit)], lessons)


def test_probabilities_become_the_shares_of_documents_that_are_used(returned):
    """Half of those at -4 and all of those at 0: not two and fifty percent, in the same order."""
    uses = [(-4.2, 1.0), (-3.8, 0.0), (0.1, 1.0), (0.0, 1.0)]
    learned = Reliability()
    assert learned.calibrate() == Calibration(1.0, 0.0)
    for _ in range(50):
        learned = learned.plus(make_counts(returned, uses))
    low, high = 1 / (1 + np.exp(-learned.calibrate().apply(np.array([-4.0, 0.0]))))
    assert low == pytest.approx(0.5, abs=0.1)
    assert high > 0.9
    never = Reliability().plus({"log_odds 0 5": (0.0, 900.0), "log_odds 0 -9": (900.0, 900.0)})
    assert never.calibrate().slope > 0


def test_calibration_forgets_and_undo_takes_back_what_was_counted(returned):
    old, new = (
        make_counts(returned, [(-2.0, use)], lessons) for use, lessons in ((1.0, 0), (0.0, 128))
    )
    learned = Reliability().plus(old)
    newer = learned.count_lesson(new)
    both = learned.plus(newer)
    assert both.calibrate() == Reliability(new).calibrate()
    assert both.plus(newer, -1.0) == learned
    assert both.plus(old, -1.0).plus(newer, -1.0) == Reliability()
    ghost = {**both.spoken, "log_odds 9 -2": (0.0, 5e-16)}  # as subtraction once left it
    assert Reliability(ghost).calibrate() == both.calibrate()
    assert make_counts(returned, [(None, 1.0)]) == {}


WEIGHTS = dict.fromkeys((*USES, *PASSES), 20.0)


def make_trials(returned, cases):
    """Feedback on one document for each of these uses and passes, with its use."""
    turn = returned(**{f"d{i}": 0.5 for i in range(len(cases))})
    items = tuple(
        replace(item, log_odds=-2.0, trials=1.0, features={"episode": uses, "missed": passes})
        for item, (uses, passes, _) in zip(turn.returned, cases, strict=True)
    )
    credit = Credit(1.0, documents={f"d{i}": used for i, (_, _, used) in enumerate(cases)})
    return measure_scales([(replace(turn, returned=items), credit)], WEIGHTS, Calibration())


def test_past_uses_count_more_where_they_come_true(returned):
    """A twentieth of a use and no pass: its share of all trials is .51 at scale 1."""
    true, false = (make_trials(returned, [(0.05, 0.0, used)] * 2) for used in (1.0, 0.0))
    often, seldom = Reliability(), Reliability()
    assert often.scale_trials() == 1.0
    for _ in range(50):
        often, seldom = often.plus(true), seldom.plus(false)
    assert often.scale_trials() > 9
    assert seldom.scale_trials() < 1 / 9
    undone = often
    for _ in range(50):
        undone = undone.plus(true, -1.0)
    assert undone.scale_trials() == pytest.approx(1.0)


def test_documents_without_past_uses_say_nothing_about_their_scale(returned):
    assert make_trials(returned, []) == {}
    unknown = returned(a=0.5)
    credit = Credit(1.0, documents={"a": 1.0})
    assert measure_scales([(unknown, credit)], WEIGHTS, Calibration()) == {}
