"""Maintenance on real stores: what goes, what stays, what comes back."""

import threading
import time
from copy import copy

import pytest
import sqlalchemy as sa
import tables as s
from maintained import Bag, delta, key_of, weights
from tables import read_journal

from crabpath_retrievers import CrabPath, EdgeKind, Feedback, MemoryMaintenance, Settings
from crabpath_retrievers.config import MaintenanceSettings
from crabpath_retrievers.core.records import StoredWeight
from crabpath_retrievers.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreLockedError,
)
from crabpath_retrievers.parts.operation.maintenance import LearnedWeight
from tests.seams import get_engine, get_services, make_change

STEPS = ["health", "autotune", "fade", "prune", "connect", "compact"]
FADED = ("co_used", "d5")
TAUGHT = EdgeKind.TAUGHT


def with_rules(memory, rules):
    """The maintenance of a memory under other rules."""
    services = copy(get_services(memory))
    services.settings = Settings(maintenance=rules)
    return MemoryMaintenance(services)


def read(memory, *chosen):
    with memory.store.connect() as connection:
        return [sorted(map(tuple, connection.execute(sa.select(table)))) for table in chosen]


def adjust(memory, *edges, namespace="ann"):
    """Moves weights of the first page, given as target, weight and kind."""
    deltas = tuple(delta(memory, "d0", *edge) for edge in edges)
    memory.store.apply([make_change("AdjustWeights", namespace, deltas, "cause")])


def fade(memory, exponent=2.0):
    memory.store.apply([make_change("advance_clock", "ann", exponent=exponent)])


@pytest.fixture
def aged(memory):
    """A faded edge, one that inhibits, a strong one, and a mention moved long ago."""
    inhibits, mention = EdgeKind.INHIBITS, EdgeKind.MENTION
    adjust(memory, ("d5", 0.2), ("d6", -0.9, inhibits), ("d7", 0.9), ("d1", 0.01, mention))
    fade(memory)
    return memory


@pytest.mark.both_databases
def test_faded_weights_go_and_come_back(aged):
    """To the last bit, with what moved them; a second run finds nothing."""
    adjust(aged, ("d5", 0.04), namespace="bob")
    before = read(aged, s.overlay, s.weight_changes)
    report = aged.maintenance.run(["fade", "prune"])
    assert [(step.step, step.changed) for step in report.steps] == [("fade", 1), ("prune", 1)]
    assert set(weights(aged, "d0")) == {("inhibits", "d6"), ("co_used", "d7")}
    assert FADED in weights(aged, "d0", "bob")
    assert aged.maintenance.run(["fade", "prune"]).total_changed == 0
    aged.maintenance.undo(report.run)
    idle = aged.maintenance.run(["connect"])
    assert (idle.run, idle.total_changed) == ("", 0)
    aged.maintenance.undo(idle.run)  # nothing to undo
    assert read(aged, s.overlay, s.weight_changes) == before
    with pytest.raises(NotFoundError, match="no maintenance"):
        aged.maintenance.undo("another")


@pytest.mark.both_databases
def test_feedback_of_another_namespace_keeps_no_weight_from_coming_back(aged):
    """It may have the id of what moved the weight."""
    turn = aged.retrieve("Page 1", namespace="bob").turn.id
    aged.record(turn, outcome=True, used=["d1"], feedback_id="cause")
    aged.undo("cause", namespace="bob")
    before = read(aged, s.overlay, s.weight_changes)
    aged.maintenance.undo(aged.maintenance.run(["prune"]).run)
    assert read(aged, s.overlay, s.weight_changes) == before


@pytest.mark.slow
@pytest.mark.both_databases
async def test_a_dry_run_changes_nothing(aged):
    """And finds what the run will find; async it is the same report."""
    before = read(aged, *s.metadata.sorted_tables)
    dry = await aged.aio.maintenance.run(dry_run=True)
    assert read(aged, *s.metadata.sorted_tables) == before
    assert (dry.run, dry.dry_run) == ("", True)
    assert [step.step for step in dry.steps] == STEPS
    assert dry.to_dict()["changed"] == dry.total_changed > 0
    real = aged.maintenance.run()
    assert [step.changed for step in real.steps] == [step.changed for step in dry.steps]


