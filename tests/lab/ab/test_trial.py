"""A trial over both databases: membership, metrics, checkpoints, promotion, concurrency."""

import json
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
from ab_turns import SMALL, turn_of
from tables import read_journal

from crabpath_lab.ab import Trial, TrialSettings
from crabpath_lab.ab.state import TrialQueries
from crabpath_retrievers import Feedback
from crabpath_retrievers.errors import ConflictError, InvalidInputError, NotFoundError
from tests.seams import make_change


@pytest.fixture
def trial(store):
    return Trial.start(store, "t", settings=SMALL)


def test_few_turns_prove_nothing(trial, ask):
    """Of none every number is unknown, none is NaN; one session has rates, but no interval."""
    report = trial.report()
    assert report.verdict == "too little data"
    assert report.control.correction_rate is None
    assert report["success_rate"].difference is None
    assert trial.checkpoint() is None
    json.dumps(report.to_dict(), allow_nan=False)
    ask(trial, "s", [1.0, -1.0], arm="control")
    ask(trial, "s2", [None], arm="treatment")
    report = trial.report()
    assert report.control.correction_rate == 50.0
    assert report.treatment.success_rate is None
    assert (report["correction_rate"].low, report["correction_rate"].high) == (None, None)


@pytest.mark.both_databases
def test_metrics_by_hand(trial, ask, store):
    """Rates, lags, first corrections, latency and fallbacks of five turns."""
    first = ask(trial, "s1", [None, 1.0, None], arm="treatment")
    store.apply([make_change("KeepFeedback", Feedback(first[0], -1.0))])  # two turns later
    ask(trial, "s2", [1.0], arm="treatment")
    label = trial.options("ann", "s2", arm="treatment")
    store.record(turn_of(**label, llm_calls=4, llm_failures=1, guardrails=("x",)))
    found = trial.report().treatment
    assert (found.turns, found.sessions, found.users, found.judged) == (5, 2, 1, 3)
    assert found.correction_rate == 20.0
    assert found.correction_rate_by_lag == {"1": 0.0, "5": 20.0, "10": 20.0}
    assert found.success_rate == pytest.approx(2 / 3)
    assert (found.first_correction_turn, found.sessions_corrected) == (1.0, 0.5)
    assert found.latency_ms == {"p50": 3.0, "p95": 3.0}
    assert (found.router_calls, found.router_fallback_rate) == (4, 0.25)
    assert found.inhibited == pytest.approx(0.2)


@pytest.mark.both_databases
def test_known_bad_is_avoided_or_not(trial, store):
    """What was blamed for a question must not come back on it; other questions do not count."""
    given = trial.options("ann", "s", arm="treatment")
    for query, returned in (("How?", "ab"), ("how ?", "ab"), ("HOW?", "ab"), ("How?", "cd")):
        turn = turn_of(**given, query=query, returned=tuple(returned))
        store.record(turn)
        store.flush()
        if query == "How?":
            store.apply([make_change("KeepFeedback", Feedback(turn.id, -1.0, used=("b",)))])
    found = trial.report().treatment
    assert (found.known_bad, found.known_bad_avoided) == (2, 0.5)


def test_which_feedback_counts(trial, store, ask):
    """Without a turn it is about the last one, frozen or not; a person has the last word."""
    store.apply([make_change("set_frozen", "ann", frozen=True)])
    _, turn = ask(trial, "s", [None, None], arm="control")
    for feedback, counts in (
        (Feedback(None, -1.0, namespace="ann"), (1, 1)),
        (Feedback(turn, 1.0, source="harvested"), (1, 1)),
        (Feedback(turn, 1.0), (0, 1)),
    ):
        store.apply([make_change("KeepFeedback", feedback)])
        found = trial.report().control
        assert (found.corrected, found.judged) == counts


@pytest.mark.both_databases
def test_only_its_own_turns_count(trial, store, ask):
    """Neither what was before it, nor other trials, nor turns that pretend to be of it."""
    other = Trial.start(store, "t2", settings=SMALL)
    ask(other, "s", [1.0], arm="control")
    ask(other, "s", [1.0], arm="treatment")
    store.record(turn_of("ann"))
    store.record(turn_of("ann#t"))  # not labelled: those of the control would not be found either
    store.record(turn_of("ann#t", created=trial.state.started - 1))
    store.record(turn_of("bob", query='"arm":"t:control"', session='"arm":"t:control"'))
    assert trial.report().control.turns + trial.report().treatment.turns == 0


@pytest.mark.both_databases
def test_a_namespace_pair_is_enough(store):
    """Hosts that pass a namespace and nothing else: with fresh arms every turn is known."""
    trial = Trial.start(store, "pair_", fresh=True, settings=SMALL)
    for arm, namespace in trial.namespaces("ann").items():
        for _ in range(2 if arm == "control" else 3):
            store.record(turn_of(namespace))
    store.record(turn_of("ann#pairX"))  # "_" is no wildcard here
    report = trial.report()
    assert (report.control.turns, report.treatment.turns) == (2, 3)
    assert (report.control.users, report.control.sessions) == (1, 1)


