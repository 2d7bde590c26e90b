"""`crabpath eval --stream`: figures, report, and what is refused."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app

STREAM = ("--stream", "prequential", "--epochs", "2", "--dropped", "0.2")


@pytest.fixture
def evaluate(beir_folder, cache, tmp_path):
    """Runs the command on the small sample."""

    def _evaluate(*options):
        given = ["eval", "beir", "--data", str(beir_folder), "--cache", str(cache), "--k", "2,5"]
        files = ["--json", str(tmp_path / "figures.json"), "--report", str(tmp_path / "report")]
        return CliRunner().invoke(app, [*given, *options, *files])

    return _evaluate


@pytest.mark.parametrize(
    "feedback",
    ["used", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("answer", "outcome"))],
)
def test_a_stream_is_reported_beside_its_frozen_twin(evaluate, tmp_path, feedback):
    """In the JSON, in the table and as a learning curve."""
    result = evaluate(
        "--methods", "cold,learned", *STREAM, "--feedback", feedback, "--noise", "0.1"
    )
    assert result.exit_code == 0, result.output
    figures = json.loads((tmp_path / "figures.json").read_text())
    stream = figures["methods"]["learned"]["stream"]
    assert {"checkpoints", "second_half", "frozen_second_half", "epochs"} <= set(stream)
    assert figures["dataset"]["stream"]["feedback"] == feedback
    assert "## Streams" in (tmp_path / "report" / "report.md").read_text()
    assert (tmp_path / "report" / "learning.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--methods", "cold,learned"), "--stream prequential"),
        (("--methods", "cold", "--stream", "prequential"), "a method that learns"),
        (("--methods", "learned", "--stream", "sideways"), "sideways"),
        (("--methods", "learned", *STREAM, "--feedback", "applause"), "applause"),
        (("--methods", "learned", *STREAM, "--noise", "0.9"), "--noise"),
        (("--methods", "learned", "--stream", "prequential", "--epochs", "0"), "--epochs"),
        (("--methods", "learned", "--stream", "prequential", "--dropped", "1"), "--dropped"),
    ],
)
def test_what_cannot_be_streamed_is_refused(evaluate, options, says):
    """One sentence that says what to change, exit code 2."""
    result = evaluate(*options)
    assert result.exit_code == 2
    assert says in result.output.replace("\n", " ")
