"""``crabpath eval`` as a user runs it: files, sentences, exit codes."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app
from crabpath_retrievers.evaluation import requirements

PNG = b"\x89PNG"


@pytest.fixture
def run(beir_folder, cache):
    """Runs the command; later options take the place of earlier ones."""

    def _run(name, *arguments, data=beir_folder):
        fixed = ("eval", name, "--data", str(data), "--cache", str(cache))
        return CliRunner().invoke(app, [*fixed, *map(str, arguments)])

    return _run


def test_tables_json_and_report(run, tmp_path):
    """One run writes all three; folders are made."""
    json_file, folder = tmp_path / "out" / "figures.json", tmp_path / "report"
    result = run(
        *("beir", "--methods", "dense,cold", "--k", "1,3", "--limit", 8, "--seed", 7),
        *("--json", json_file, "--report", folder),
    )
    assert result.exit_code == 0, result.stderr
    figures = json.loads(json_file.read_text())
    assert figures["dataset"]["seed"] == 7
    shown = f"{figures['methods']['cold']['full@3']:.3f}"
    report = (folder / "report.md").read_text()
    assert "| cold | " in result.stdout
    assert shown in result.stdout
    assert report.startswith(result.stdout.strip())
    for name in ("quality.png", "latency.png", "differences.png"):
        assert f"({name})" in report
        assert (folder / name).read_bytes().startswith(PNG)


def test_a_chat_model_and_what_it_costs(run, tmp_path):
    """It is one more method; calls, tokens and dollars are per question."""
    json_file = tmp_path / "figures.json"
    result = run(
        *("beir", "--methods", "cold", "--limit", 4, "--json", json_file),
        *("--router", "simulated:0.3", "--prices", "1,2"),
    )
    assert result.exit_code == 0, result.stderr
    methods = json.loads(json_file.read_text())["methods"]
    assert methods["cold"]["llm_calls"] == methods["cold"]["cost_usd"] == 0
    of = methods["routed"]
    assert of["llm_calls"] == 1
    cost = (of["llm_input_tokens"] + 2 * of["llm_output_tokens"]) / 1e6
    assert of["cost_usd"] == pytest.approx(cost, abs=1e-6)
    assert "`routed` is `cold` with the chat model simulated:0.3" in result.stdout


def test_a_single_method_has_no_comparison(run, tmp_path):
    """Neither a table nor a plot of differences."""
    result = run("beir", "--methods", "lexical", "--limit", 3, "--report", tmp_path)
    assert result.exit_code == 0, result.stderr
    assert "Differences" not in result.stdout
    assert not (tmp_path / "differences.png").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("squad",), "there is no data set 'squad': choose among"),
        (("beir", "--methods", "dense,magic"), "there is no method 'magic': choose among"),
        (("beir", "--methods", ""), "no method is named"),
        (("beir", "--router", "nobody:none"), "the chat model 'nobody:none' cannot be used"),
        (("beir", "--prices", "cheap"), "--prices takes US dollars per million tokens"),
        (("beir", "--k", "0"), "--k takes whole numbers of at least 1"),
        (("beir", "--k", "-2"), "--k takes whole numbers of at least 1"),
        (("beir", "--k", "5,²"), "--k takes whole numbers of at least 1"),
        (("beir", "--setting", "open"), "no --setting 'open': choose among pooled, closed"),
        (("beir", "--level", "word"), "no --level 'word': choose among document, chunk"),
        (("beir", "--seed", "-1"), "--seed must be at least 0"),
        (("beir", "--k", "five"), "--k takes whole numbers of at least 1"),
        (("beir", "--k", "1000"), "--k 1000 is beyond the corpus"),
        (("beir", "--limit", "0"), "--limit must be at least 1"),
        (("beir", "--limit", "-5"), "--limit must be at least 1"),
        (("beir", "--limit", "many"), "integer"),
        (("beir", "--setting", "closed"), "--setting closed needs the official JSON"),
        (("beir", "--level", "chunk"), "--level chunk is for multihoprag"),
        (("musique",), "does not hold exactly one file of the data set"),
        (("multihoprag",), "corpus.json does not exist"),
        (("beir", "--json", "."), "is a directory"),
        (("beir", "--report", __file__), "cannot hold the report"),
        (("beir", "--cache", __file__, "--limit", "1"), "cannot keep embeddings"),
        (("beir", "--embedding", "./none", "--limit", "1"), "cannot be loaded"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_code_2(run, arguments, sentence):
    """Each says what to do; there is no traceback."""
    result = run(*arguments)
    assert result.exit_code == 2
    assert sentence in " ".join(result.stderr.split())
    assert "Traceback" not in result.output


def test_a_file_without_questions(run, write):
    """Labels are missing, so nothing can be measured."""
    row = {"_id": "q", "question": "?", "context": [["A", ["a"]]], "supporting_facts": []}
    for rows in ([], [row]):
        result = run("hotpotqa", data=write("test.json", rows))
        assert result.exit_code == 2
        assert "holds no question with relevant documents" in " ".join(result.stderr.split())


def test_a_missing_extra_is_named(run, monkeypatch):
    """An environment problem, so exit code 1."""
    monkeypatch.setattr(requirements, "find_spec", lambda name: None if name == "bm25s" else name)
    result = run("beir")
    assert result.exit_code == 1
    assert "pip install 'crabpath-retrievers[local,eval]'" in " ".join(result.stderr.split())


def test_a_cache_that_was_written_in_part(run, tmp_path):
    """A run that was killed left half a vector behind."""
    assert run("beir", "--methods", "lexical", "--limit", 1, "--cache", tmp_path).exit_code == 0
    for path in tmp_path.rglob("*"):
        path.write_text("[0.1, 0.")
    result = run("beir", "--methods", "lexical", "--limit", 1, "--cache", tmp_path)
    assert result.exit_code == 2
    assert "was written in part: delete the directory" in " ".join(result.stderr.split())
