"""Reports of experiments: one page of verdicts, one of all figures, and a plot for each."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from crabpath_lab.embedding import cached_embedder
from crabpath_lab.experiments.experiment import Answer, Experiment, Interval
from crabpath_lab.experiments.run import run_experiment
from crabpath_lab.output import make_folder
from crabpath_lab.reporting.plots import DPI
from crabpath_lab.reporting.tables import format_interval, render_table
from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.vectors.embedder import DEFAULT_MODEL

_HEAD = ("figure", "mean over seeds (95 %)", "least", "most")
_HELD_TO = ("held to", "mean over seeds (95 %)", "holds")
_MOST_SEEDS = 1000
_ORDER = ("not reproduced", "undecided")  # what failed is read before what worked
_VERDICTS = """\
# What the papers claim, and what we found

*For researchers who know the papers and ask whether their claims hold.*

Claims of the papers behind CrabPath ([bibliography](../bibliography.md)), tried with the retriever,
feedback and maintenance that users have. Claims that were not reproduced come first. Each line
leads to its figures and its command, which works wherever `crabpath-retrievers[eval,local]` is
installed (`crabpath experiment --list` names all); `make experiments` writes both pages.

Verdicts are by 95 % intervals over seeds: a criterion holds, or does not, where the whole interval
is on one side of its line; it is undecided where it crosses the line, of a single seed, and of
fewer than four seeds that agree. Means have Student's interval. What happens or not has Wilson's
interval of the share of seeds, and the line is half of them. What is promised, as exact undo is,
has to hold in every seed. The papers' own figures are of single runs. Claims
[without an experiment](not-tried.md) have their own page."""
_FIGURES = """\
# Figures of the experiments

*For researchers who want the figures of one experiment.*

What each experiment does, what it is held to, and what it measured. Verdicts in one table:
[what the papers claim, and what we found](README.md)."""
_COMMAND = "crabpath experiment {name} --seeds {seeds}"


def run_and_write(
    wanted: Sequence[Experiment],
    seeds: int,
    *,
    embedding: str = DEFAULT_MODEL,
    folder: Path | None = None,
    cache: Path | None = None,
) -> str:
    """Run experiments and write their reports; each is written as soon as it is done.

    Args:
        wanted: Which.
        seeds: Number of runs of each, 1 to 1000.
        embedding: Name of the embedder, as ``crabpath eval`` takes it.
        folder: Directory for ``NAME.json`` and ``NAME.png``, and for ``README.md`` (verdicts) and
            ``figures.md``, which cover every report that lies there; None writes nothing.
        cache: Directory that keeps embeddings.
    """
    if not 1 <= seeds <= _MOST_SEEDS:
        msg = f"an experiment needs at least one seed and at most {_MOST_SEEDS}, not {seeds}"
        raise InvalidInputError(msg)
    place = None if folder is None else make_folder(folder, "hold the reports")
    embeddings, pages = cached_embedder(embedding, cache), list[str]()
    for experiment in wanted:
        record = {**run_experiment(experiment, embeddings, seeds), "embedding": embedding}
        pages.append(render_page(record))
        if place is not None:
            _write(record, place)
    return "\n".join(pages)


def render_page(record: Mapping[str, Any], plot: str | None = None) -> str:
    """Render the report of one experiment as Markdown."""
    rows = [
        (name, format_interval(of["mean"], of["ci95"]), f"{of['least']:.3f}", f"{of['most']:.3f}")
        for name, of in record["figures"].items()
    ]
    command = _COMMAND.format(name=record["name"], seeds=record["seeds"])
    parts = [
        f"## {record['title']}",
        f"**{record['verdict'].capitalize()}**: {record['reason']}.",
        f"Paper: {record['paper']}.",
        record["scene"],
        f"    {command}",
        _describe_runs(record),
        render_table(_HELD_TO, [_criterion_row(**one) for one in record["criteria"]]),
        render_table(_HEAD, rows),
        *([f"![{record['title']}]({plot})"] if plot else []),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _describe_runs(record: Mapping[str, Any]) -> str:
    counted = "One seed" if record["seeds"] == 1 else f"{record['seeds']} seeds"
    return f"{counted}, {record['embedding'].rpartition('/')[2]}, no language model."


def _criterion_row(
    name: str, mean: float, interval: Interval | None, answer: Answer
) -> tuple[str, str, str]:
    return name, format_interval(mean, interval), answer


def _write(record: Mapping[str, Any], folder: Path) -> None:
    name = record["name"]
    if record["curves"]:
        _draw(record, folder / f"{name}.png")
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for page, text in render_pages(folder).items():
        (folder / page).write_text(text, encoding="utf-8")


def render_pages(folder: Path) -> dict[str, str]:
    """Render the pages of verdicts and of figures from every report in the folder."""
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    records.sort(key=lambda record: (*_ORDER, record["verdict"]).index(record["verdict"]))
    rows = [
        (f"[{r['title']}](figures.md#{_anchor(r['title'])})", r["paper"], r["verdict"], r["reason"])
        for r in records
    ]
    table = render_table(("experiment", "the paper", "verdict", "here"), rows)
    figures = [
        render_page(record, f"{record['name']}.png" if record["curves"] else None)
        for record in records
    ]
    return {
        "README.md": f"{_VERDICTS}\n\n{table}\n",
        "figures.md": "\n".join((f"{_FIGURES}\n", *figures)),
    }


def _anchor(title: str) -> str:
    """Make the anchor of a heading, as GitHub and Python-Markdown do."""
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _draw(record: Mapping[str, Any], path: Path) -> None:
    """Draw the mean of every curve, in a band from the least to the most of all seeds."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    axes.set_title(record["title"])
    for name, curve in record["curves"].items():
        turns = range(1, len(curve["mean"]) + 1)
        axes.plot(turns, curve["mean"], label=name)
        axes.fill_between(turns, curve["least"], curve["most"], alpha=0.2)
    axes.set_xlabel(record["across"])
    axes.set_ylabel(record["up"])
    axes.legend()
    figure.savefig(path, dpi=DPI)
