"""``crabpath regions`` as a user runs it, beside a server that holds the vectors."""

import json
from collections import Counter
from importlib.util import find_spec

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app

ODD = "[red]$x_$ 港 \u202e👩‍🚀 <b>"
WAY = ["text 3", "text 50", "text 90"]


def opened(location, tmp_path, texts=120):
    """A memory with a few hubs, at a directory or a URL."""
    vectors = str(tmp_path / "vectors") if "://" in location else None
    embeddings = DeterministicFakeEmbedding(size=16)
    memory = CrabPath.open(location, embeddings=embeddings, vectors=vectors)
    documents = [
        Document(f"text {n}", id=f"d{n}", metadata={"title": f"{ODD} {n}"}) for n in range(texts)
    ]
    memory.add_documents(documents, split=False, progress=None)
    return memory


@pytest.fixture
def memory(location, tmp_path):
    """One that learned from three episodes of Ann's, and stays open."""
    with opened(location, tmp_path) as made:
        for reward, task in ((1.0, "clean"), (1.0, "clean"), (-1.0, "heat")):
            actions = ["find", "take" if reward > 0 else ODD]
            made.regions.learn_episode(
                texts=WAY, actions=actions, reward=reward, task_type=task, namespace="ann"
            )
        yield made


@pytest.fixture
def cli(memory, location):
    """Runs the command on that memory, for Ann."""

    def run(*given, namespace="ann"):
        more = ["--namespace", namespace, "--store", location]
        return CliRunner().invoke(app, ["regions", *given, *more])

    return run


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def sentence(result):
    """What it complains about, on one line."""
    assert result.exit_code == 2, result.output
    assert "Traceback" not in result.stderr
    return " ".join(result.stderr.split())


def test_tells_what_the_transition_model_knows(cli, memory):
    """Quality, actions and sizes are those of the library; most visited first."""
    found, model = read(cli("--json")), memory.regions.mdp(namespace="ann")
    sizes = Counter(memory.regions.assignments().values())
    assert (found["level"], found["hubs"]) == (model.level, len(model.regions))
    assert {row["region"] for row in found["regions"]} == set(model.visited)
    for row in found["regions"]:
        assert row["quality"] == model.region_quality(row["region"])
        assert row["size"] == sizes[row["region"]]
        assert row["actions"] == [s._asdict() for s in model.best_action(row["region"])]
    came = [row["came"] for row in found["regions"]]
    assert came == sorted(came, reverse=True)
    assert {a["action"]: a["trials"] for a in found["actions"]} == {"find": 3, "take": 2, ODD: 1}


def test_tells_where_steps_led(cli, memory):
    """Every episode went from the first region to the second."""
    rows = {row["region"]: row for row in read(cli("--json"))["regions"]}
    start, then, _ = map(memory.regions.assign, WAY)
    assert rows[start]["leads"][0]["region"] == then
    assert sum(lead["share"] for lead in rows[start]["leads"]) == pytest.approx(1.0)


def test_a_type_of_task_is_shown_alone(cli):
    """Two of the three episodes were about cleaning."""
    found = read(cli("--json", "--task", "clean"))
    assert max(row["came"] for row in found["regions"]) == 2
    assert {a["action"]: a["trials"] for a in found["actions"]} == {"find": 2, "take": 2, ODD: 0}


def test_most_and_no_sizes(cli):
    """Few rows, and without reading the corpus."""
    (row,) = read(cli("--json", "--most", "1", "--no-sizes"))["regions"]
    assert row["size"] is None


def test_a_table_for_people_in_which_titles_are_only_titles(cli):
    """Markup in a title, or in the name of an action, is shown as it is."""
    shown = cli("--most", "2").stdout
    assert "All regions together" in shown
    assert "[red]" in shown
    assert "take" in shown


def test_experience_stays_with_its_namespace(cli):
    """Bob is told that he has none."""
    assert "has no experience yet" in sentence(cli(namespace="bob"))
    assert "has no experience yet" in sentence(cli("--json", namespace="nobody at all"))


@pytest.mark.parametrize("ending", ["png", "svg"])
def test_a_plot_of_odd_titles(cli, tmp_path, ending):
    """Neither formulas nor letters that the font lacks stop it."""
    file = tmp_path / f"regions.{ending}"
    assert cli("--plot", str(file)).exit_code == 0
    head = {"png": b"\x89PNG", "svg": b"<?xml"}[ending]
    assert file.read_bytes().startswith(head)


@pytest.mark.parametrize(
    ("given", "complaint"),
    [
        (("--most", "0"), "--most must be at least 1"),
        (("--level", "0"), "level must be a whole number of at least 1"),
        (("--level", "99"), "level 99 has no hub"),
        (("--task", " "), "--task must be a text"),
        (("--task", "cook"), "known are clean, heat"),
        (("--plot", "nowhere/at/all.png"), "cannot be written"),
        (("--plot", "regions.docx"), "cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_told_in_a_sentence(cli, given, complaint):
    """And nothing else."""
    assert complaint in sentence(cli(*given))


def test_a_memory_too_small_for_regions_says_so(tmp_path):
    """Two hubs are the least."""
    with opened(str(tmp_path / "tiny"), tmp_path, texts=2):
        result = CliRunner().invoke(app, ["regions", "--store", str(tmp_path / "tiny")])
    assert "has no regions yet" in sentence(result)


def test_a_place_without_memory_stays_empty(tmp_path):
    """Looking creates nothing."""
    result = CliRunner().invoke(app, ["regions", "--store", str(tmp_path / "none")])
    assert "there is no memory" in sentence(result)
    assert not list(tmp_path.iterdir())


def test_a_plot_needs_the_extra(cli, monkeypatch):
    """The message says which."""
    hidden = "crabpath_retrievers.evaluation.requirements.find_spec"
    monkeypatch.setattr(hidden, lambda name: None if name == "matplotlib" else find_spec(name))
    result = cli("--plot", "x.png")
    assert result.exit_code == 1
    assert "crabpath-retrievers[local,eval]" in result.stderr.replace("\n", "")
