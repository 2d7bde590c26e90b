"""Maintenance on real stores: what goes, what stays, what comes back."""

import threading

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock, KeepFeedback, WeightDelta
from crabpath_retrievers.core.changes.maintenance import DroppedWeight, DropWeights
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import (
    InvalidInputError,
    NotFoundError,
    StoreError,
    StoreLockedError,
)
from crabpath_retrievers.maintenance import MAINTENANCE_STEPS, MaintenanceRunner

pytestmark = pytest.mark.both_databases

CO_USED, INHIBITS, MENTION = EdgeKind.CO_USED, EdgeKind.INHIBITS, EdgeKind.MENTION


def taught(memory, namespace="ann"):
    """A faded edge, one that inhibits, a strong one, and a mention moved long ago."""
    keys = memory.store.learned.keys([f"d{n}" for n in range(12)])
    deltas = [
        WeightDelta(keys["d0"], keys["d5"], CO_USED, 0.2),
        WeightDelta(keys["d0"], keys["d6"], INHIBITS, -0.9),
        WeightDelta(keys["d0"], keys["d7"], CO_USED, 0.9),
        WeightDelta(keys["d0"], keys["d1"], MENTION, 0.01),
    ]
    memory.store.apply(
        [AdjustWeights(namespace, tuple(deltas), "cause"), AdvanceClock(namespace, exponent=2.0)]
    )
    return keys


def weights(memory, namespace="ann"):
    """Learned weights of the first page, by kind and target."""
    keys = memory.store.learned.keys([f"d{n}" for n in range(12)])
    names = {key: node for node, key in keys.items()}
    found = memory.store.learned.weights(namespace, [keys["d0"]])
    return {(kind.label, names[target]): weight for (_, target, kind), weight in found.items()}


def rows(memory, table):
    """Every row of a table."""
    with memory.store.open_reader() as connection:
        return sorted(tuple(row) for row in connection.execute(sa.select(table)))


def test_faded_weights_go_and_come_back(memory):
    """To the last bit, with what moved them; a second run finds nothing."""
    taught(memory)
    before = rows(memory, s.overlay), rows(memory, s.weight_changes)
    report = memory.maintenance.run(["fade", "prune"])
    assert [(step.step, step.changed) for step in report.steps] == [("fade", 1), ("prune", 1)]
    assert set(weights(memory)) == {("inhibits", "d6"), ("co_used", "d7")}
    assert memory.maintenance.run(["fade", "prune"]).total_changed == 0
    memory.maintenance.undo(report.run)
    assert (rows(memory, s.overlay), rows(memory, s.weight_changes)) == before
    with pytest.raises(NotFoundError, match="no maintenance"):
        memory.maintenance.undo("another")


def test_a_dry_run_changes_nothing(memory):
    """And finds what the run will find."""
    taught(memory)
    with memory.store.open_reader() as connection:
        before = {t: connection.execute(sa.select(t)).all() for t in s.metadata.sorted_tables}
    dry = memory.maintenance.run(dry_run=True)
    with memory.store.open_reader() as connection:
        after = {t: connection.execute(sa.select(t)).all() for t in s.metadata.sorted_tables}
    assert after == before
    assert (dry.run, dry.dry_run) == ("", True)
    real = memory.maintenance.run()
    assert [step.changed for step in real.steps] == [step.changed for step in dry.steps]
    assert dry.total_changed > 0


def test_what_was_touched_since_it_was_read_stays(memory):
    """A learner that comes in between wins."""
    keys = taught(memory)
    (old,) = [row for row in rows(memory, s.overlay) if row[2] == keys["d5"]]
    again = WeightDelta(keys["d0"], keys["d5"], CO_USED, 0.1)
    memory.store.apply([AdjustWeights("ann", (again,), "later")])
    memory.store.apply([DropWeights("run", "ann", (DroppedWeight(*old[1:4], old[5]),))])
    assert ("co_used", "d5") in weights(memory)


def test_what_was_learned_since_stays_when_it_is_undone(memory):
    """A weight that stands again is left alone; one whose node is gone is left out."""
    keys = taught(memory)
    run = memory.maintenance.run(["prune"]).run
    again = WeightDelta(keys["d0"], keys["d5"], CO_USED, 0.3)
    memory.store.apply([AdjustWeights("ann", (again,), "later")])
    memory.maintenance.undo(run)
    assert weights(memory)["co_used", "d5"] == pytest.approx(0.3)
    memory.store.apply([AdvanceClock("ann", exponent=5.0)])
    run = memory.maintenance.run(["prune"]).run
    memory.forget(ids=["d5"])
    memory.maintenance.undo(run)
    assert ("co_used", "d5") not in weights(memory)


