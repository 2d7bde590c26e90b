"""The loop on a real memory: after lessons, in maintenance, asked for; brain death is survived."""

import pytest
import sqlalchemy as sa
import tables as s

from crabpath_retrievers import Feedback
from crabpath_retrievers.config import AutotuneSettings, HealthSettings, LearningSettings
from crabpath_retrievers.core.changes import AdvanceClock
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.maintenance import MaintenanceRunner

TOPICS = 14


def stream(memory, turns, namespace="ann", begin=0):
    """Questions in turn, each of which needs two pages, one of them less like it than two others.

    Returns how many of both stood first in each answer, and how many plain search puts there.
    """
    ours, plain = [], []
    for number in range(begin, begin + turns):
        topic = number % TOPICS
        query, wanted = f"question{topic} guide{topic}", {f"a{topic}", f"b{topic}"}
        turn = memory.retrieve(query, k=4, namespace=namespace).turn
        ours.append(len(wanted & {item.node for item in turn.returned[:2]}))
        vector = memory.embedder.query(query)
        plain.append(len(wanted & set(memory.index.search(vector, 2))))
        feedback = Feedback(turn.id, 1.0, used=sorted(wanted), namespace=namespace)
        memory.record(feedback)
    return ours, plain


def looks(memory, namespace="ann"):
    """Dormant share and half-life at each look, oldest first."""
    return [report["dormant_pct"].value for report in memory.maintenance.health_history(namespace)]


AUTOTUNE = AutotuneSettings(enabled=True)


@pytest.mark.slow
def test_brain_death_is_seen_before_it_comes(open_memory):
    """A half-life of 20 makes a memory dormant (CrabPath paper); the autotuner prevents it.

    Answers are never worse than plain search.
    """
    learning = LearningSettings(half_life=20.0)
    with open_memory(learning=learning, autotune=AUTOTUNE) as memory:
        found = stream(memory, 125)
        dormant = looks(memory)
        knobs = memory.maintenance.knobs("ann")
        well = memory.maintenance.health("ann", record=False)["dormant_pct"]
    assert len(dormant) == 5
    assert all(share is None or share <= 0.95 for share in dormant)
    assert well.in_range is True
    assert knobs.half_life > 20.0
    assert all(ours >= plain for ours, plain in zip(*found, strict=True))


@pytest.mark.slow
def test_a_dead_memory_comes_back_within_a_hundred_turns(open_memory):
    """Nobody looked while it died."""
    with open_memory(learning=LearningSettings(half_life=20.0)) as memory:
        stream(memory, 100)
        assert memory.maintenance.health("ann", record=False)["dormant_pct"].in_range is False
        for begin in range(100, 200, 25):
            memory.maintenance.tune("ann")
            ours, plain = stream(memory, 25, begin=begin)
            assert sum(ours) >= sum(plain)
        assert memory.maintenance.health("ann", record=False)["dormant_pct"].in_range is True
        assert memory.maintenance.knobs("ann").half_life > 20.0


@pytest.mark.slow
def test_without_it_the_memory_stays_dead(open_memory):
    """What the test before has mended, does not mend itself."""
    with open_memory(learning=LearningSettings(half_life=20.0)) as memory:
        stream(memory, 100)
        assert looks(memory) == []
        assert memory.maintenance.health("ann")["dormant_pct"].in_range is False
        assert memory.maintenance.knobs("ann").half_life == 20.0


def test_the_brake_on_a_memory_that_was_well(open_memory):
    """Somebody sets the half-life to 20: the next look finds death, and what was good."""
    with open_memory(autotune=AUTOTUNE) as memory:
        stream(memory, 50)
        assert memory.maintenance.knobs("ann") == memory.settings.knobs
        memory.maintenance.set_knobs("ann", half_life=20)
        memory.store.apply([AdvanceClock("ann", exponent=9.0)])
        memory.retrieve("question1", namespace="ann")
        dry = memory.maintenance.tune("ann", dry_run=True)
        assert (dry.brake_applied, dry.run, memory.maintenance.knobs("ann").half_life) == (
            True,
            "",
            20.0,
        )
        report = memory.maintenance.tune("ann")
        assert report.adjustments == dry.adjustments
        assert report.to_dict()["braked"]
        assert memory.maintenance.knobs("ann") == report.knobs == memory.settings.knobs
        assert (report.snapshot, report.restored) == (None, False)
        memory.maintenance.undo(report.run)
        assert memory.maintenance.knobs("ann").half_life == 20.0


@pytest.mark.parametrize("restore", [False, True])
def test_the_brake_and_snapshots(open_memory, restore):
    """One from then is told of; with ``restore`` one is kept, and gone back to."""
    rules = AutotuneSettings(enabled=True, restore_snapshot=restore)
    with open_memory(autotune=rules) as memory:
        stream(memory, 25)
        mine = memory.namespaces.snapshot("ann") if not restore else None
        stream(memory, 25, begin=25)
        memory.maintenance.set_knobs("ann", half_life=20)
        memory.store.apply([AdvanceClock("ann", exponent=9.0)])
        memory.retrieve("question1", namespace="ann")
        report = memory.maintenance.tune("ann")
        assert report.brake_applied
        assert report.restored is restore
        assert (report.snapshot == mine) is not restore
        assert memory.maintenance.health("ann")["dormant_pct"].in_range is restore
        kept = [one.name for one in memory.namespaces.snapshots("ann")]
        assert sorted(map(str, kept)) == (["None", "autotune: last good"] if restore else ["None"])


