"""Methods and learners of one's own, the smoke run, and the schema of figures, as documented."""

import json
import re
import sys
from pathlib import Path

import jsonschema
import pytest
from typer.testing import CliRunner

from crabpath_lab import read_published_sets
from crabpath_lab.reporting.report import render_summary
from crabpath_retrievers.cli import app

PAGES = Path(__file__).parents[3] / "docs" / "research"
STREAM = ("--stream", "prequential", "--k", "2")


@pytest.fixture
def run(cache, tmp_path, monkeypatch):
    """Runs ``crabpath eval sample`` where the files of the page lie; gives figures and output."""
    page = (PAGES / "evaluation.md").read_text(encoding="utf-8")
    for name in ("words", "idle"):
        (tmp_path / f"{name}.py").write_text(
            re.search(rf"file `{name}\.py`.*?```python\n(.*?)```", page, re.DOTALL)[1]
        )
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.syspath_prepend(tmp_path)

    def _run(*arguments):
        file = tmp_path / "figures.json"
        fixed = ["eval", "sample", "--cache", str(cache), "--limit", "6", "--json", str(file)]
        done = CliRunner().invoke(app, [*fixed, *arguments])
        return json.loads(file.read_text()) if file.exists() else None, done

    return _run


@pytest.mark.slow
def test_a_method_of_the_page_stands_beside_others_and_figures_keep_their_schema(run):
    figures, done = run("--methods", "cold,words:count_words", "--k", "2,5")
    assert done.exit_code == 0, done.output
    assert list(figures["methods"]) == ["cold", "words:count_words"]
    assert 0 < figures["methods"]["words:count_words"]["recall@5"] < 1
    assert "| words:count_words | " in done.stdout
    assert (figures["dataset"]["documents"], figures["dataset"]["file"]) == (200, None)
    require_schema(figures)


def test_without_crabpath_a_method_is_compared_with_the_first_baseline(run):
    figures, done = run("--methods", "words:count_words,lexical,dense", "--k", "2")
    assert done.exit_code == 0, done.output
    pairs = {(row["a"], row["b"]) for row in figures["comparisons"]}
    assert pairs == {("words:count_words", "lexical")}
    assert "200 documents from the packaged sample;" in done.stdout


@pytest.mark.parametrize(
    ("p", "low", "told"),
    [(0.24, 0.01, True), (0.01, 0.01, False), (0.24, -0.01, False)],
)
def test_an_interval_that_leaves_out_0_beside_a_large_p_is_explained(run, p, low, told):
    figures, _ = run("--methods", "dense,lexical,words:count_words", "--k", "2")
    row = figures["comparisons"][0] | {"difference": 0.04, "ci95": [low, 0.1], "p": p}
    shown = render_summary(figures | {"comparisons": [row]})
    assert ("only a few questions differ" in shown) is told


def test_a_learner_of_the_page_learns_from_a_stream(run):
    figures, done = run(*STREAM, "--methods", "cold", "--learners", "idle:Idle")
    assert done.exit_code == 0, done.output
    stream = figures["methods"]["idle:Idle"]["stream"]
    assert stream["epochs"] == stream["frozen_epochs"]
    require_schema(figures)


def require_schema(figures):
    """Require that figures are as the committed schema says."""
    schema = json.loads((PAGES / "figures.schema.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.validate(figures, schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({**figures, "methods": {"cold": {}}}, schema)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--methods", "nowhere:rank"], "the method 'nowhere:rank' cannot be imported"),
        (["--methods", "json:missing"], "the method 'json:missing' cannot be imported"),
        (["--methods", "json:__name__"], "the method 'json:__name__' is of type str"),
        (["--methods", "none"], "there is no method 'none'"),
        ([*STREAM, "--learners", "none"], "there is no learner 'none'"),
        (["--learners", "learned"], "add --stream prequential"),
        (["--noise", "0.1"], "--noise is of a stream: add --stream prequential"),
        (["--stream", "prequential"], "--learners"),
        (["--data", "folder"], "leave out --data"),
    ],
)
def test_what_cannot_be_had_is_said_in_a_sentence(run, arguments, said):
    figures, done = run(*arguments)
    assert (figures, done.exit_code) == (None, 2)
    assert said in " ".join(done.stderr.split())