def test_what_was_touched_since_it_was_read_stays(aged):
    (rows,) = read(aged, s.overlay)
    (old,) = [row for row in rows if row[2] == key_of(aged, "d5")]
    adjust(aged, ("d5", 0.1))
    read_before = LearnedWeight(*old[1:4], StoredWeight(old[4], old[5]), in_text=False)
    aged.store.apply([make_change("drop_weights", "run", "ann", (read_before,))])
    assert FADED in weights(aged, "d0")


@pytest.mark.both_databases
def test_what_was_learned_since_stays_when_it_is_undone(aged):
    """A weight that stands again is left alone; one whose node is gone is left out."""
    run = aged.maintenance.run(["prune"]).run
    adjust(aged, ("d5", 0.3))
    aged.maintenance.undo(run)
    assert weights(aged, "d0")[FADED] == pytest.approx(0.3)
    fade(aged, 5.0)
    run = aged.maintenance.run(["prune"]).run
    aged.forget(ids=["d5"])
    aged.maintenance.undo(run)
    assert FADED not in weights(aged, "d0")


@pytest.mark.slow
@pytest.mark.both_databases
def test_logs_are_bounded_and_what_waits_is_kept(memory):
    """Turns beyond the last ones go, but those of which feedback speaks that waits."""
    turns = [memory.retrieve(f"Page {n}", namespace="ann").turn.id for n in range(8)]
    memory.record(Feedback(turns[1], 1.0, used=["d1"]))
    memory.store.apply([make_change("KeepFeedback", Feedback(turns[0], 1.0, used=["d0"]))])
    rules = MaintenanceSettings(max_turns=3, max_journal_rows=2)
    upkeep = with_rules(memory, rules)
    (step,) = upkeep.run(["compact"]).steps
    assert step.detail["turns"] == 4
    left = [turn for turn in turns if memory.store.turns.find(turn) is not None]
    assert left == [turns[0], *turns[5:]]
    assert len(read_journal(memory.store)) <= rules.max_journal_rows
    assert upkeep.run(["compact"]).total_changed == 0


@pytest.mark.slow
@pytest.mark.both_databases
def test_episodes_that_nobody_added_to_for_long_are_forgotten(memory):
    """Undo of what is forgotten changes nothing, also where the question was asked again."""

    def learn(number):
        turn = memory.retrieve(f"Page {number}", namespace="ann").turn.id
        return memory.record(Feedback(turn, 1.0, used=[f"d{number}"])).feedback_id

    def read_queries():
        clock = memory.store.walk.get_clock("ann")
        return sorted(e.query for e in memory.store.learned.latest_episodes(clock.key, 9))

    first, *_ = [learn(number) for number in (0, 1, 2, 1, 3)]
    rules = MaintenanceSettings(max_feedback=3)
    upkeep = with_rules(memory, rules)
    assert upkeep.run(["compact"], dry_run=True).steps[0].detail["episodes"] == 1
    assert upkeep.run(["compact"]).steps[0].detail["episodes"] == 1
    assert upkeep.run(["compact"]).total_changed == 0
    assert read_queries() == ["Page 1", "Page 2", "Page 3"]
    again = learn(0)
    before = read(memory, s.episodes)
    assert "too old" in memory.undo(first).note
    assert read(memory, s.episodes) == before
    memory.undo(again)
    assert read_queries() == ["Page 1", "Page 2", "Page 3"]


@pytest.mark.both_databases
def test_lonely_nodes_are_connected_and_parted_again(memory):
    with get_engine(memory.store).begin() as connection:
        connection.execute(s.edges.delete())
    rules = MaintenanceSettings(connect_similarity=0.0)
    upkeep = with_rules(memory, rules)
    report = upkeep.run(["connect"])
    (step,) = report.steps
    assert (step.looked, step.changed) == (12, 12)
    assert upkeep.run(["connect"]).total_changed == 0
    upkeep.undo(report.run)
    assert read(memory, s.edges) == [[]]


