"""``crabpath regions`` as a user runs it, beside a server that holds the vectors."""

import sys
from collections import Counter

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath

ODD = "[red]$x_$ 港 \u202e👩‍🚀 <b>"
WAY = ["d3", "d50", "d90"]


@pytest.fixture(scope="module")
def memory(tmp_path_factory):
    """One that learned from three episodes of Ann's among documents, and one in words.

    It stays open.
    """
    vectors = DeterministicFakeEmbedding(size=16)
    place = tmp_path_factory.mktemp("regions") / "memory"
    titles = [{"title": f"{ODD} {n}"} for n in range(120)]
    documents = [Document(f"text {n}", id=f"d{n}", metadata=m) for n, m in enumerate(titles)]
    with CrabPath.open(place, embeddings=vectors, vectors=InMemoryVectorStore(vectors)) as made:
        made.add_documents(documents, split=False, progress=None)
        for reward, task in ((1.0, "clean"), (1.0, "clean"), (-1.0, "heat")):
            actions = ["find", "take" if reward > 0 else ODD]
            made.regions.learn_episode(WAY, actions, reward, task_type=task, namespace="ann")
        seen = ["The oven is cold", "It is warm"]
        made.regions.learn_episode(
            texts=seen, actions=["heat", "bake"], reward=1.0, namespace="ann"
        )
        yield made


@pytest.fixture
def place(memory):
    """The directory of that memory."""
    return memory.store.name.removeprefix("sqlite:///").removesuffix("/graph.sqlite")


@pytest.fixture
def show(read, place):
    """What the command shows of that memory, for Ann."""
    return lambda *given: read("regions", *given, "-n", "ann", "--store", place)


def test_shows_what_the_transition_model_knows(show, memory):
    """Quality, actions and sizes are those of the library; most visited first."""
    found, model = show(), memory.regions.mdp(namespace="ann")
    sizes = Counter(memory.regions.assignments().values())
    assert (found["level"], found["hubs"]) == (model.level, len(model.regions))
    rows = {row["region"]: row for row in found["regions"]}
    assert set(rows) == set(model.visited_regions)
    for region, row in rows.items():
        assert row["quality"] == model.region_quality(region)
        assert row["size"] == sizes[region]
        assert row["actions"] == [s._asdict() for s in model.best_action(region)]
    came = [row["came"] for row in found["regions"]]
    assert came == sorted(came, reverse=True)
    assert {a["action"]: a["trials"] for a in found["actions"]} == {"find": 3, "take": 2, ODD: 1}
    # Every episode went from the first region to the second.
    homes = memory.regions.assignments()
    start, then, _ = (homes[document] for document in WAY)
    assert rows[start]["leads"][0]["region"] == then
    assert sum(lead["share"] for lead in rows[start]["leads"]) == pytest.approx(1.0)


def test_options(show, cli, place):
    """A type of task alone; few rows without reading the corpus; titles are only titles."""
    found = show("--task", "clean")
    assert max(row["came"] for row in found["regions"]) == 2
    assert {a["action"]: a["trials"] for a in found["actions"]} == {"find": 2, "take": 2, ODD: 0}
    (row,) = show("--most", "1", "--no-sizes")["regions"]
    assert row["size"] is None
    shown = cli("regions", "--most", "2", "-n", "ann", "--store", place).stdout
    assert all(said in shown for said in ("All regions together", "[red]", "take"))


def test_states_of_agents(show, cli, place, tmp_path):
    """Each is named by what was seen; documents do not count."""
    found = show("--states")
    assert found["level"] == -1
    assert {row["title"] for row in found["regions"]} == {"The oven is cold", "It is warm"}
    assert {action["action"] for action in found["actions"]} == {"heat", "bake"}
    shown = cli("regions", "--states", "-n", "ann", "--store", place).stdout
    assert "oven" in shown
    assert "counted" not in shown
    show("--states", "--plot", str(tmp_path / "states.png"))


@pytest.mark.parametrize(("ending", "head"), [("png", b"\x89PNG"), ("svg", b"<?xml")])
def test_a_plot_of_odd_titles(show, tmp_path, ending, head):
    """Neither formulas nor letters that the font lacks stop it."""
    file = tmp_path / f"regions.{ending}"
    assert show("--plot", str(file))["regions"]
    assert file.read_bytes().startswith(head)


@pytest.mark.parametrize(
    ("given", "namespace", "sentence"),
    [
        (("--most", "0"), "ann", "--most must be at least 1"),
        (("--level", "0"), "ann", "level must be a whole number from 1"),
        (("--level", "99"), "ann", "level 99 has no hub"),
        (("--task", " "), "ann", "--task must be a text"),
        (("--task", "cook"), "ann", "known are clean, heat"),
        (("--plot", "nowhere/at/all.png"), "ann", "cannot be written"),
        (("--plot", "regions.docx"), "ann", "cannot be written"),
    ],
)
def test_what_cannot_be_shown_is_said_in_a_sentence(refuse, place, given, namespace, sentence):
    assert sentence in refuse("regions", *given, "-n", namespace, "--store", place)


def test_a_namespace_without_experience_is_no_error(cli, read, place):
    for name in ("bob", "nobody at all"):
        done = cli("regions", "-n", name, "--store", place)
        assert (done.exit_code, "has no experience yet" in done.stdout) == (0, True)
        assert read("regions", "-n", name, "--store", place)["regions"] == []


def test_where_there_are_no_regions_and_without_the_extra(cli, refuse, tmp_path, monkeypatch):
    """Two hubs are the least; looking creates nothing."""
    assert "there is no memory" in refuse("regions")
    assert not list(tmp_path.iterdir())
    with CrabPath.open("memory", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document("text 0"), Document("text 1")])
        done = cli("regions")
        assert (done.exit_code, "has no regions yet" in done.stdout) == (0, True)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    said = refuse("regions", "--plot", "x.png", code=1)
    assert "crabpath-retrievers[eval]" in said.replace(" ", "")
