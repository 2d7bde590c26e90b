"""``crabpath sync`` as a user runs it: the plan, JSON, exit codes."""

import json

import pytest
from typer.testing import CliRunner

from crabpath_retrievers.cli import app

DEPLOY = "# Deploying\n\nCheck that the build is green, then push the release button and wait.\n"
LEAVE = "# Leave\n\nEvery employee has thirty days of holiday a year; tell your manager.\n"


@pytest.fixture
def docs(tmp_path, monkeypatch):
    """A folder with two pages and a picture, seen from the folder above it."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "deploy.md").write_text(DEPLOY)
    (folder / "leave.md").write_text(LEAVE)
    (folder / "image.png").write_bytes(b"\x00\x01")
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.fixture
def cli():
    """Runs a command."""
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_plan_sync_and_no_op(cli, docs):
    """A first sync adds; later ones do what their plan told, and then there is nothing left."""
    first = read(cli("sync", "docs", "--json"))
    assert (first["added"], first["skipped"]) == (2, ["docs/image.png"])
    (docs / "deploy.md").write_text(DEPLOY.replace("push", "press"))
    (docs / "leave.md").rename(docs / "holidays.md")
    planned = read(cli("sync", "docs", "--dry-run", "--json"))
    assert read(cli("sync", "docs", "--json")) == {**planned, "dry_run": False}
    fates = {section["source"]: section for section in planned["sections"]}
    assert fates["docs/deploy.md"]["fate"] == "edited"
    assert 0.92 < fates["docs/deploy.md"]["similarity"] < 1
    assert fates["docs/holidays.md"]["was"] == "docs/leave.md"
    assert read(cli("sync", "docs", "--json"))["unchanged"] == 2


def test_tables_for_people(cli, docs):
    """The plan is a table with similarities and both places; a sync says what it did."""
    cli("sync", "docs")
    (docs / "leave.md").rename(docs / "holidays.md")
    (docs / "deploy.md").unlink()
    shown = cli("sync", "docs", "--dry-run")
    assert "docs/leave.md → docs/holidays.md" in " ".join(shown.stdout.split())
    assert "1.00" in shown.stdout
    assert "nothing was written" in " ".join(shown.stdout.split())
    assert "Skipped docs/image.png" in shown.stderr
    done = cli("sync", "docs")
    assert "1 moved, 0 restored, 1 removed" in " ".join(done.stdout.split())


def test_refusals_are_one_sentence(cli, docs):
    """Each is an exit code 2, and the memory stays as it is."""
    assert cli("sync", "nowhere").exit_code == 2
    assert "there is no memory" in cli("sync", "docs", "--dry-run").stderr
    assert not (docs.parent / "memory").exists()
    cli("sync", "docs")
    missing = cli("sync", "nowhere")
    assert (missing.exit_code, "does not exist" in missing.stderr) == (2, True)
    picture = cli("sync", "docs/image.png")
    assert (picture.exit_code, "is not a text file" in picture.stderr) == (2, True)
    for file in docs.iterdir():
        file.unlink()
    empty = cli("sync", "docs")
    assert (empty.exit_code, "--allow-empty" in empty.stderr) == (2, True)
    assert read(cli("info", "--json"))["nodes"] == 2
    assert read(cli("sync", "docs", "--allow-empty", "--json"))["removed"] == 2
