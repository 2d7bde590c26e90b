"""``crabpath maintain``."""

import json

import pytest
from langchain_core.documents import Document
from maintained import Bag, delta
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app
from crabpath_retrievers.vectors import embedder
from tests.seams import make_change


@pytest.fixture
def place(tmp_path, monkeypatch):
    """Two documents with a faded edge between them."""
    monkeypatch.setattr(embedder, "load_default_embeddings", Bag)
    with CrabPath.open(tmp_path / "memory") as memory:
        documents = [Document(f"Text {name}.", id=name) for name in "ab"]
        memory.add_documents(documents, split=False)
        faded = make_change("AdjustWeights", "ann", (delta(memory, "a", "b", 0.1),), "x")
        memory.store.apply([faded, make_change("advance_clock", "ann", exponent=2.0)])
    return tmp_path / "memory"


def run(place, *arguments):
    done = CliRunner().invoke(app, ["maintain", "--store", str(place), *arguments])
    return done.exit_code, done.output


def read(place, *arguments):
    code, output = run(place, "--json", *arguments)
    assert code == 0, output
    return json.loads(output[output.index("{") :])


@pytest.mark.slow
def test_look_do_and_undo(place):
    code, output = run(place, "--dry-run")
    assert (code, "would change" in output) == (0, True)
    pruned = read(place, "--step", "prune")
    assert (pruned["changed"], pruned["dry_run"]) == (1, False)
    assert run(place, "--undo", pruned["run"])[0] == 0
    whole = read(place)
    found = {step["step"]: step for step in whole["steps"]}
    assert found["prune"]["changed"] == 1
    assert run(place, "--undo", whole["run"])[0] == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["--every", "soon"], "such as 30m"),
        (["--every", "0s"], "such as 30m"),
        (["--step", "sweep"], "choose among"),
        (["--undo", "nobody"], "no maintenance"),
    ],
)
def test_unusable_input_is_refused_in_a_sentence(place, given, says):
    code, output = run(place, *given)
    assert code in {1, 2}
    assert says in " ".join(output.split())
    assert run(place / "none")[0] == 2
    assert not (place / "none").exists()
