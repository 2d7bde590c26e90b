"""Experiments are played seed by seed, summed up, written down, and asked for by name."""

import json
from pathlib import Path

import pytest

from benchmarks.experiments import report as reporting
from benchmarks.experiments.experiment import Experiment, ExperimentVerdict, SeedResult
from benchmarks.experiments.registry import EXPERIMENTS, select_experiments
from benchmarks.experiments.run import run_experiment
from crabpath_retrievers.errors import InvalidInputError

REPORTS = Path(__file__).parents[3] / "docs" / "experiments"


def judged(found):
    mean = sum(found["score"]) / len(found["score"])
    return ExperimentVerdict("better" if mean > 1 else "not reproduced", f"the mean is {mean}")


TOY = Experiment(
    name="toy",
    title="A toy",
    scene="Nothing happens.",
    paper="[CrabPath] §0: 1",
    must="above 1",
    run=lambda _, seed: SeedResult({"score": float(seed)}, {"curve": [seed, 2.0 * seed]}),
    verdict=judged,
)


def test_figures_are_summed_up_over_seeds():
    """Seeds 0 to 3 by hand: mean 1.5; the curve of the mean is 1.5, 3."""
    record = run_experiment(TOY, None, 4)
    figure = record["figures"]["score"]
    assert (figure["mean"], figure["least"], figure["most"]) == (1.5, 0.0, 3.0)
    assert figure["by_seed"] == [0.0, 1.0, 2.0, 3.0]
    assert figure["ci95"][0] < 1.5 < figure["ci95"][1]
    assert record["curves"]["curve"] == {"mean": [1.5, 3.0], "least": [0, 0], "most": [3, 6]}
    assert (record["verdict"], record["reason"]) == ("better", "the mean is 1.5")
    json.dumps(record, allow_nan=False)


def test_a_report_has_page_plot_figures_and_a_line_in_the_overview(tmp_path, monkeypatch):
    monkeypatch.setattr(reporting, "cached_embedder", lambda cache: None)
    page = reporting.run_and_write([TOY], 2, folder=tmp_path)
    assert page in (tmp_path / "toy.md").read_text().replace("\n![A toy](toy.png)\n", "")
    assert "**Not reproduced**: the mean is 0.5." in page
    assert "python -m benchmarks experiments toy --seeds 2" in page
    assert "| score | 0.500" in page
    assert json.loads((tmp_path / "toy.json").read_text())["seeds"] == 2
    assert (tmp_path / "toy.png").read_bytes().startswith(b"\x89PNG")
    overview = (tmp_path / "README.md").read_text()
    assert "[A toy](toy.md)" in overview
    reporting.run_and_write([TOY], 4, folder=tmp_path)
    assert (tmp_path / "README.md").read_text().count("toy.md") == 1


def test_all_and_several_are_asked_for_by_name():
    assert [one.name for one in select_experiments("all")] == list(EXPERIMENTS)
    assert [one.name for one in select_experiments("noise, prune,noise")] == ["noise", "prune"]
    for names in ("", " , ", "nothing", "noise,nothing", "all,noise"):
        with pytest.raises(InvalidInputError, match="procedural"):
            select_experiments(names)


@pytest.mark.parametrize("name", list(EXPERIMENTS))
def test_every_experiment_has_its_report_in_the_docs(name):
    record = json.loads((REPORTS / f"{name}.json").read_text(encoding="utf-8"))
    assert record["seeds"] == 10
    assert (REPORTS / f"{name}.md").read_text(encoding="utf-8") == reporting.render_page(
        record, f"{name}.png" if record["curves"] else None
    )
    assert f"({name}.md)" in (REPORTS / "README.md").read_text(encoding="utf-8")