def test_namespaces_are_kept_apart(memory):
    """One's clock does not fade another's weights."""
    taught(memory, "ann")
    keys = memory.store.learned.keys(["d0", "d5"])
    delta = WeightDelta(keys["d0"], keys["d5"], CO_USED, 0.04)
    memory.store.apply([AdjustWeights("bob", (delta,), "cause")])
    memory.maintenance.run(["prune"])
    assert ("co_used", "d5") in weights(memory, "bob")
    assert ("co_used", "d5") not in weights(memory, "ann")


def test_logs_are_bounded_and_what_waits_is_kept(memory):
    """Turns beyond the last ones go, but those of which feedback speaks that waits."""
    turns = [memory.retrieve(f"Page {n}", namespace="ann").turn.id for n in range(8)]
    memory.record(Feedback(turns[1], 1.0, used=["d1"]))
    waits = Feedback(turns[0], 1.0, used=["d0"])
    memory.store.apply([KeepFeedback(waits)])
    rules = MaintenanceSettings(max_turns=3, max_journal_rows=2)
    report = MaintenanceRunner(memory.store, Settings(maintenance=rules)).run(["compact"])
    (step,) = report.steps
    assert step.detail["turns"] == 4
    left = [turn for turn in turns if memory.store.turns.find(turn) is not None]
    assert left == [turns[0], *turns[5:]]
    assert len(memory.store.turns.journal()) <= rules.max_journal_rows
    assert (
        MaintenanceRunner(memory.store, Settings(maintenance=rules)).run(["compact"]).total_changed
        == 0
    )


def test_lonely_nodes_are_connected_and_parted_again(memory):
    """Only those that had no edge, with what is near."""
    kinds = memory.settings.replace(maintenance=MaintenanceSettings(connect_similarity=0.0))
    with memory.store._engine.begin() as connection:
        connection.execute(s.edges.delete())
    upkeep = MaintenanceRunner(memory.store, kinds)
    report = upkeep.run(["connect"])
    (step,) = report.steps
    assert (step.looked, step.changed) == (12, 12)
    assert upkeep.run(["connect"]).total_changed == 0
    upkeep.undo(report.run)
    with memory.store.open_reader() as connection:
        assert not connection.execute(sa.select(s.edges)).all()


def test_started_twice(memory):
    """The second is told so; nothing waits."""
    held, done = threading.Event(), threading.Event()

    def other():
        with memory.store.hold_ingest_lock():
            held.set()
            done.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    held.wait(10)
    try:
        with pytest.raises(StoreLockedError, match="try again later"):
            memory.maintenance.run()
    finally:
        done.set()
        thread.join()
    memory.maintenance.run()


def test_a_damaged_journal_is_told(memory):
    """And nothing of it is taken back."""
    taught(memory)
    run = memory.maintenance.run(["fade", "prune"]).run
    with memory.store._engine.begin() as connection:
        first = sa.select(sa.func.min(s.journal.c.sequence)).where(
            s.journal.c.change == "drop_weights"
        )
        spoiled = s.journal.c.sequence == connection.scalar(first)
        connection.execute(s.journal.update().where(spoiled).values(inverse='{"overlay": [{"na'))
    before = rows(memory, s.overlay)
    with pytest.raises(StoreError, match="damaged"):
        memory.maintenance.undo(run)
    assert rows(memory, s.overlay) == before


@pytest.mark.parametrize("steps", [["sweep"], [], ["fade", "x" * 10_000]])
def test_unknown_steps_are_refused(memory, steps):
    """In one sentence that names those there are."""
    with pytest.raises(InvalidInputError, match=", ".join(MAINTENANCE_STEPS)):
        memory.maintenance.run(steps)


async def test_off_the_event_loop(memory):
    """The same report."""
    report = await memory.aio.maintenance.run(dry_run=True)
    assert [step.step for step in report.steps] == list(MAINTENANCE_STEPS)
    assert report.to_dict()["changed"] == report.total_changed


def test_answers_stay_as_they_were(memory):
    """What is shed was not noticed by any walk."""
    taught(memory)
    asked = [f"Text {n} of Page {n}" for n in range(12)]

    def found():
        answers = [memory.retrieve(q, namespace="ann", k=5, record=False) for q in asked]
        return [[(item.node, item.probability) for item in a.turn.returned] for a in answers]

    before = found()
    memory.maintenance.run(["fade", "prune"])
    for ours, theirs in zip(found(), before, strict=True):
        assert [node for node, _ in ours] == [node for node, _ in theirs]
        assert [p for _, p in ours] == pytest.approx([p for _, p in theirs], abs=0.05)


def test_an_empty_memory(location):
    """Nothing to do."""
    vectors = DeterministicFakeEmbedding(size=4)
    store = InMemoryVectorStore(vectors)
    with CrabPath.open(location, embeddings=vectors, vectors=store) as empty:
        assert empty.maintenance.run().total_changed == 0