@pytest.mark.both_databases
def test_a_second_one_at_the_same_time_is_refused(memory):
    held, done = threading.Event(), threading.Event()

    def hold():
        with memory.store.hold_ingest_lock():
            held.set()
            done.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(10)
    try:
        with pytest.raises(StoreLockedError, match="try again later"):
            memory.maintenance.run()
    finally:
        done.set()
        thread.join()
    memory.maintenance.run()


@pytest.mark.parametrize("batches", [0, 1, 3])
def test_what_is_interrupted_is_finished_by_the_next_run(memory, monkeypatch, batches):
    """Each batch is one transaction: what was done stays done; strong weights stay throughout."""
    names = [f"d{n}" for n in range(12)]
    adjust(
        memory, *((name, 0.1) for name in names[1:]), *((name, 0.9, TAUGHT) for name in names[2:])
    )
    fade(memory)
    rules = MaintenanceSettings(batch_size=2)
    upkeep = with_rules(memory, rules)
    apply, applied = memory.store.apply, []

    def apply_some(changes):
        if len(applied) == batches:
            raise KeyboardInterrupt
        applied.append(changes)
        return apply(changes)

    with monkeypatch.context() as patched:
        patched.setattr(memory.store, "apply", apply_some)
        with pytest.raises(KeyboardInterrupt):
            upkeep.run(["prune"])
    left = len(weights(memory, "d0"))
    assert left == 21 - sum(len(change.args[-1]) for changes in applied for change in changes)
    assert upkeep.run(["prune"]).total_changed == left - 10
    assert {kind for kind, _ in weights(memory, "d0")} == {"taught"}


def test_of_a_damaged_journal_nothing_is_taken_back(aged):
    run = aged.maintenance.run(["fade", "prune"]).run
    with get_engine(aged.store).begin() as connection:
        dropped = s.journal.c.change == "drop_weights"
        first = connection.scalar(sa.select(sa.func.min(s.journal.c.sequence)).where(dropped))
        spoiled = s.journal.update().where(s.journal.c.sequence == first)
        connection.execute(spoiled.values(inverse='{"overlay": [{"na'))
    before = read(aged, s.overlay)
    with pytest.raises(StoreError, match="damaged"):
        aged.maintenance.undo(run)
    assert read(aged, s.overlay) == before


def test_unknown_steps_are_refused_and_nothing_is_done_for_nobody():
    with CrabPath.open(embeddings=Bag()) as empty:
        assert empty.maintenance.run().total_changed == 0
        for steps in (["sweep"], [], ["fade", "x" * 10_000]):
            with pytest.raises(InvalidInputError, match=", ".join(STEPS)):
                empty.maintenance.run(steps)


def test_answers_stay_as_they_were(aged):
    def answer():
        for n in range(12):
            answer = aged.retrieve(f"Text {n} of Page {n}", namespace="ann", k=5, record=False)
            yield from ((item.node, item.probability) for item in answer.turn.returned)

    before = list(answer())
    aged.maintenance.run(["fade", "prune"])
    after = list(answer())
    assert [node for node, _ in after] == [node for node, _ in before]
    assert [p for _, p in after] == pytest.approx([p for _, p in before], abs=0.05)


@pytest.mark.slow
def test_the_clock_of_the_machine_moves_backwards(memory, monkeypatch):
    turn = memory.retrieve("pages", namespace="ann").turn
    fed = memory.record(Feedback(turn.id, 1.0, used=[turn.returned[0].node]))
    plain = memory.retrieve("pages").turn
    memory.maintenance.health()
    now = time.time
    monkeypatch.setattr(time, "time", lambda: now() - 86_400.0)
    receipt = memory.record(Feedback(None, 1.0))
    assert receipt.status == "refused"  # which turns it is about cannot be read from times
    assert "(was the clock set back?): give the turn id" in receipt.note
    assert memory.record(Feedback(plain.id, 1.0)).status == "applied"
    memory.retrieve("pages")
    latest, kept = memory.maintenance.health(), memory.maintenance.health_history()
    assert [report.turn for report in kept] == [1, 2]
    assert kept[-1] == latest
    assert memory.maintenance.run().steps[-1].step == "compact"
    memory.undo(fed.feedback_id)
    assert memory.record(Feedback(turn.id, -1.0)).status == "applied"
