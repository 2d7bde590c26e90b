"""Attribution: precision and recall of chosen documents by hand, and the command."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from benchmarks.attribution.agreement import measure_agreement
from benchmarks.commands import app

TOWN = ["Leland", ["Leland is a town in Carolina. ", "The film Overdrive was shot in Leland."]]
FILM = ["Overdrive", ["Overdrive is a film directed by Stephen King."]]
OTHERS = [[f"Village {n}", [f"Village {n} is a village of {n} farmers."]] for n in range(8)]
ROW = {
    "_id": "q1",
    "question": "Who directed the film that was shot in Leland?",
    "answer": "Stephen King",
    "supporting_facts": [["Leland", 1], ["Overdrive", 0]],
    "context": [TOWN, FILM, *OTHERS],
}
POLAR = {
    **ROW,
    "_id": "q2",
    "question": "Are Village 1 and Village 2 both villages?",
    "answer": "Yes",
    "supporting_facts": [["Village 1", 0], ["Village 2", 0]],
}
ARTICLE = {"title": "Leland", "body": "The film Overdrive was shot in Leland by Stephen King."}


@pytest.fixture
def run(cache):
    def _run(*arguments):
        fixed = ("attribution", "--cache", str(cache))
        return CliRunner().invoke(app, [*fixed, *map(str, arguments)])

    return _run


def test_table_and_json(run, write, tmp_path):
    file = tmp_path / "out" / "figures.json"
    result = run("--hotpotqa", write("train.json", [ROW, POLAR]), "--json", file)
    assert result.exit_code == 0, result.stderr
    figures = json.loads(file.read_text())["datasets"]["hotpotqa"]
    assert (figures["k"], figures["documents"]) == (5, 10)
    for kind, questions in (("all", 2), ("yes/no", 1), ("other", 1)):
        part = figures[kind]
        assert (part["questions"], part["attributed"]) == (questions, questions)
        assert (part["precision"]["mean"], part["recall"]["mean"]) == (1.0, 1.0)
    assert figures["other"]["foreign"] == 0
    assert "| hotpotqa, k=5 | yes/no | 1 of 1 |" in result.stdout


def test_multihoprag_gold_is_of_documents(run, write):
    evidence = [{"title": "Leland", "fact": "?"}]
    row = {"query": "Who shot Overdrive?", "answer": "Stephen King", "evidence_list": evidence}
    bodies = [{"title": t, "body": texts[0] * 30} for t, texts in OTHERS]
    write("corpus.json", [ARTICLE, *bodies])
    result = run("--multihoprag", write("MultiHopRAG.json", [row]).parent)
    assert result.exit_code == 0, result.stderr
    assert "| multihoprag, k=10 | other | 1 of 1 | 0 | 1.000 (n=1) | 1.000 (n=1)" in result.stdout


def test_wrong_answers_lower_the_figures(run, write):
    """The measure can fail: the answer stands in a document that is not gold."""
    result = run("--hotpotqa", write("train.json", [{**ROW, "answer": "4 farmers"}]))
    assert result.exit_code == 0, result.stderr
    assert "0.000 (n=1)" in result.stdout or "none" in result.stdout


def test_a_file_without_answers(run, write):
    row = {key: value for key, value in ROW.items() if key != "answer"}
    result = run("--hotpotqa", write("test.json", [row]))
    assert result.exit_code == 2
    assert "holds no answers to attribute" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("gold", "support", "expected"),
    [
        # Two of three chosen are gold, two of three gold chosen; gold gets 1.5 of 1.75.
        (
            [[1, 1, 1, 0, 0]],
            [[1.0, 0.5, 0.0, 0.25, 0.0]],
            {"precision": 2 / 3, "recall": 2 / 3, "f1": 2 / 3, "credited": 1.5 / 1.75},
        ),
        # One question right, one left open, one with neither gold nor choice.
        (
            [[1, 0], [1, 0], [0, 0]],
            [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
            {"precision": 1.0, "recall": 0.5, "f1": 0.5, "credited": 1.0},
        ),
        # Where no gold was returned there is no recall.
        ([[0, 0]], [[1.0, 0.0]], {"precision": 0.0, "f1": 0.0, "recall": None}),
        ([], [], {"f1": None}),
    ],
)
def test_agreement_by_hand(gold, support, expected):
    rows = [np.array(row, dtype=bool) for row in gold]
    found = measure_agreement(rows, [np.array(row) for row in support])
    means = {name: found[name]["mean"] for name in expected}
    assert means == pytest.approx(expected, abs=1e-4)
