"""``crabpath health`` and ``crabpath doctor`` as a user runs them."""

import json
import shutil
import sqlite3
from contextlib import closing

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.config import HealthSettings, LearningSettings

PLAIN = DeterministicFakeEmbedding(size=16)


def run(*given):
    return CliRunner().invoke(app, [str(part) for part in given])


def read(*given, code=0):
    result = run(*given, "--json")
    assert result.exit_code == code, result.output
    return json.loads(result.stdout)


def test_health_for_programs_and_people(place):
    """The report of the library, and those before it; people see a sparkline of each metric."""
    first, second = (read("health", place.path, "-n", "ann") for _ in range(2))
    assert [metric["name"] for metric in first["metrics"]] == list(HealthSettings().ranges)
    assert first["metrics"][-1]["value"] == 0.0  # orphans are known from files
    assert (first["history"], len(second["history"])) == ([], 1)
    assert second["history"][0]["metrics"] == first["metrics"]
    with place.open() as memory:
        report = memory.maintenance.health("ann", record=False).to_dict()
        assert len(memory.maintenance.health_history("ann")) == 2
    assert list(report["metrics"]) == second["metrics"]
    assert (report["edges"], report["turn"]) == (second["edges"], 1)
    shown = run("health", "--store", place.path, "--namespace", "ann")
    assert shown.exit_code == 0
    assert all(name in shown.stdout for name in HealthSettings().ranges)
    assert "▁▁▁" in shown.stdout
    assert "fewer than 10, not judged" in shown.stdout
    assert "learned edges: " in shown.stdout


def test_health_is_bad_and_the_exit_code_good(place):
    """It is a measurement; a memory that is ill still answers. Without vectors it is not judged."""
    with place.open() as memory:
        memory.index.delete(["d1"])
    shown = run("health", place.path)
    assert shown.exit_code == 0
    assert "✗" in shown.stdout
    assert "1 of 40 are not in the vector index" in shown.stdout
    shutil.rmtree(place.path / "vectors")
    orphans = read("health", place.path)["metrics"][-1]
    assert (orphans["value"], orphans["in_range"]) == (None, None)


def test_health_by_the_settings_of_the_server(place):
    """What a serving process has published holds for the command."""
    ranges = {"reflex_pct": (0.5, 0.6)}
    given = Settings(
        health=HealthSettings(ranges=ranges, min_observations=1, max_reports=1),
        learning=LearningSettings(apply="external"),
    )
    CrabPath.open(place.path, embeddings=PLAIN, settings=given).close()
    for keep in ("--record", "--no-record", "--record", "--record"):
        shown = read("health", place.path, "-n", "ann", keep)
    report = {metric["name"]: metric for metric in shown["metrics"]}
    assert (report["reflex_pct"]["low"], report["reflex_pct"]["in_range"]) == (0.5, False)
    assert report["dormant_pct"]["high"] == 0.95
    assert len(shown["history"]) == 1


@pytest.mark.slow
def test_health_at_a_url(postgres_url, tmp_path):
    with CrabPath.open(postgres_url, vectors=tmp_path / "v", embeddings=PLAIN) as memory:
        memory.add_documents([Document("Zebra.", id="z")], progress=None)
    assert read("health", postgres_url)["metrics"][-1]["value"] is None
    left_out = "Left out chunks without a vector: a URL does not say"
    assert left_out in " ".join(run("health", postgres_url).output.split())
    assert "Left out" not in run("health", postgres_url, "--vectors", tmp_path / "v").output
    assert read("health", postgres_url, "--vectors", tmp_path / "v")["metrics"][-1]["value"] == 0.0


def test_looking_at_nothing_creates_nothing(tmp_path):
    result = run("health", tmp_path / "none", "--json")
    assert (result.exit_code, "there is no memory" in result.stderr) == (2, True)
    assert read("doctor", tmp_path / "none", code=1)["findings"][0]["check"] == "place"
    assert list(tmp_path.iterdir()) == []


def test_doctor_finds_something_broken(place):
    """Each finding stands with its fix, the worst first; the exit code is 1.

    Another embedder than the commands' own is worth a warning; markup is only a name.
    """
    with place.open() as memory:
        memory.index.delete(["d1"])
        memory.namespaces.freeze("[red]ann")
    found = read("doctor", place.path, code=1)
    assert (found["broken"], len(found["checked"])) == (True, 15)
    assert [one["severity"] for one in found["findings"]] == ["error", "warning", "info"]
    shown = run("doctor", place.path)
    assert shown.exit_code == 1
    assert shown.stdout.startswith("broken vectors: 1 chunks are missing in the vector index: d1")
    assert "run `crabpath reindex" in shown.stdout
    assert "learn nothing: [red]ann" in " ".join(shown.stdout.split())
    assert "3 found in 15 checks" in " ".join(shown.stdout.split())
    with place.open() as memory:
        memory.maintenance.reindex()
    assert not read("doctor", place.path)["broken"]


@pytest.mark.slow
def test_sparklines(place):
    """From the least value to the greatest; a gap where there is none."""
    for value in (2.0, None, 1.0):
        report = read("health", place.path, "-n", "ann")
        kept = {name: report[name] for name in ("namespace", "turn", "created", "edges")}
        kept["metrics"] = [{**one, "value": value} for one in report["metrics"]]
        with closing(sqlite3.connect(place.path / "graph.sqlite")) as connection, connection:
            last = "sequence = (SELECT max(sequence) FROM crabpath_health_reports)"
            connection.execute(
                f"UPDATE crabpath_health_reports SET report = ? WHERE {last}", [json.dumps(kept)]
            )
    shown = run("health", "--store", place.path, "--namespace", "ann").stdout
    (orphans,) = [line for line in shown.splitlines() if "orphan_nodes" in line]
    assert "█ ▅▁" in orphans
