"""The loop on a real memory: after lessons, in maintenance, asked for; brain death is survived."""

from copy import copy

import pytest
import sqlalchemy as sa
import tables as s

from crabpath_retrievers import Feedback, MemoryMaintenance, Settings
from crabpath_retrievers.config import AutotuneSettings, HealthSettings, LearningSettings
from crabpath_retrievers.errors import NotFoundError, StoreError
from crabpath_retrievers.parts.operation.maintenance import Autotuner
from tests.seams import get_services, make_change

TOPICS = 14
AUTOTUNE = AutotuneSettings(enabled=True)
WIDE = {"avg_nodes_fired_per_query": (0.0, 24.0), "proto_promotion_rate": (0.0, 1.0)}
FORGETFUL = LearningSettings(half_life=20.0)


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
        plain.append(len(wanted & set(memory.index.search(memory.embedder.query(query), 2))))
        memory.record(Feedback(turn.id, 1.0, used=sorted(wanted), namespace=namespace))
    return ours, plain


@pytest.fixture(scope="module")
def open_dying(grow):
    """Opens a memory that dies of its half-life; nobody has looked yet."""
    return grow(lambda memory: stream(memory, 60), learning=FORGETFUL)


@pytest.fixture(scope="module")
def open_well(grow):
    """Opens a memory that is well and was looked at twice."""
    return grow(lambda memory: stream(memory, 50), autotune=AUTOTUNE)


def let_all_fade(memory):
    """Somebody sets the half-life to 20, and much is learned."""
    memory.maintenance.set_knobs("ann", half_life=20)
    memory.store.apply([make_change("advance_clock", "ann", exponent=9.0)])
    memory.retrieve("question1", namespace="ann")


def is_alive(memory):
    return memory.maintenance.health("ann", record=False)["dormant_pct"].in_range


@pytest.mark.slow
def test_brain_death_is_seen_before_it_comes(open_memory):
    """A half-life of 20 makes a memory dormant (CrabPath paper); the autotuner prevents it.

    Answers are never worse than plain search.
    """
    with open_memory(learning=FORGETFUL, autotune=AUTOTUNE) as memory:
        found = stream(memory, 125)
        looks = memory.maintenance.health_history("ann")
        assert len(looks) == 5
        assert all((one["dormant_pct"].value or 0.0) <= 0.95 for one in looks)
        assert is_alive(memory) is True
        assert memory.maintenance.knobs("ann") != memory.settings.knobs
    assert all(ours >= plain for ours, plain in zip(*found, strict=True))


def test_what_will_be_dormant_at_the_next_look_counts(open_memory):
    with open_memory(learning=FORGETFUL) as memory:
        stream(memory, 25)
        report = memory.maintenance.health("ann")
        tuned = memory.maintenance.tune("ann", dry_run=True)
    assert report["dormant_pct"].in_range is True
    assert "dormant_pct" in {one.metric for one in tuned.adjustments}


@pytest.mark.slow
def test_the_brake_goes_back_to_the_knobs_that_were_good(open_well):
    """The next look finds death."""
    with open_well() as memory:
        let_all_fade(memory)
        dry = memory.maintenance.tune("ann", dry_run=True)
        half_life = memory.maintenance.knobs("ann").half_life
        assert (dry.brake_applied, dry.run, half_life) == (True, "", 20.0)
        report = memory.maintenance.tune("ann")
        assert report.adjustments == dry.adjustments
        assert report.to_dict()["braked"]
        assert memory.maintenance.knobs("ann") == report.knobs == memory.settings.knobs
        assert is_alive(memory) is False
        memory.maintenance.undo(report.run)
        assert memory.maintenance.knobs("ann").half_life == 20.0
        with pytest.raises(NotFoundError):
            memory.maintenance.undo("another")


@pytest.mark.slow
def test_a_dry_run_changes_nothing_and_finds_what_the_run_will_find(open_dying):
    with open_dying() as memory:

        def everything():
            with memory.store.connect() as connection:
                return {t: connection.execute(sa.select(t)).all() for t in s.metadata.sorted_tables}

        before = everything()
        dry = memory.maintenance.tune("ann", dry_run=True)
        step = memory.maintenance.run(["autotune"], dry_run=True).steps[0]
        assert everything() == before
        assert step.changed == len(dry.adjustments) == 2
        assert memory.maintenance.run(["autotune"]).steps[0].changed == 2
        note = memory.maintenance.tune("ann").note
        assert note.startswith("there were no queries and no feedback")


def test_in_maintenance_it_is_off_unless_switched_on_and_is_taken_back(open_dying):
    with open_dying() as memory:
        (step,) = [one for one in memory.maintenance.run().steps if one.step == "autotune"]
        assert (step.changed, dict(step.detail)) == (0, {"off": 1})
        for feedbacks, changed in ((1000, 0), (50, 2), (50, 0)):
            rules = AutotuneSettings(enabled=True, every_feedbacks=feedbacks)
            services = copy(get_services(memory))
            services.settings = Settings(learning=FORGETFUL, autotune=rules)
            report = MemoryMaintenance(services).run(["health", "autotune"])
            assert report.steps[1].changed == changed
            if changed:
                assert memory.maintenance.knobs("ann").half_life == 40.0
                done = report.run
        memory.maintenance.undo(done)
        assert memory.maintenance.knobs("ann").half_life == 20.0


@pytest.mark.slow
def test_namespaces_are_kept_apart(open_well):
    """Ann's memory is dying, Bob's is well: his knobs stay, and so does what is known of them."""
    with open_well() as memory:
        let_all_fade(memory)
        stream(memory, 25, "ann")
        stream(memory, 25, "bob")
        assert memory.maintenance.knobs("ann").half_life > 20
        assert memory.store.learned.get_tuning("bob")[0] is None
        assert memory.maintenance.knobs("bob") == memory.settings.knobs
        assert len(memory.maintenance.health_history("ann")) == 3
        assert len(memory.maintenance.health_history("bob")) == 1


async def test_what_may_not_be_tuned_stays(open_dying):
    """A frozen namespace does; one that was never used is not made. Async is the same."""
    with open_dying() as memory:
        found = await memory.aio.maintenance.tune("ann", dry_run=True)
        assert found == memory.maintenance.tune("ann", dry_run=True)
        memory.namespaces.freeze("ann")
        assert memory.maintenance.tune("ann").note == "the namespace is frozen"
        assert memory.maintenance.tune("nobody").adjustments == ()
        assert "nobody" not in memory.info()["namespaces"]


def test_a_lesson_stands_whatever_becomes_of_the_knobs(open_memory, monkeypatch, caplog):
    """A store that fails meanwhile is reported in the log."""

    def fail(*_args, **_given):
        msg = "the disk is full"
        raise StoreError(msg)

    monkeypatch.setattr(Autotuner, "run", fail)
    with open_memory(autotune=AutotuneSettings(enabled=True, every_feedbacks=1)) as memory:
        stream(memory, 1)
        assert memory.store.learned.get_state("ann").version == 1
    assert "the disk is full" in caplog.text


@pytest.mark.slow
def test_the_ranges_decide(open_well):
    """With other ranges the same memory is ill, and knobs turn the other way."""
    with open_well(health=HealthSettings(ranges={**WIDE, "dormant_pct": (0.7, 0.95)})) as memory:
        stream(memory, 10)
        report = memory.maintenance.tune("ann")
        turned = {one.knob: one.direction for one in report.adjustments}
        assert turned == {"half_life": -1, "hebbian_rate": -1}
        assert memory.maintenance.knobs("ann").half_life == 1000.0