@pytest.mark.both_databases
def test_the_fail_rule_rolls_back(trial, ask, store):
    """Twice in a row; then every session goes to the control, in every process, for good."""
    treated = next(f"s{n}" for n in range(99) if trial.arm(f"s{n}") == "treatment")
    for end in (1, 2):
        ask(trial, "c", [1.0] * 9 + [-1.0], arm="control")
        ask(trial, "x", [1.0] * 8 + [-1.0] * 2, arm="treatment")
        seen = trial.checkpoint()
        assert (seen.control_corrected, seen.treatment_corrected, seen.worse) == (1, 2, True)
        assert trial.status == ("running" if end == 1 else "rolled_back")
    assert trial.arm(treated) == "control"
    assert trial.options("ann", treated) == {"namespace": "ann", "session": treated}
    again = Trial.open(store, "t")
    assert again.namespace("ann", treated) == "ann"
    assert again.report().verdict == "roll back"
    assert again.checkpoint() is None
    with pytest.raises(InvalidInputError, match="cannot be promoted"):
        again.promote()
    journal = [row for row in read_journal(store) if row["change"] == "trial"]
    assert [row["payload"]["state"]["status"] for row in journal][:2] == ["rolled_back", "running"]


def test_a_checkpoint_waits_for_turns_and_for_feedback(store, ask):
    """None below its number of turns in either arm, none of turns that may still be corrected."""
    trial = Trial.start(store, "slow", settings=SMALL.replace(feedback_seconds=60.0))
    ask(trial, "c", [None] * 10, arm="control")
    ask(trial, "x", [None] * 10, arm="treatment")
    assert trial.checkpoint() is None
    fast = Trial.start(store, "fast", settings=SMALL)
    ask(fast, "c", [None] * 10, arm="control")
    ask(fast, "x", [None] * 9, arm="treatment")
    assert fast.checkpoint() is None
    ask(fast, "x", [None], arm="treatment")
    assert fast.checkpoint().treatment_turns == 10
    assert fast.checkpoint() is None


@pytest.mark.both_databases
def test_promotion_needs_the_statistics(trial, ask):
    """Refused without, done with them; then everybody has the treatment."""
    with pytest.raises(InvalidInputError, match="cannot be promoted: too little data"):
        trial.promote()
    for n in range(5):
        ask(trial, f"s{n}", [-1.0, -1.0], arm="control", user=f"u{n}")
        ask(trial, f"s{n}", [1.0, 1.0], arm="treatment", user=f"u{n}")
    report = trial.promote()
    assert report["correction_rate"].paired == "session"
    assert report["correction_rate"].difference == -100.0
    assert trial.status == "promoted"
    assert {trial.namespace("ann", n) for n in range(50)} == {"ann#t"}
    with pytest.raises(InvalidInputError, match="has ended already"):
        trial.roll_back()


def test_what_comes_after_the_end_does_not_count(trial, ask, store):
    (turn,) = ask(trial, "s", [None], arm="control")
    trial.roll_back("too slow")
    store.record(turn_of("ann", arm="t:control"))
    store.apply([make_change("KeepFeedback", Feedback(turn, -1.0))])
    report = trial.report()
    assert (report.control.turns, report.control.corrected) == (1, 1)
    assert report.reason == "the trial has ended: too slow"


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (partial(Trial.start, share=0.6), InvalidInputError, r"with share 0\.5"),
        (partial(Trial.start, settings=TrialSettings()), InvalidInputError, "was started with"),
        (lambda store, _: Trial.open(store, "x"), NotFoundError, "no trial 'x' .* it has t$"),
        (
            lambda store, name: Trial.open(store, name).options("ann", "s", arm="both"),
            InvalidInputError,
            "control or treatment",
        ),
    ],
    ids=["share", "settings", "name", "arm"],
)
def test_what_a_trial_is_not_is_refused(trial, store, call, error, says):
    with pytest.raises(error, match=says):
        call(store, "t")


@pytest.mark.both_databases
def test_whoever_read_an_old_state_changes_nothing(trial, store):
    """A checkpoint of one process cannot wipe out the rollback of another."""
    old = TrialQueries(store).state("t")
    Trial.open(store, "t").roll_back()
    with pytest.raises(ConflictError, match="changed by somebody else"):
        store.apply([make_change("keep_trial", "t", old, old)])
    with pytest.raises(ConflictError):
        store.apply([make_change("keep_trial", "t", None, old)])
    assert trial.refresh().status == "rolled_back"


def test_a_rollback_is_seen_by_others(trial, store, monkeypatch):
    """Options look again after ten seconds; arms and namespaces alone never touch the store."""
    treated = next(n for n in range(99) if trial.arm(n) == "treatment")
    Trial.open(store, "t").roll_back()
    assert trial.options("ann", treated)["arm"] == "t:treatment"
    later = time.monotonic() + 11
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert trial.options("ann", treated)["namespace"] == "ann"


@pytest.mark.both_databases
def test_many_begin_at_once(store):
    with ThreadPoolExecutor(6) as threads:
        begun = list(threads.map(lambda _: Trial.start(store, "t").state.started, range(6)))
    assert len(set(begun)) == 1


@pytest.mark.both_databases
def test_forgetting_a_user_empties_the_trial(trial, ask, store):
    ask(trial, "s", [1.0], arm="control")
    ask(trial, "s", [1.0], arm="treatment")
    store.apply(
        [
            make_change("forget_namespace", namespace)
            for namespace in trial.namespaces("ann").values()
        ]
    )
    assert trial.report().control.turns + trial.report().treatment.turns == 0
