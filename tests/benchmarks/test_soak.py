"""The short form of every check: what must be 0 is 0."""

import gc
from functools import partial

import pytest
from typer.testing import CliRunner

from benchmarks.commands import app
from benchmarks.soak.figures import Budget, Row, table
from benchmarks.soak.run import CHECKS, run_check

# Where a server falls silent, a thread may still hold a connection that its pool has given up.
pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")


@pytest.fixture(autouse=True)
def collect_abandoned_connections():
    """They are collected here, not in a test of another file."""
    yield
    gc.collect()


@pytest.mark.slow
@pytest.mark.parametrize("name", CHECKS)
def test_nothing_is_lost(name):
    check = CHECKS[name]
    row = run_check(name, Budget(runs=check.short), seed=1, **check.small)
    if row.skipped:
        pytest.skip(row.remark)
    assert not row.broken, row


def test_a_fault_is_seen_and_counted(capsys):
    """One lost document makes a row broken, and says so once."""
    row = Row("a check", runs=3)
    assert not row.broken
    row.blame("lost", "document d1", 2)
    row.blame("lost", "document d1")
    assert (row.broken, row.lost) == (True, 3)
    assert capsys.readouterr().err.count("document d1") == 1
    assert "| a check | 3 | 0 | 3 | 0 |" in table([row])


def test_time_is_shared_and_the_table_is_written(tmp_path, monkeypatch):
    """Each check gets its part; the exit code says whether all held."""
    given = []

    def check(budget, seed):
        given.append(seed)
        row = Row("kept")
        for _ in budget:
            row.runs += 1
        return row

    def broken(budget, seed):
        row = check(budget, seed)
        row.blame("lost", "it")
        return row

    monkeypatch.setitem(CHECKS, "bomb", CHECKS["bomb"]._replace(run=check))
    monkeypatch.setitem(CHECKS, "fuzz", CHECKS["fuzz"]._replace(run=broken))
    report = tmp_path / "soak.md"
    run = partial(CliRunner().invoke, app)
    options = ["--seed", "7", "--minutes", "0.002", "--report", str(report)]
    assert run(["soak", "--only", "bomb", *options]).exit_code == 0
    lost = run(["soak", "--only", "bomb,fuzz", "--runs", "3"])
    assert lost.exit_code == 1
    assert given[0] == 7
    assert "| kept | 3 |" in lost.stdout
    assert "Seed 7." in report.read_text()
    assert report.with_suffix(".json").exists()