def test_a_dry_run_changes_nothing(open_memory):
    """And finds what the run will find; asked for in maintenance it is the same."""
    with open_memory(learning=LearningSettings(half_life=20.0)) as memory:
        stream(memory, 60)

        def everything():
            with memory.store.open_reader() as connection:
                return {t: connection.execute(sa.select(t)).all() for t in s.metadata.sorted_tables}

        before = everything()
        dry = memory.maintenance.tune("ann", dry_run=True)
        step = memory.maintenance.run(["autotune"], dry_run=True).steps[0]
        assert everything() == before
        assert step.changed == len(dry.adjustments) == 2
        assert memory.maintenance.run(["autotune"]).steps[0].changed == 2
        assert memory.maintenance.tune("ann").note.startswith(
            "there were no queries and no feedback"
        )


def test_in_maintenance(open_memory):
    """Off unless it is switched on; taken back with the rest of it."""
    learning, on = (
        LearningSettings(half_life=20.0),
        AutotuneSettings(enabled=True, every_feedbacks=1000),
    )
    with open_memory(learning=learning) as memory:
        stream(memory, 60)
        (step,) = [one for one in memory.maintenance.run().steps if one.step == "autotune"]
        assert (step.changed, dict(step.detail)) == (0, {"off": 1})
        every = AutotuneSettings(enabled=True, every_feedbacks=50)
        for rules, changed in ((on, 0), (every, 2), (every, 0)):
            given = memory.settings.__class__(learning=learning, autotune=rules)
            report = MaintenanceRunner(memory.store, given).run(["health", "autotune"])
            assert report.steps[1].changed == changed
            if changed:
                assert memory.maintenance.knobs("ann").half_life == 40.0
                done = report.run
        memory.maintenance.undo(done)
        assert memory.maintenance.knobs("ann").half_life == 20.0


def test_namespaces_are_kept_apart(open_memory):
    """Ann's memory is dying, Bob's is well: his knobs stay, and so does what is known of them."""
    with open_memory(autotune=AUTOTUNE) as memory:
        memory.maintenance.set_knobs("ann", half_life=20)
        stream(memory, 75, "ann")
        stream(memory, 25, "bob")
        assert memory.maintenance.knobs("ann").half_life > 20.0
        assert memory.store.learned.get_tuning("bob")[0] is None
        assert memory.maintenance.knobs("bob") == memory.settings.knobs
        assert len(looks(memory, "ann")) == 3
        assert len(looks(memory, "bob")) == 1


def test_a_frozen_namespace_stays_as_it_is(open_memory):
    """It answers with what it knows; one that was never used is not made."""
    with open_memory(learning=LearningSettings(half_life=20.0)) as memory:
        stream(memory, 60)
        memory.namespaces.freeze("ann")
        assert memory.maintenance.tune("ann").note == "the namespace is frozen"
        assert memory.maintenance.tune("nobody").adjustments == ()
        assert "nobody" not in memory.info()["namespaces"]


async def test_off_the_event_loop(open_memory):
    """The same report."""
    with open_memory(learning=LearningSettings(half_life=20.0)) as memory:
        stream(memory, 60)
        assert await memory.aio.maintenance.tune("ann", dry_run=True) == memory.maintenance.tune(
            "ann", dry_run=True
        )


def test_rails_that_the_settings_do_not_keep_to(open_memory):
    """Asked for nevertheless, it is refused in one sentence."""
    with open_memory(autotune=AutotuneSettings.preset("paper")) as memory:
        stream(memory, 2)
        with pytest.raises(InvalidInputError, match="half_life must be a number from 20 to 200"):
            memory.maintenance.tune("ann")
        with pytest.raises(NotFoundError):
            memory.maintenance.undo("another")


def test_a_lesson_stands_whatever_becomes_of_the_knobs(open_memory, monkeypatch, caplog):
    """A store that fails meanwhile is told in the log."""
    from crabpath_retrievers.errors import StoreError
    from crabpath_retrievers.maintenance.autotune import Autotuner

    def fails(*_args, **_given):
        msg = "the disk is full"
        raise StoreError(msg)

    monkeypatch.setattr(Autotuner, "run", fails)
    with open_memory(autotune=AutotuneSettings(enabled=True, every_feedbacks=1)) as memory:
        stream(memory, 1)
        assert memory.store.learned.get_state("ann").version == 1
    assert "the disk is full" in caplog.text


def test_the_ranges_decide(open_memory):
    """With other ranges the same memory is ill, and knobs turn the other way."""
    ranges = {"avg_nodes_fired_per_query": (0.0, 24.0), "proto_promotion_rate": (0.0, 1.0)}
    health = HealthSettings(ranges={**ranges, "dormant_pct": (0.7, 0.95)})
    with open_memory(health=health) as memory:
        stream(memory, 60)
        report = memory.maintenance.tune("ann")
        turned = {one.knob: one.direction for one in report.adjustments}
        assert turned == {"half_life": -1, "hebbian_rate": -1}
        assert memory.maintenance.knobs("ann").half_life == 1000.0
