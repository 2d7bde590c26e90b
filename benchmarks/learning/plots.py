"""Plots of what learning gives, as PNG files, by matplotlib."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crabpath_lab.reporting.plots import DPI, error_bars
from crabpath_lab.reporting.tables import Figures

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_METRIC = "full@5"
_ROW_INCHES = 0.28  # inches of a row of the grid
_OFFSET = 0.03  # of a pass, from one variant to the next


def write_learning_plots(figures: Figures, folder: Path) -> dict[str, str]:
    """Draw the parts that have a plot.

    Args:
        figures: What was measured.
        folder: A directory that exists.

    Returns:
        Titles by name of the file.
    """
    plots: dict[str, str] = {}
    if figures.get("grid", {}).get("cells"):
        plots["grid.png"] = f"Learned minus frozen, {_METRIC}, with 95 % intervals"
        _draw_grid(folder / "grid.png", plots["grid.png"], figures["grid"]["cells"])
    if figures.get("endurance", {}).get("windows"):
        plots["endurance.png"] = "A long stream: time and size"
        path, windows = folder / "endurance.png", figures["endurance"]["windows"]
        _draw_endurance(path, plots["endurance.png"], windows)
    if figures.get("contamination", {}).get("rows"):
        of = figures["contamination"]
        plots["contamination.png"] = f"{of['metric']} over the passes, with 95 % intervals"
        _draw_contamination(folder / "contamination.png", plots["contamination.png"], of)
    return plots


def _draw_grid(path: Path, title: str, cells: Sequence[Mapping[str, Any]]) -> None:
    """One dot per cell, one colour per kind of feedback."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 1.5 + _ROW_INCHES * len(cells)), layout="constrained")
    axes = figure.subplots()
    axes.set_title(title)
    for kind in dict.fromkeys(cell["feedback"] for cell in cells):
        places = [place for place, cell in enumerate(cells) if cell["feedback"] == kind]
        of = [cells[place]["metrics"][_METRIC] for place in places]
        values = [row["difference"] for row in of]
        ends = error_bars(values, [row["ci95"] for row in of])
        axes.errorbar(values, places, xerr=ends, fmt="o", capsize=3, label=kind)
    axes.axvline(0, color="grey", linewidth=1)
    names = [f"{cell['dataset']}, {cell['feedback']}, noise {cell['noise']}" for cell in cells]
    axes.set_yticks(range(len(cells)), names, fontsize=8)
    axes.invert_yaxis()
    axes.legend()
    figure.savefig(path, dpi=DPI)


def _draw_contamination(path: Path, title: str, of: Mapping[str, Any]) -> None:
    """One panel per data set and share of noise, one line per variant."""
    from matplotlib.figure import Figure

    rows = of["rows"]
    panels = list(dict.fromkeys((row["dataset"], row["noise"]) for row in rows))
    figure = Figure(figsize=(4.5 * len(panels), 5), layout="constrained")
    figure.suptitle(title)
    drawn = figure.subplots(1, len(panels), squeeze=False)[0]
    for axes, (dataset, noise) in zip(drawn, panels, strict=True):
        own = [row for row in rows if (row["dataset"], row["noise"]) == (dataset, noise)]
        for place, row in enumerate(own):
            values = [epoch["mean"] for epoch in row["epochs"]]
            ends = error_bars(values, [epoch["mean_ci95"] for epoch in row["epochs"]])
            # Side by side, as intervals on top of each other cannot be distinguished.
            passes = [n + 1 + _OFFSET * (place - len(own) / 2) for n in range(len(values))]
            axes.errorbar(passes, values, yerr=ends, marker=".", capsize=2, label=row["variant"])
        axes.set_title(f"{dataset}, noise {noise}", fontsize=9)
        axes.set_xticks(range(1, 1 + len(own[0]["epochs"])))
        axes.set_xlabel("pass")
    figure.legend(*drawn[0].get_legend_handles_labels(), loc="outside lower center", fontsize=8)
    figure.savefig(path, dpi=DPI)


def _draw_endurance(path: Path, title: str, windows: Sequence[Mapping[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 7), layout="constrained")
    figure.suptitle(title)
    (retrieve, record), (memory, store) = figure.subplots(2, 2)
    _draw_times(retrieve, windows, "retrieve_ms", "retrieving, ms")
    frozen = [window for window in windows if "frozen_ms" in window]
    for name, label in (("unrecorded_ms", "unrecorded p50"), ("frozen_ms", "frozen p50")):
        _draw_line(retrieve, frozen, [window[name]["p50"] for window in frozen], label)
    retrieve.legend()
    _draw_times(record, windows, "record_ms", "learning from one answer, ms")
    record.legend()
    for axes, name, label in (
        (memory, "memory_mb", "resident memory, MiB"),
        (store, "store_mb", "store on disk, MiB"),
    ):
        _draw_line(axes, windows, [window[name] for window in windows], label)
        axes.set_ylabel(label)
    for axes in (retrieve, record, memory, store):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.05)
        axes.set_xlabel("turns")
    figure.savefig(path, dpi=DPI)


def _draw_times(axes: "Axes", windows: Sequence[Mapping[str, Any]], name: str, label: str) -> None:
    for percentile in ("p50", "p95"):
        _draw_line(axes, windows, [window[name][percentile] for window in windows], percentile)
    axes.set_ylabel(label)


def _draw_line(
    axes: "Axes", windows: Sequence[Mapping[str, Any]], values: Sequence[float], label: str
) -> None:
    axes.plot([window["turns"] for window in windows], values, marker=".", label=label)
