"""``crabpath tune``."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app
from crabpath_retrievers.config import LearningSettings


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
