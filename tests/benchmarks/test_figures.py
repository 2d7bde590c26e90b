"""Pages show the measured numbers of one file, and no others."""

import json
import re
from pathlib import Path

import pytest
from typer.main import get_command

from benchmarks import figures
from benchmarks.commands import app
from benchmarks.figures import (
    hash_code,
    list_hand_written,
    list_old,
    list_pages,
    look_up,
    measure_run,
    read_figures,
    render_page,
    update_pages,
    write_figures,
)
from crabpath_lab.experiments import EXPERIMENTS
from crabpath_retrievers.errors import InvalidInputError

RUNS = {
    "set": {
        "command": "",
        "about": "ranking",
        "date": "2026-11-29",
        "commit": "abc",
        "code": "old",
        "figures": {
            "dataset": {"queries": 1500},
            "methods": {
                "dense": {"full@5": 0.51},
                "cold": {"full@5": 0.9221, "full@5_ci95": [-0.004, 0.944]},
            },
        },
    }
}


@pytest.fixture
def file(tmp_path, monkeypatch):
    path = tmp_path / "figures.json"
    monkeypatch.setattr(figures, "FILE", path)
    monkeypatch.setattr(figures.read_figures, "__defaults__", (path,))
    return path


def test_every_page_shows_the_figures_of_the_file_and_no_others():
    assert update_pages(check=True) == []


def test_the_file_is_as_it_is_written(file):
    text = (Path(figures.ROOT) / "docs" / "figures.json").read_text(encoding="utf-8")
    write_figures(json.loads(text))
    assert file.read_text(encoding="utf-8") == text


def test_every_run_says_what_found_its_figures_and_each_is_on_a_page():
    runs = read_figures()
    fields = {"command", "about", "n", "commit", "date", "machine", "code", "figures"}
    assert all(fields <= run.keys() and run["about"] in figures.ABOUT for run in runs.values())
    texts = "".join(page.read_text(encoding="utf-8") for page in list_pages())
    assert [
        name for name in runs if f"<!--f {name}/" not in texts and f" {name}/" not in texts
    ] == []


def test_every_command_of_the_file_names_what_exists():
    known = {
        "crabpath experiment": set(EXPERIMENTS),
        "python -m benchmarks": set(get_command(app).commands),
    }
    named = [
        (start, run["command"].removeprefix(start).split()[0])
        for run in read_figures().values()
        for start in known
        if run["command"].startswith(f"{start} ")
    ]
    assert {start for start, _ in named} == set(known)
    assert [one for one in named if one[1] not in known[one[0]]] == []


@pytest.mark.parametrize(
    ("places", "old", "new"),
    [
        ("set/methods/cold/full@5", ".9", ".9"),
        ("set/methods/cold/full@5", "**0.000**", "**0.922**"),
        ("set/methods/cold/full@5", "57%", "92%"),
        ("set/methods/*/full@5", ".1 | full@5 .2", ".5 | full@5 .9"),
        ("set/dataset/* /methods/dense/full@5", "3 of .100", "1,500 of .510"),
        ("set/methods/cold/full@5*", "+.10 (-.2 to .3)", "+.92 (-.0 to .9)"),
        ("set/methods/cold/full@5_ci95/0", "+.001", "−.004"),
    ],
)
def test_a_number_keeps_the_form_that_it_has_on_the_page(places, old, new):
    page = render_page(f"a <!--f {places}-->{old}<!--/f--> b .1", RUNS)
    assert page == f"a <!--f {places}-->{new}<!--/f--> b .1"


@pytest.mark.parametrize(
    ("places", "old", "sentence"),
    [("set/no", ".1", "has no set/no"), ("set/methods/*/full@5", ".1", "has 2 numbers")],
)
def test_a_mark_that_does_not_fit_is_refused(places, old, sentence):
    with pytest.raises(InvalidInputError, match=re.escape(sentence)):
        render_page(f"<!--f {places}-->{old}<!--/f-->", RUNS)


@pytest.mark.parametrize(
    "text",
    [
        "recall is .922 here",
        "| 0.9221 |",
        "(.90 to .94)",
        "69 queries a second",
        "a query takes 4.1 ms",
        "2.5 times as long",
        "found for 57% of them",
    ],
)
def test_a_measured_number_by_hand_is_refused(text):
    assert list_hand_written("README.md", text)
    assert list_hand_written("README.md", f"<!--f set/x-->{text}<!--/f-->") == []
    assert list_hand_written("README.md", f"```\n{text}\n```\n`{text}`\n    {text}\n> {text}") == []


def test_settings_and_words_are_no_measurements():
    text = "a weight of .35, full@5, release 0.1.0, at most 10 s, langchain 1.2.345"
    assert list_hand_written("docs/how-to/x.md", text) == []


def test_code_that_changes_makes_figures_old_and_comments_do_not(tmp_path):
    (tmp_path / "a.py").write_text('"""Text."""\nx = 1\n')
    first = hash_code(["a.py"], tmp_path)
    (tmp_path / "b.py").write_text('"""Other."""\n\nx = 1  # one\n')
    assert hash_code(["b.py"], tmp_path) == first
    (tmp_path / "c.py").write_text("x = 2\n")
    assert hash_code(["c.py"], tmp_path) != first
    assert len(list_old(RUNS)) == 1


MEASURING = (
    "import json, sys; json.dump({'full@5': {'cold': .9, 'more': 1}}, open(sys.argv[1], 'w'))"
)
PRINTING = "print('| name | n | gain |\\n|---|---|---|\\n| Set A | 1,200 | −.5 (−.6 to 20%) |')"


@pytest.mark.parametrize(
    ("command", "before", "after"),
    [
        (f'python -c "{MEASURING}" figures.json', {"full@5": {"cold": 0.1}}, 0.9),
        (f'python -c "{PRINTING}"', {"set-a": {"n": 1}}, 1200),
        (f'python -c "{PRINTING}"', {"set-a": {"gain": 1}}, [-0.5, -0.6, 0.2]),
    ],
)
def test_a_run_is_measured_again(file, tmp_path, command, before, after):
    write_figures({"set": RUNS["set"] | {"command": command, "figures": before}})
    measure_run("set", tmp_path)
    run = json.loads(file.read_text(encoding="utf-8"))["set"]
    assert next(iter(next(iter(run["figures"].values())).values())) == after
    assert list_old({"set": run}) == []
    assert re.match(r"\d+ cores, ", run["machine"])


def test_an_output_without_the_figures_is_refused(file, tmp_path):
    write_figures(RUNS)
    (tmp_path / "output.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="has no set/dataset"):
        measure_run("set", tmp_path, tmp_path / "output.json")
    with pytest.raises(InvalidInputError, match="is not known"):
        measure_run("set", tmp_path)
    with pytest.raises(InvalidInputError, match="no run other"):
        measure_run("other", tmp_path)
    assert look_up("set/dataset/queries", read_figures(file)) == [1500]
