"""``crabpath maintain``."""

import json

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app
from crabpath_retrievers.core.changes import AdjustWeights, AdvanceClock, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind


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


def test_merge_beside_and_split_with_an_embedder(tmp_path):
    """The first needs the graph store alone; the second opens the memory."""
    text = "Press the release button when the build is green."
    manual = f"# Cats\n\n{'Cats sleep on roofs. ' * 160}\n\n# Dogs\n\n{'Dogs bark. ' * 300}"
    given = {"a": text, "b": f"{text}\n", "manual": manual}
    with CrabPath.open(tmp_path / "memory") as memory:
        memory.add_documents([Document(t, id=name) for name, t in given.items()], split=False)
    whole = json.loads(run("--store", tmp_path / "memory", "--json")[1])
    found = {step["step"]: step for step in whole["steps"]}
    assert [step["step"] for step in whole["steps"]][4:6] == ["merge", "split"]
    assert (found["merge"]["changed"], found["split"]["detail"]) == (1, {"off": 1})
    code, output = run("--store", tmp_path / "memory", "--json", "--step", "split")
    split = json.loads(output[output.index("{") :])
    assert (code, split["changed"]) == (0, 1)
    for report in (split, whole):
        assert run("--store", tmp_path / "memory", "--undo", report["run"])[0] == 0
    with CrabPath.open(tmp_path / "memory") as memory:
        assert memory.index.count() == memory.info()["nodes"] == 3
        assert memory.info()["replaced"] == 0
