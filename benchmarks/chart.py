"""The chart of the README: one measure of several evaluations, as an SVG file."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import read_figures
from crabpath_lab.output import make_folder
from crabpath_lab.reporting.plots import error_bars
from crabpath_retrievers import InvalidInputError

_SHOWN = {
    "dense": ("plain Chroma", "#b0bec5"),
    "lexical": ("BM25", "#90a4ae"),
    "hybrid": ("hybrid (both, fused)", "#607d8b"),
    "cold": ("CrabPath, before any feedback", "#f4511e"),
}
_NAMES = {
    "hotpotqa": "HotpotQA",
    "2wiki": "2WikiMultihopQA",
    "musique": "MuSiQue",
    "multihoprag": "MultiHop-RAG",
    "hipporag": "HippoRAG's files",
    "beir": "BEIR",
}
_WIDTH = 0.2  # of a bar; the groups are 1 apart


def draw_chart(names: Sequence[str], write: Path, metric: str) -> None:
    """Draw a group of bars per evaluation, a bar per method, with its 95 % interval.

    Args:
        names: Runs of ``docs/figures.json``, one per data set.
        write: The SVG file.
        metric: A measure that all runs have, such as ``full@5``.

    Raises:
        InvalidInputError: A run is no evaluation of these methods with this measure.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    runs = [_read_run(name, metric) for name in names]
    make_folder(write.parent, "hold the chart")
    # Text stays text, and nothing in the file depends on when or where it was drawn.
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "crabpath", "font.size": 9}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.subplots()
        for number, (method, (label, colour)) in enumerate(_SHOWN.items()):
            places = [group + (number - 1.5) * _WIDTH for group in range(len(runs))]
            values = [run["methods"][method][metric] for run in runs]
            ends = error_bars(values, [run["methods"][method][f"{metric}_ci95"] for run in runs])
            bars = axes.bar(places, values, _WIDTH, yerr=ends, label=label, color=colour)
            axes.bar_label(bars, [f"{value:.3f}" for value in values], padding=2, fontsize=8)
        axes.set_xticks(range(len(runs)), [_describe(run) for run in runs])
        axes.set_ylim(0, 1.12)
        axes.set_ylabel(f"questions with all evidence\namong the results ({metric})")
        axes.spines[["top", "right"]].set_visible(False)
        figure.legend(loc="outside upper center", ncols=len(_SHOWN), frameon=False)
        figure.savefig(write, format="svg", metadata={"Date": None, "Creator": None})


def _read_run(name: str, metric: str) -> Mapping[str, Any]:
    run: dict[str, Any] = read_figures().get(name, {}).get("figures", {})
    methods = run.get("methods", {})
    if any(metric not in methods.get(method, {}) for method in _SHOWN):
        msg = (
            f"the run {name} has no {metric} of {', '.join(_SHOWN)}: enter it in docs/figures.json"
        )
        raise InvalidInputError(msg)
    return run | {"name": name}


def _describe(run: Mapping[str, Any]) -> str:
    about = run["dataset"]
    counts = f"{about['queries']} questions, {about['documents']:,} documents"
    return f"{_NAMES[run['name']]}\n{counts}"
