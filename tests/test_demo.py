"""The demo and the bench's parts run on the shipped sample."""

import json
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from crabpath_lab import load_sample
from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app

pytestmark = pytest.mark.slow


@pytest.mark.slow
def test_the_demo_shows_that_the_graph_finds_more(tmp_path):
    """Both gold passages among five: more often than plain Chroma, at the same embedder and k."""
    result = CliRunner().invoke(app, ["demo", "--json", "--store", str(tmp_path / "demo")])
    assert result.exit_code == 0, result.output
    shown = json.loads(result.stdout)
    assert shown["full@5"]["crabpath"] >= shown["full@5"]["plain_chroma"] + 0.2
    assert shown["route"]["documents"]
    with CrabPath.open(tmp_path / "demo", create=False) as memory:
        given = memory.learning.feedback(namespace="default", limit=1000)
        assert len(given) == 80
        assert {one.user for one in given} == {"ann", "ben", "cleo", "mallory"}
        assert {one.status for one in given} == {"applied"}
        assert len(memory.notes()) == 1
        (row,) = memory.learning.lift(namespace="default")
        assert row.lift > 0
    again = CliRunner().invoke(app, ["demo", "--json", "--store", str(tmp_path / "demo")])
    assert json.loads(again.stdout)["full@5"] == shown["full@5"]  # what was taught is elsewhere
    with CrabPath.open(tmp_path / "demo", create=False) as memory:
        assert len(memory.learning.feedback(namespace="default", limit=1000)) == 80


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Runs commands in an empty folder; the demo has four questions there."""
    data = load_sample()
    asked = list(data.queries)[:4]
    gold = set().union(*(data.qrels[query] for query in asked))
    kept, read_text = {*asked, *gold}, Path.read_text

    def read_few(path, *given, **named):
        """Of the sample, the lines of these questions and of what they need."""
        first, *lines = read_text(path, *given, **named).splitlines(keepends=True)
        if path.name == "test.tsv":
            return "".join([first, *(line for line in lines if line.split("\t")[0] in kept)])
        if path.name not in {"corpus.jsonl", "queries.jsonl"}:
            return "".join([first, *lines])
        return "".join(line for line in [first, *lines] if json.loads(line)["_id"] in kept)

    monkeypatch.setattr(Path, "read_text", read_few)
    monkeypatch.chdir(tmp_path)

    def invoke(*arguments):
        result = CliRunner().invoke(app, list(arguments))
        assert result.exit_code == 0, result.output
        return result

    return invoke


def list_commands(shown):
    """The lines that begin with a program, without its name, by that name."""
    given = [shlex.split(line) for line in shown.splitlines() if line.startswith("  ")]
    return [line for line in given if line and line[0] in ("crabpath", "pip")]


@pytest.mark.parametrize("store", [(), ("--store", "a demo")])
def test_what_the_demo_recommends_next_works(run, tmp_path, store):
    """On files of one's own, of each kind; the page is that of the memory which the demo left."""
    explore, add, query, explain = list_commands(run("demo", *store).stdout)
    assert explore == ["crabpath", "explore", *store]
    assert (tmp_path / (store or ("", "demo-memory"))[1] / "graph.sqlite").is_file()
    folder = tmp_path / add[-1]
    folder.mkdir()
    (folder / "deploy.md").write_text("# Deploying\n\nDeploy with one command: ship it.\n")
    (folder / "page.html").write_text("<h1>Holidays</h1><p>Ask two weeks ahead.</p>")
    assert "Skipped" not in run(*add[1:]).output
    answer = run(*query[1:]).stdout
    assert "ship it" in answer
    (why,) = [line for line in answer.splitlines() if line.startswith("Why:")]
    own = shlex.split(why)[1:]
    assert own[:2] == explain[:2]
    assert "Deploying" in run(*own[1:]).stdout


@pytest.mark.parametrize("missing", [("server",), ("files",), ("server", "files"), ()])
def test_what_the_demo_recommends_is_installed_first(run, monkeypatch, missing):
    """Where a module of the extra is missing, and only there, before what needs it."""
    for extra in missing:
        monkeypatch.setitem(sys.modules, {"server": "starlette", "files": "pypdf"}[extra], None)
    found = list_commands(run("demo").stdout)
    extras = {"explore": "server", "add": "files"}
    for number, line in enumerate(found):
        extra = extras.get(line[1])
        install = ["pip", "install", f"crabpath-retrievers[{extra}]"]
        assert (found[number - 1] == install) == (extra in missing), line
    assert sum(line[0] == "pip" for line in found) == len(missing)


def test_the_sample_is_what_its_readme_says():
    """Sixty questions over six hundred passages; every gold passage is among them."""
    data = load_sample()
    ids = {document.id for document in data.documents}
    assert (len(data.documents), len(data.queries)) == (600, 60)
    assert all(gold <= ids and len(gold) == 2 for gold in data.qrels.values())
