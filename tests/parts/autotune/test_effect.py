"""Knobs take effect in learner, walk, health and maintenance; they are kept per namespace."""

import itertools
import json
import math

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.vectorstores import InMemoryVectorStore
from maintained import Bag
from typer.testing import CliRunner

from crabpath_retrievers import EdgeKind, Feedback
from crabpath_retrievers.cli import app
from crabpath_retrievers.config import AutotuneSettings, LearningSettings
from crabpath_retrievers.errors import ConflictError, InvalidInputError, StoreError
from tests.seams import make_change

ONCE = itertools.count(1)


def together(memory, number, namespace="ann"):
    turn = memory.retrieve(f"question{number} guide{number}", k=12, namespace=namespace).turn
    memory.record(Feedback(turn.id, 1.0, used=[f"a{number}", f"b{number}"], namespace=namespace))


def joint(memory, number, namespace="ann"):
    """Weight of the edge between the pages of a topic; None where there is none."""
    keys = memory.store.learned.keys([f"a{number}", f"b{number}"])
    found = memory.store.learned.weights(namespace, list(keys.values()))
    return found.get((keys[f"a{number}"], keys[f"b{number}"], EdgeKind.CO_USED))


def test_the_learner_reads_them(open_memory_anywhere):
    """Ann's half-life, step and threshold are hers, and go with her; Bob's are the settings'."""
    with open_memory_anywhere() as memory:
        memory.maintenance.set_knobs("ann", half_life=40, hebbian_rate=0.05, promotion_threshold=3)
        for name in ("ann", "bob"):
            for _ in range(2):
                together(memory, 1, name)
        assert joint(memory, 1, "ann") is None
        assert joint(memory, 1, "bob") == pytest.approx(0.37)
        together(memory, 1, "ann")
        assert joint(memory, 1, "ann") == pytest.approx(0.335)
        ann, bob = (memory.store.walk.get_clock(name).exponent for name in ("ann", "bob"))
        assert ann == pytest.approx(3 * math.log(2) / 40)
        assert bob == pytest.approx(2 * math.log(2) / 2000)
        memory.maintenance.set_knobs("bob", reflex=0.82)
        memory.forget(namespace="ann")
        assert memory.maintenance.knobs("ann") == memory.settings.knobs
        assert memory.maintenance.knobs("bob").reflex == 0.82


def test_the_walk_and_health_read_them(open_memory):
    with open_memory() as memory:
        keys = memory.store.learned.keys(["a1", "b9"])
        delta = make_change("WeightDelta", keys["a1"], keys["b9"], EdgeKind.CO_USED, 0.85)
        for name in ("ann", "bob"):
            memory.store.apply([make_change("AdjustWeights", name, (delta,))])
        memory.maintenance.set_knobs("ann", reflex=0.9)

        def reflexes(name):
            turn = memory.retrieve("question1 guide1", k=2, namespace=name, record=False).turn
            step = next(step for step in turn.steps if step.node == "a1")
            return step.reflexes

        assert (reflexes("ann"), reflexes("bob")) == ((), ("b9",))
        tiers = {name: memory.maintenance.health(name).edges["learned"] for name in ("ann", "bob")}
        assert tiers["ann"]["habitual"] == tiers["bob"]["reflex"] == 1


def test_they_follow_the_settings_until_they_are_turned(open_memory_anywhere):
    with open_memory_anywhere(learning=LearningSettings(half_life=500.0)) as memory:
        assert memory.maintenance.knobs("ann").half_life == 500.0
        run = memory.maintenance.set_knobs("ann", reflex=0.9)
        assert memory.store.learned.get_tuning("ann")[0] == '{"reflex": 0.9}'
        again = memory.maintenance.set_knobs("ann", reflex=0.82)
        memory.maintenance.undo(run)  # they were turned again since
        assert memory.maintenance.knobs("ann").reflex == 0.82
        memory.maintenance.undo(again)
        assert memory.maintenance.knobs("ann").reflex == 0.9
        memory.maintenance.reset_knobs("ann")
        assert memory.store.learned.get_tuning("ann") == (None, None)
        assert memory.maintenance.knobs("ann") == memory.settings.knobs


