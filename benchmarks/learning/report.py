"""What learning gives, as Markdown: one section per part that was measured."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks.learning.memory_tables import render_contamination, render_regions
from benchmarks.learning.plots import write_learning_plots
from crabpath_lab.reporting.tables import Figures, format_interval, render_table

_NOTE = """\
Every answer was given and kept before its label was read. Intervals are 95 % BCa bootstraps over
questions, p is a two-sided permutation test of the mean paired difference (9,999 resamples each);
p is not corrected for the number of rows."""
_GRID_NOTE = """\
Differences are learned minus frozen over one pass; each question counts once, with its mean over
all orders. `orders` is the lowest and the highest difference of a single order, `below` whether
the interval of the row, and of how many orders, lies below 0."""
_ABLATION_NOTE = """\
Each cell has the mean and the paired difference to `all` on the same stream. `only` leaves one
mechanism on; `frozen` learns nothing. The second pass repeats the questions of the first."""
_COMPRESSION_NOTE = """\
At most ten documents, only those with at least the probability `confident`; dense always returns
ten. `first` is asked before any feedback on the question, `again` and `reworded` after a
pass with feedback on it: they show what is remembered, not what carries over to new questions.
Differences are those of full evidence to dense."""
_ENDURANCE_NOTE = """\
Milliseconds contain no embedding. `unrecorded` and `frozen` are medians of the learner and its
twin on every tenth question, neither keeping a record of the turn; `ratio` is that of the two.
Slopes are per 1,000 turns, by least squares over windows."""
_ROUTED = ("calls_later", "tokens_per_call", "failures")
_ROUTING_NOTE = """\
Fifty questions are asked eight times, each time with 20 % of their words left out. The model is
{model}: it follows what shares words with the question and tosses a coin for three candidates in
ten; its judgement says nothing about real models. `later` is after 200 turns."""


def write_learning_report(figures: Figures, folder: Path) -> None:
    """Write ``report.md`` and its plots into a directory that exists."""
    plots = write_learning_plots(figures, folder)
    shown = [f"![{title}]({name})" for name, title in plots.items()]
    text = "\n\n".join([render_learning(figures), *shown])
    (folder / "report.md").write_text(text + "\n", encoding="utf-8")


def render_learning(figures: Figures) -> str:
    """The tables."""
    parts = ["# What learning gives", _render_datasets(figures), _NOTE]
    sections = {
        "grid": ("Does it hurt?", _render_grid),
        "ablation": ("Mechanisms", _render_ablation),
        "compression": ("Shorter answers", _render_compression),
        "endurance": ("Endurance", _render_endurance),
        "routing": ("Calls of a chat model", _render_routing),
        "contamination": ("Contamination", render_contamination),
        "regions": ("Regions", render_regions),
    }
    for name, (title, shown) in sections.items():
        if name in figures:
            parts += [f"## {title}", *shown(figures[name])]
    return "\n\n".join(parts)


def _render_datasets(figures: Figures) -> str:
    head = ["data set", "file", "questions", "documents", "k"]
    rows = (
        [name, of["file"], of["questions"], of["documents"], of["k"]]
        for name, of in figures["datasets"].items()
    )
    return f"{render_table(head, rows)}\n\nEmbedding {figures['embedding']}; {figures['wall_s']} s."


def _render_grid(grid: Mapping[str, Any]) -> Iterator[str]:
    head = ["data set", "feedback", "noise", "measure", "learned", "frozen", "difference", "p"]
    rows = (
        [cell["dataset"], cell["feedback"], cell["noise"], name, *_comparison_cells(cell, name)]
        for cell in grid["cells"]
        for name in cell["metrics"]
    )
    yield render_table([*head, "orders", "below"], rows)
    yield _GRID_NOTE
    summary = (
        [kind, name, of["cells"], f"{of['difference']:+.3f}", f"{of['least']:+.3f}", of["below"]]
        for kind, metrics in grid["kinds"].items()
        for name, of in metrics.items()
    )
    yield render_table(
        ["feedback", "measure", "cells", "mean difference", "lowest", "below"], summary
    )
    for left in grid["left_out"]:
        yield f"`{left['feedback']}` was left out on {left['dataset']}: its file has no answers."


def _comparison_cells(cell: Mapping[str, Any], name: str) -> list[object]:
    of = cell["metrics"][name]
    orders = [order["metrics"][name] for order in cell["orders"]]
    differences = [order["difference"] for order in orders]
    below = sum(order["below"] for order in orders)
    return [
        f"{of['learned']:.3f}",
        f"{of['frozen']:.3f}",
        format_interval(of["difference"], of["ci95"], sign="+"),
        _format_p(of["p"]),
        f"{min(differences):+.3f} to {max(differences):+.3f}",
        f"{'**yes**' if of['below'] else 'no'}, {below} of {len(orders)}",
    ]


def _render_ablation(ablation: Mapping[str, Any]) -> Iterator[str]:
    parts = next((list(row["parts"]) for row in ablation["rows"]), [])
    rows = (
        [
            row["dataset"],
            row["feedback"],
            row["variant"],
            *map(_format_comparison, row["parts"].values()),
        ]
        for row in ablation["rows"]
    )
    yield f"{ablation['metric']}:"
    yield render_table(["data set", "feedback", "variant", *parts], rows)
    yield _ABLATION_NOTE


def _format_comparison(of: Mapping[str, Any]) -> str:
    if of["p"] is None:
        return f"{of['mean']:.3f}"
    difference = format_interval(of["difference"], of["ci95"], sign="+")
    return f"{of['mean']:.3f}; {difference}, p {of['p']:.4f}"


def _render_compression(compression: Mapping[str, Any]) -> Iterator[str]:
    rows = (
        [
            row["asked"],
            row["method"],
            "–" if row["confident"] is None else row["confident"],
            format_interval(row["documents"], row["documents_ci95"]),
            format_interval(row["full"], row["full_ci95"]),
            format_interval(row["difference"], row["ci95"], sign="+"),
            _format_p(row["p"]),
        ]
        for row in compression["rows"]
    )
    yield f"{compression['dataset']}:"
    head = ["asked", "method", "confident", "documents", "full evidence", "difference", "p"]
    yield render_table(head, rows)
    yield _COMPRESSION_NOTE


def _render_endurance(endurance: Mapping[str, Any]) -> Iterator[str]:
    head = ["turns", "retrieve p50", "p95", "record p50", "p95", "unrecorded", "frozen"]
    rows = (
        [
            window["turns"],
            *(window["retrieve_ms"][p] for p in ("p50", "p95")),
            *(window["record_ms"][p] for p in ("p50", "p95")),
            *(window.get(name, {}).get("p50", "–") for name in ("unrecorded_ms", "frozen_ms")),
            window.get("ratio", "–"),
            window.get("whole_ratio", "–"),
            window["memory_mb"],
            window["store_mb"],
        ]
        for window in endurance["windows"]
    )
    yield f"{endurance['dataset']}:"
    yield render_table([*head, "ratio", "with embedding", "memory MiB", "store MiB"], rows)
    slopes = endurance["slopes"]
    names = dict.fromkeys(name for own in slopes.values() for name in own)
    shown = ([name, *(_format_slope(own[name]) for own in slopes.values())] for name in names)
    yield render_table(["per 1,000 turns", *slopes], shown)
    yield _ENDURANCE_NOTE


def _render_routing(routing: Mapping[str, Any]) -> Iterator[str]:
    ends = next(([w["turns"] for w in row["windows"]] for row in routing["rows"]), [])
    for name, title in (("calls", "Calls per turn"), (routing["metric"], routing["metric"])):
        yield f"{title}, in windows that end with turn:"
        rows = (
            [row["dataset"], row["router"], row["feedback"], *(w[name] for w in row["windows"])]
            for row in routing["rows"]
        )
        yield render_table(["data set", "router", "feedback", *ends], rows)
    shown = (
        [row[name] for name in ("dataset", "router", "feedback", *_ROUTED)]
        for row in routing["rows"]
    )
    yield render_table(
        ["data set", "router", "feedback", "calls later", "tokens a call", "failed"], shown
    )
    yield _ROUTING_NOTE.format(model=routing["model"])


def _format_slope(value: float | None) -> str:
    return "–" if value is None else f"{value:+.3f}"


def _format_p(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
