"""The clock of the machine moves backwards: nothing is lost, and what came last stays last."""

import time

import pytest

from crabpath_retrievers import Feedback

DAY = 86_400.0


@pytest.fixture
def yesterday(monkeypatch):
    """Sets the clock back by a day when it is called."""
    now = time.time

    def _set():
        monkeypatch.setattr(time, "time", lambda: now() - DAY)

    return _set


def test_feedback_without_a_turn_says_what_to_do(memory, yesterday):
    """Which turns it is about cannot be told from times any more; with a turn id it is learned."""
    turn = memory.retrieve("pages").turn
    yesterday()
    receipt = memory.record(Feedback(None, 1.0))
    assert receipt.status == "refused"
    assert "(was the clock set back?): give the turn id" in receipt.note
    assert memory.record(Feedback(turn.id, 1.0)).status == "applied"


def test_the_latest_report_on_health_is_the_last_one(memory, yesterday):
    """In the order in which they were made, not in that of their times."""
    memory.retrieve("pages")
    memory.maintenance.health()
    yesterday()
    memory.retrieve("pages")
    latest = memory.maintenance.health()
    kept = memory.maintenance.health_history()
    assert [report.turn for report in kept] == [1, 2]
    assert kept[-1] == latest


def test_maintenance_runs_and_is_taken_back(memory, yesterday):
    """And so is feedback that was given tomorrow."""
    turn = memory.retrieve("pages").turn
    fed = memory.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
    yesterday()
    report = memory.maintenance.run()
    assert [step.step for step in report.steps][-1] == "compact"
    memory.undo(fed.feedback_id)
    assert memory.record(Feedback(turn.id, -1.0)).status == "applied"
