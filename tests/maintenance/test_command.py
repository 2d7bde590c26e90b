"""``crabpath maintain``."""

import json

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.changes import AdjustWeights, AdvanceClock, WeightDelta
from crabpath_retrievers.cli import app
from crabpath_retrievers.graph import EdgeKind


def run(*arguments):
    """Exit code and output."""
    done = CliRunner().invoke(app, ["maintain", *map(str, arguments)])
    return done.exit_code, done.output


@pytest.fixture
def place(tmp_path):
    """A memory with one faded edge."""
    vectors = DeterministicFakeEmbedding(size=8)
    with CrabPath.open(tmp_path / "memory", embeddings=vectors) as memory:
        memory.add_documents([Document("One.", id="a"), Document("Two.", id="b")], split=False)
        one, two = memory.store.learned.keys(["a", "b"]).values()
        delta = WeightDelta(one, two, EdgeKind.CO_USED, 0.1)
        memory.store.apply([AdjustWeights("ann", (delta,), "x"), AdvanceClock("ann", exponent=2.0)])
    return tmp_path / "memory"


def test_look_do_and_undo(place):
    """The figures are the same for people and programs."""
    code, output = run("--store", place, "--dry-run")
    assert (code, "would change" in output) == (0, True)
    code, output = run("--store", place, "--json", "--step", "prune")
    report = json.loads(output)
    assert (code, report["changed"], report["dry_run"]) == (0, 1, False)
    assert run("--store", place, "--undo", report["run"])[0] == 0
    again = json.loads(run("--store", place, "--json", "--step", "prune")[1])
    assert again["changed"] == 1


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--every", "soon"], "such as 30m"),
        (["--every", "0s"], "such as 30m"),
        (["--step", "sweep"], "choose among"),
        (["--undo", "nobody"], "no maintenance"),
    ],
)
def test_unusable_input_is_told(place, given, says):
    """In a sentence, without a traceback."""
    code, output = run("--store", place, *given)
    assert code in {1, 2}
    assert says in " ".join(output.split())


def test_a_memory_that_does_not_exist_is_not_made(tmp_path):
    """A mistyped path."""
    code, _ = run("--store", tmp_path / "none")
    assert code != 0
    assert not (tmp_path / "none").exists()
