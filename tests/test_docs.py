"""What the pages of docs/ tell a user to write, runs as it stands there."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_core.documents import Document
from markdown_it import MarkdownIt

DOCS = Path(__file__).parents[1] / "docs"


def check_closed_loop(it):
    assert "Refunds go back" in it.context
    assert it.receipt.status == "applied"
    assert it.answer.turn.task_type == "refund"


def check_sync(it):
    assert it.section.fate == "edited"
    assert it.section.similarity > 0.92
    assert it.after.id == it.before
    assert "push" in it.after.content
    assert it.memory.info()["sources"] == 2


def check_migration(it):
    assert it.undone.status == "undone"
    assert (it.imported.namespace, it.imported.missing) == ("alice", 0)


def check_wrapping(it):
    assert (sorted(it.before), it.after) == (["hydra", "tests"], ["tests"])
    assert (it.report.added, it.report.removed, it.report.unchanged) == (1, 1, 1)
    assert sorted(it.refreshed) == ["petra", "tests"]
    assert it.memory.info()["nodes"] == 2


def check_regions(it):
    assert it.here in it.of_each.values()
    assert len(it.of_each) == 64
    chances = {score.action: score.success for score in it.best}
    assert chances["refund"] > chances["cancel"]
    assert it.worth


def check_health(it):
    assert it.fired.sampled == 1
    assert it.before == [it.report]
    assert "orphan_nodes" not in it.ill


def check_maintenance(it):
    assert (it.report.dry_run, it.report.run) == (True, "")
    assert it.memory.info()["nodes"] == 1


def check_ab(it):
    arm = it.trial.arm(it.session)
    assert it.answer.turn.namespace == it.trial.namespaces("ann")[arm]
    assert it.found[0].metadata["crabpath"]["namespace"] == it.trial.namespaces("ann")[arm]
    assert (it.checkpoint, it.report.verdict) == (None, "too little data")
    assert getattr(it.report, arm).success_rate == 1.0


def check_autotuner(it):
    assert (it.report.dry_run, it.report.run) == (True, "")
    assert it.knobs.half_life == 500.0
    assert it.memory.maintenance.knobs() == it.settings.knobs


CHECKS = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_page_runs_as_it_stands(check):
    page = DOCS / f"{check.__name__.removeprefix('check_')}.md"
    given = {"documents": [Document(f"Booking number {n} was paid.") for n in range(64)]}
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence" and token.info == "python":
            exec(token.content, given)  # noqa: S102  a page of this very repository
    with given["memory"]:
        check(SimpleNamespace(**given))
