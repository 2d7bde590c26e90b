"""``crabpath sync`` as a user runs it: the plan, JSON, exit codes."""

import pytest

DEPLOY = "# Deploying\n\nCheck that the build is green, then push the release button and wait.\n"
LEAVE = "# Leave\n\nEvery employee has thirty days of holiday a year; tell your manager.\n"


@pytest.fixture
def docs(tmp_path):
    """A folder with two pages and a picture, seen from the folder above it."""
    folder = tmp_path / "docs"
    folder.mkdir()
    (folder / "deploy.md").write_text(DEPLOY)
    (folder / "leave.md").write_text(LEAVE)
    (folder / "image.png").write_bytes(b"\x00\x01")
    return folder


@pytest.mark.slow
def test_plan_sync_and_no_op(cli, read, docs):
    """A first sync adds; later ones do what their plan told, and then there is nothing left."""
    first = read("sync", "docs")
    assert (first["added"], first["skipped"]) == (2, {"docs/image.png": "not a text file"})
    (docs / "deploy.md").write_text(DEPLOY.replace("push", "press"))
    (docs / "leave.md").rename(docs / "holidays.md")
    planned = read("sync", "docs", "--dry-run")
    shown = cli("sync", "docs", "--dry-run")
    table = " ".join(shown.stdout.split())
    assert "docs/leave.md → docs/holidays.md" in table
    assert "docs/deploy.md 1 edited" in table
    assert "1.00" in cli("sync", "docs", "--dry-run", "--verbose").stdout
    assert "nothing was written" in table
    assert "Skipped docs/image.png" in shown.stderr
    assert read("sync", "docs") == {**planned, "dry_run": False}
    fates = {section["source"]: section for section in planned["sections"]}
    assert fates["docs/deploy.md"]["fate"] == "edited"
    assert 0.92 < fates["docs/deploy.md"]["similarity"] < 1
    assert fates["docs/holidays.md"]["was"] == "docs/leave.md"
    assert read("sync", "docs")["unchanged"] == 2
    (docs / "deploy.md").unlink()
    assert "0 moved, 0 restored, 1 removed" in " ".join(cli("sync", "docs").stdout.split())
    (retired,) = read("list", "--retired")
    assert retired["source"] == "docs/deploy.md"
    assert read("list", "--retired", "--source", "docs/holidays.md") == []
    assert read("forget", retired["id"])["removed"] == 1


def test_refusals_are_one_sentence(cli, read, refuse, docs):
    """The memory stays as it is."""
    assert "does not exist" in refuse("sync", "nowhere")
    assert "there is no memory" in refuse("sync", "docs", "--dry-run")
    assert not (docs.parent / "memory").exists()
    cli("sync", "docs")
    assert "does not exist" in refuse("sync", "nowhere")
    assert "not a text file" in refuse("sync", "docs/image.png")
    for file in docs.iterdir():
        file.unlink()
    assert "--allow-empty" in refuse("sync", "docs")
    assert read("info")["nodes"] == 2
    assert read("sync", "docs", "--allow-empty")["removed"] == 2


def test_cron_runs_elsewhere(read, docs, monkeypatch):
    """A folder that was added by its name is followed by its full path from another directory."""
    assert read("add", "docs")["added"] == 2
    store = ("--store", str(docs.parent / "memory"))
    monkeypatch.chdir("/")
    assert read("add", str(docs), *store)["unchanged"] == 2
    (docs / "leave.md").unlink()
    counts = read("sync", str(docs), *store)
    assert (counts["unchanged"], counts["added"], counts["removed"]) == (1, 0, 1)
    assert read("list", "--sources", *store) == {"docs/deploy.md": 1}
