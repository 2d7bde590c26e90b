"""The chart of the README shows what evaluations measured."""

import re
from pathlib import Path

import pytest

from benchmarks.chart import draw_chart
from benchmarks.figures import look_up, read_figures
from crabpath_retrievers.errors import InvalidInputError

CHART = Path(__file__).parents[2] / "docs" / "assets" / "recall.svg"
RUNS = ["2wiki", "hotpotqa", "multihoprag"]


def read_texts(svg):
    return re.findall(r"<text[^>]*>([^<]+)</text>", svg.read_text(encoding="utf-8"))


def test_the_chart_is_drawn_from_the_figures(tmp_path):
    draw_chart(RUNS, tmp_path / "chart.svg", "full@5")
    assert read_texts(tmp_path / "chart.svg") == read_texts(CHART)
    for name in RUNS:
        shown = {f"{value:.3f}" for value in look_up(f"{name}/methods/*/full@5", read_figures())}
        assert shown <= set(read_texts(CHART))


@pytest.mark.parametrize(
    ("name", "metric", "sentence"),
    [("hotpotqa", "full@7", "has no full@7"), ("no such run", "full@5", "has no full@5")],
)
def test_what_is_no_evaluation_is_refused(name, metric, sentence, tmp_path):
    with pytest.raises(InvalidInputError, match=sentence):
        draw_chart([name], tmp_path / "chart.svg", metric)
    assert not (tmp_path / "chart.svg").exists()