def test_every_change_is_journaled_and_two_at_once_conflict(open_memory_anywhere):
    """What changes nothing is not journaled; of the second one nothing is written."""
    with open_memory_anywhere() as memory:
        before = memory.store.learned.get_tuning("ann")
        for _ in range(2):
            memory.maintenance.set_knobs("ann", half_life=100)
        query = sa.select(s.journal).where(s.journal.c.change == "set_knobs")
        with memory.store.connect() as connection:
            (row,) = connection.execute(query).all()
        assert row.namespace == "ann"
        ((_, before_row, after_row),) = json.loads(row.inverse)["images"]
        assert before_row["knobs"] is None
        assert json.loads(after_row["knobs"]) == {"half_life": 100.0}
        with pytest.raises(ConflictError, match="met another change"):
            memory.store.apply(
                [make_change("set_knobs", "2", "ann", ('{"half_life": 200}', None), before)]
            )
        assert memory.maintenance.knobs("ann").half_life == 100.0


@pytest.mark.parametrize("text", ["{", "[1]", '{"half_life": 0}', '{"speed": 1}', '{"reflex": 2}'])
def test_damaged_knobs(open_memory, text, caplog):
    """Who asks for them is told the way out; answers and lessons go on without them."""
    text += " " * next(ONCE)  # it warns once of each
    with open_memory() as memory:
        memory.store.apply([make_change("set_knobs", "1", "ann", (text, None), (None, None))])
        with pytest.raises(StoreError, match="tune reset"):
            memory.maintenance.knobs("ann")
        together(memory, 1)
        assert memory.store.learned.get_state("ann").version == 1
        assert "ignored" in caplog.text
        memory.maintenance.reset_knobs("ann")
        assert memory.maintenance.knobs("ann") == memory.settings.knobs


def test_narrower_rails_later_leave_what_stands(open_memory):
    """A knob that was set before is used; it is turned back only step by step."""
    index = InMemoryVectorStore(Bag())
    with open_memory(index=index) as memory:
        memory.maintenance.set_knobs("ann", half_life=100)
    narrow = AutotuneSettings(rails={"half_life": (500, 4000)})
    with open_memory(index=index, autotune=narrow) as memory:
        assert memory.maintenance.knobs("ann").half_life == 100.0
        with pytest.raises(InvalidInputError):
            memory.maintenance.set_knobs("ann", half_life=100)
    paper = AutotuneSettings.preset("paper")  # the half-life of the settings is beyond its rails
    with (
        open_memory(index=index, autotune=paper) as memory,
        pytest.raises(InvalidInputError, match="half_life must be a number from 20 to 200"),
    ):
        memory.maintenance.tune("ann")


@pytest.fixture
def place(open_memory, tmp_path):
    with open_memory(learning=LearningSettings(half_life=500.0, apply="external")) as memory:
        memory.retrieve("question1", namespace="ann")
    return tmp_path / "memory"


def run(place, *arguments):
    given = ["tune", *arguments, "--store", str(place), "--namespace", "ann"]
    done = CliRunner().invoke(app, given)
    return done.exit_code, " ".join(done.output.split())


def test_set_look_reset_and_undo(place):
    code, output = run(place, "set", "reflex=0.9", "promotion_threshold=3", "--json")
    shown = json.loads(output)
    assert code == 0
    assert shown["knobs"] == {
        "half_life": 500.0,
        "promotion_threshold": 3,
        "hebbian_rate": 0.1,
        "reflex": 0.9,
    }
    assert json.loads(run(place, "run", "--dry-run", "--json")[1])["knobs"] == shown["knobs"]
    assert "half_life 500" in run(place, "run")[1]
    assert json.loads(run(place, "show", "--json")[1])["knobs"] == shown["knobs"]
    done = CliRunner().invoke(app, ["maintain", "--store", str(place), "--undo", shown["run"]])
    assert done.exit_code == 0
    assert json.loads(run(place, "run", "--dry-run", "--json")[1])["knobs"]["reflex"] == 0.8
    assert "promotion_threshold 2" in run(place, "reset")[1]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (("half_life=100", "reflex=0.99"), "reflex must be a number from 0.8 to 0.95, not 0.99"),
        (("half_life=long",), "such as half_life=500"),
        (("speed=1",), "there is no knob 'speed'"),
    ],
)
def test_unusable_input_is_refused_and_changes_nothing(place, given, says):
    code, output = run(place, "set", *given)
    assert (code, says in output) == (2, True)
    assert json.loads(run(place, "run", "--dry-run", "--json")[1])["knobs"]["half_life"] == 500.0
