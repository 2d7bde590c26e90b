"""Plots of a run, as PNG files, by matplotlib."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crabpath_lab.reporting.tables import Figures, metric_names, stream_figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_WIDTH = 0.8  # of a group of bars; the groups are 1 apart
_LINE = 0.16  # inches of a line of small text
DPI = 150


def write_plots(figures: Figures, folder: Path) -> dict[str, str]:
    """Draw the run into a directory that exists; returns titles by name of the file."""
    plots: dict[str, tuple[str, Callable[[Axes, Figures], None]]] = {
        "quality.png": ("Quality with 95 % intervals", _draw_quality),
        "latency.png": ("Milliseconds per question, embedding excluded", _draw_latency),
    }
    if figures["comparisons"]:
        plots["differences.png"] = ("Paired differences with 95 % intervals", _draw_differences)
    if stream_figures(figures):
        plots["learning.png"] = ("Learning, in tenths of a pass", _draw_learning)
    for name, (title, draw) in plots.items():
        _draw(folder / name, title, figures, draw)
    return {name: title for name, (title, _) in plots.items()}


def _draw(
    path: Path, title: str, figures: Figures, draw: "Callable[[Axes, Figures], None]"
) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 4.5), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    draw(axes, figures)
    figure.savefig(path, dpi=DPI)


def _draw_learning(axes: "Axes", figures: Figures) -> None:
    """Draw a line per learner, and one for the frozen twin, over the questions asked so far."""
    streams = stream_figures(figures)
    metric = [name for name in metric_names(figures) if name.startswith("full@")][-1]
    checkpoints = next(iter(streams.values()))["checkpoints"]
    asked = [point["asked"] for point in checkpoints]
    frozen = [point["frozen"][metric] for point in checkpoints]
    axes.plot(asked, frozen, color="grey", linestyle="--", label="frozen")
    for name, stream in streams.items():
        own = [point["learner"][metric] for point in stream["checkpoints"]]
        axes.plot(asked, own, marker="o", label=name)
    axes.set_xlabel("questions asked")
    axes.set_ylabel(metric)
    axes.legend()


def _draw_quality(axes: "Axes", figures: Figures) -> None:
    metrics = metric_names(figures)
    methods: Mapping[str, Any] = figures["methods"]
    width = _WIDTH / len(methods)
    for number, (name, of) in enumerate(methods.items()):
        places = [place + (number + 0.5) * width - _WIDTH / 2 for place in range(len(metrics))]
        values = [of[metric] for metric in metrics]
        intervals = [of[f"{metric}_ci95"] for metric in metrics]
        axes.bar(places, values, width, label=name)
        axes.errorbar(places, values, error_bars(values, intervals), fmt="none", ecolor="black")
    axes.set_xticks(range(len(metrics)), metrics, rotation=30)
    axes.set_ylim(0, 1)
    axes.legend(ncols=len(methods), loc="lower center", bbox_to_anchor=(0.5, -0.3))


def _draw_latency(axes: "Axes", figures: Figures) -> None:
    methods: Mapping[str, Any] = figures["methods"]
    places = range(len(methods))
    for percentile, shift in (("p50", -0.2), ("p95", 0.2)):
        values = [of["latency_ms"][percentile] for of in methods.values()]
        bars = axes.bar([place + shift for place in places], values, 0.4, label=percentile)
        axes.bar_label(bars, fmt="%.1f")
    axes.set_xticks(places, list(methods))
    axes.set_ylabel("ms")
    axes.legend()


def _draw_differences(axes: "Axes", figures: Figures) -> None:
    rows = figures["comparisons"]
    places = range(len(rows))
    values = [row["difference"] for row in rows]
    ends = error_bars(values, [row["ci95"] for row in rows])
    axes.errorbar(values, places, xerr=ends, fmt="o", capsize=3)
    axes.axvline(0, color="grey", linewidth=1)
    axes.set_yticks(places, [f"{r['a']} − {r['b']}, {r['metric']}" for r in rows], fontsize=7)
    axes.invert_yaxis()
    figure: Any = axes.figure  # each line of text needs its height
    figure.set_figheight(max(figure.get_figheight(), 1.0 + _LINE * len(rows)))


def error_bars(
    values: Sequence[float], intervals: Sequence[Sequence[float] | None]
) -> list[list[float]]:
    """Compute distances to both ends of intervals, rows below and above; 0 without interval."""
    ends = [given or (value, value) for value, given in zip(values, intervals, strict=True)]
    below = [max(0.0, v - low) for v, (low, _) in zip(values, ends, strict=True)]
    above = [max(0.0, high - v) for v, (_, high) in zip(values, ends, strict=True)]
    return [below, above]
