"""What the pages of docs/ tell a user to write, runs as it stands there."""

from pathlib import Path

import pytest
from langchain_core.documents import Document
from markdown_it import MarkdownIt

DOCS = Path(__file__).parents[1] / "docs"


@pytest.fixture
def written(request):
    given = {"documents": [Document(f"Booking number {n} was paid.") for n in range(64)]}
    for token in MarkdownIt().parse((DOCS / request.param).read_text()):
        if token.type == "fence" and token.info == "python":
            exec(token.content, given)  # noqa: S102  a page of this very repository
    yield given
    given["memory"].close()


@pytest.mark.parametrize("written", ["tutorials/closed-loop.md"], indirect=True)
def test_the_closed_loop(written):
    assert "Refunds go back" in written["context"]
    assert written["receipt"].status == "applied"
    assert written["answer"].turn.task_type == "refund"


@pytest.mark.parametrize("written", ["how-to/sync.md"], indirect=True)
def test_sync(written):
    assert written["section"].fate == "edited"
    assert written["section"].similarity > 0.92
    assert written["after"].id == written["before"]
    assert "push" in written["after"].content
    assert written["memory"].info()["sources"] == 2


@pytest.mark.parametrize("written", ["how-to/move-and-replay.md"], indirect=True)
def test_migration(written):
    assert written["undone"].status == "undone"
    assert (written["imported"].namespace, written["imported"].missing) == ("alice", 0)


@pytest.mark.parametrize("written", ["how-to/wrap-your-store.md"], indirect=True)
def test_wrapping(written):
    assert sorted(written["before"]) == ["hydra", "tests"]
    assert written["after"] == ["tests"]
    report = written["report"]
    assert (report.added, report.removed, report.unchanged) == (1, 1, 1)
    assert sorted(written["refreshed"]) == ["petra", "tests"]
    assert written["memory"].info()["nodes"] == 2


@pytest.mark.parametrize("written", ["how-to/agent-episodes.md"], indirect=True)
def test_regions(written):
    assert written["here"] in written["of_each"].values()
    assert len(written["of_each"]) == 64
    chances = {score.action: score.success for score in written["best"]}
    assert chances["refund"] > chances["cancel"]
    assert written["worth"]


@pytest.mark.parametrize("written", ["how-to/monitor.md"], indirect=True)
def test_health(written):
    assert written["fired"].sampled == 1
    assert written["before"] == [written["report"]]
    assert "orphan_nodes" not in written["ill"]


@pytest.mark.parametrize("written", ["how-to/maintain.md"], indirect=True)
def test_maintenance(written):
    assert (written["report"].dry_run, written["report"].run) == (True, "")
    assert written["memory"].info()["nodes"] == 1


@pytest.mark.parametrize("written", ["how-to/ab-test.md"], indirect=True)
def test_ab(written):
    trial, report = written["trial"], written["report"]
    arm = trial.arm(written["session"])
    assert written["answer"].turn.namespace == trial.namespaces("ann")[arm]
    assert written["found"][0].metadata["crabpath"]["namespace"] == trial.namespaces("ann")[arm]
    assert (written["checkpoint"], report.verdict) == (None, "too little data")
    assert getattr(report, arm).success_rate == 1.0


@pytest.mark.parametrize("written", ["how-to/autotune.md"], indirect=True)
def test_the_autotuner(written):
    assert (written["report"].dry_run, written["report"].run) == (True, "")
    assert written["knobs"].half_life == 500.0
    assert written["memory"].maintenance.knobs() == written["settings"].knobs
