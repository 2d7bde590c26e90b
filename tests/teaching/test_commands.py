"""``crabpath teach`` and ``crabpath correct`` as a user runs them."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app

TEXT = "Never skip CI for hotfixes."


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Runs a command beside a memory of one document."""
    (tmp_path / "deploy.md").write_text("# Deploying\n\nWatch the pipeline.\n")
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        return CliRunner().invoke(app, list(arguments))

    assert run("add", "deploy.md").exit_code == 0
    return run


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_teach_ask_and_correct(cli):
    """A note answers its question; a correction comes before what it corrects."""
    question = "May I skip the pipeline?"
    answer = read(cli("query", question, "-k", "1", "--json"))
    (document,) = answer["documents"]
    given = ("--query", question, "--related", document["id"], "--title", "Rules", "--json")
    note = read(cli("teach", TEXT, *given))["id"]
    assert read(cli("teach", TEXT, *given))["id"] == note
    found = read(cli("query", question, "-k", "2", "--json"))
    assert [item["id"] for item in found["documents"]] == [note, document["id"]]

    fixed = read(cli("correct", "Only on Sundays.", "--turn", answer["turn_id"], "--json"))["id"]
    again = read(cli("query", question, "-k", "3", "--json"))["documents"]
    assert again[0]["id"] == fixed  # what was told last of this question
    assert note not in {item["id"] for item in again[:2]}
    assert read(cli("info", "--json"))["notes"] == 2
    assert read(cli("forget", note, "--json"))["removed"] == 1


def test_directives_and_namespaces(cli):
    """A directive of ann's is not shown to others."""
    told = read(
        cli(
            "teach",
            TEXT,
            "--kind",
            "directive",
            "--authority",
            "constitutional",
            "-n",
            "ann",
            "--id",
            "ci",
            "--json",
        )
    )
    assert told == {"id": "ci"}
    for namespace, expected in (("ann", True), ("bob", False)):
        found = read(cli("query", TEXT, "-n", namespace, "--json"))["documents"]
        assert ("ci" in {item["id"] for item in found}) is expected


def test_for_people(cli):
    """One line says where it is kept."""
    assert "Kept as teaching:" in cli("teach", TEXT).output
    assert "Kept as correction:" in cli("correct", TEXT, "--query", "May I?").output


@pytest.mark.parametrize(
    "arguments",
    [
        ("teach", ""),
        ("teach", TEXT, "--kind", "correction"),
        ("teach", TEXT, "--authority", "divine"),
        ("teach", TEXT, "--related", "nowhere"),
        ("correct", TEXT, "--turn", "never"),
        ("correct", TEXT, "--wrong", "nowhere"),
        ("teach", TEXT, "--store", "nowhere"),
    ],
)
def test_unusable_input(cli, arguments):
    """One sentence and exit code 2."""
    result = cli(*arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error:")
