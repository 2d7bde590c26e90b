"""The chart and the table of the README show what evaluations measured."""

import json
import re
from pathlib import Path

import pytest

from benchmarks.chart import draw_chart
from crabpath_retrievers.errors import InvalidInputError

ROOT = Path(__file__).parents[2]
CHART = ROOT / "docs" / "assets" / "recall.svg"
FIGURES = sorted((ROOT / "docs" / "research" / "figures").glob("*.json"))
METHODS = ("dense", "lexical", "hybrid", "cold")
ROWS = {"hotpotqa": ("HotpotQA dev", "full@5"), "2wiki": ("2WikiMultihopQA dev sample", "full@5")}
ROWS["multihoprag"] = ("MultiHop-RAG", "full@10")


def read_texts(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text(encoding="utf-8"))


def test_the_chart_is_drawn_from_the_figures(tmp_path):
    draw_chart(FIGURES, tmp_path / "chart.svg", "full@5")
    assert read_texts(tmp_path / "chart.svg") == read_texts(CHART)
    for file in FIGURES:
        run = json.loads(file.read_text(encoding="utf-8"))
        shown = {f"{run['methods'][method]['full@5']:.3f}" for method in METHODS}
        assert shown <= set(read_texts(CHART))


@pytest.mark.parametrize("file", FIGURES, ids=lambda file: file.stem)
def test_the_table_of_the_readme_has_the_figures(file):
    run = json.loads(file.read_text(encoding="utf-8"))
    name, metric = ROWS[run["dataset"]["name"]]
    *others, own = [run["methods"][method][metric] for method in METHODS]
    low, high = run["methods"]["cold"][f"{metric}_ci95"]
    interval = f"**{own:.3f}** ({low:.3f} to {high:.3f})"
    counts = (run["dataset"]["queries"], f"{run['dataset']['documents']:,}")
    cells = [f"{name}, {metric}", *counts, *(f"{one:.3f}" for one in others), interval]
    row = f"| {' | '.join(map(str, cells))} |".replace(" 0.", " .").replace("**0.", "**.")
    assert row.replace("(0.", "(.") in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("content", "sentence"),
    [("[]", "is no evaluation"), ("{", "is no evaluation"), (None, "has no full@7")],
)
def test_what_is_no_evaluation_is_refused(content, sentence, tmp_path):
    file = tmp_path / "run.json"
    file.write_text(FIGURES[0].read_text(encoding="utf-8") if content is None else content)
    with pytest.raises(InvalidInputError, match=sentence):
        draw_chart([file], tmp_path / "chart.svg", "full@7")
    assert not (tmp_path / "chart.svg").exists()