FAILING = """
from contextlib import contextmanager, nullcontext

@contextmanager
def broken(corpus):
    raise RuntimeError("index is down")
    yield

def ranking(corpus):
    return lambda question, vector, depth: corpus.take([0])

def missing(corpus):
    def rank(question, vector, depth):
        return {}["a"]
    return nullcontext(rank)

def numbers(corpus):
    return nullcontext(lambda question, vector, depth: [1, 2])

def nothing(corpus):
    return nullcontext(lambda question, vector, depth: None)

class Refusing:
    def __init__(self, frozen):
        self.rank = frozen.rank

    def learn(self, lesson):
        raise ValueError("cannot learn")

class Silent(Refusing):
    def __init__(self, frozen):
        self.rank = lambda question, vector, k: None

class Twice(Refusing):
    def __init__(self, frozen):
        self.rank = lambda *asked: frozen.rank(*asked)[:1] * 2

class Unsure(Refusing):
    def __init__(self, frozen):
        self.rank = lambda *asked: [r._replace(odds=float("nan")) for r in frozen.rank(*asked)]

class Inventing(Refusing):
    def __init__(self, frozen):
        self.rank = lambda *asked: [
            r._replace(chunk=r.chunk._replace(document="of nobody")) for r in frozen.rank(*asked)
        ]

class Counting(Refusing):
    def learn(self, lesson):
        return 42

class Empty:
    def __init__(self, frozen):
        pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "name", "said"),
    [
        ("method", "broken", "(RuntimeError: index is down): it must be a context manager"),
        ("method", "ranking", "context manager"),
        ("method", "missing", "(KeyError: 'a')"),
        ("method", "numbers", "(TypeError: it returned [1, 2])"),
        ("method", "nothing", "(TypeError: it returned None)"),
        ("learner", "Refusing", "(ValueError: cannot learn): it must be a StreamLearner"),
        ("learner", "Silent", "(TypeError: it returned None)"),
        ("learner", "Twice", "rank must return each chunk once, and returned [Ranked"),
        ("learner", "Unsure", "rank must return finite odds"),
        ("learner", "Inventing", "rank must return documents of the data set"),
        ("learner", "Counting", "learn must return the id of a turn, which is a text, or None"),
        ("learner", "Empty", "has no attribute 'rank'"),
    ],
)
def test_one_of_yours_that_fails_is_told_in_a_sentence(run, tmp_path, kind, name, said):
    (tmp_path / "failing.py").write_text(FAILING)
    stream = (*STREAM, "--methods", "cold") if kind == "learner" else ("--k", "2")
    figures, done = run(*stream, f"--{kind}s", f"failing:{name}")
    assert (figures, done.exit_code) == (None, 2)
    shown = " ".join(done.stderr.split())
    assert f"the {kind} 'failing:{name}' failed (" in shown
    assert said in shown


def test_the_script_runs_every_command_of_the_page():
    page = (PAGES / "reproduce.md").read_text(encoding="utf-8").partition("## 3. Run")[2]
    script = (PAGES / "reproduce.sh").read_text(encoding="utf-8").splitlines()
    commands = re.findall(r"^\| [^|]* \| `([^`]*)`", page, re.MULTILINE)
    assert len(commands) > 5
    assert set(commands) <= set(script)


def test_the_script_fetches_the_data_that_it_asks():
    script = (PAGES / "reproduce.sh").read_text(encoding="utf-8")
    fetched = re.search(r"^crabpath fetch (.*)$", script, re.MULTILINE)
    asked = set(re.findall(r"data/(\S+)", script.partition(fetched[0])[2]))
    sets = read_published_sets()
    assert asked == {sets[name]["path"] for name in fetched[1].split()}
