"""Reports of experiments: a page and a plot for each, and one table over all."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.experiments.experiment import Experiment
from benchmarks.experiments.run import run_experiment
from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.evaluation.embedding import cached_embedder
from crabpath_retrievers.evaluation.output import make_folder
from crabpath_retrievers.evaluation.reporting.plots import DPI
from crabpath_retrievers.evaluation.reporting.tables import format_interval, render_table

_HEAD = ("figure", "mean over seeds (95 %)", "least", "most")
_ABOUT = """\
Claims of the papers, reproduced with the retriever, feedback and maintenance that users have.
`make experiments` writes these pages anew."""
_COMMAND = "python -m benchmarks experiments {name} --seeds {seeds}"


def run_and_write(
    wanted: Sequence[Experiment],
    seeds: int,
    *,
    folder: Path | None = None,
    cache: Path | None = None,
) -> str:
    """Run experiments and write their reports; each is written as soon as it is done.

    Args:
        wanted: Which.
        seeds: Number of runs of each, at least 1.
        folder: Directory for ``NAME.md``, ``NAME.json``, ``NAME.png`` and ``README.md``, which
            has a line for every report that lies there; None writes nothing.
        cache: Directory that keeps embeddings.

    Returns:
        The reports, as Markdown.

    Raises:
        InvalidInputError: No seeds, or a directory that cannot be used.
    """
    if seeds < 1:
        msg = f"an experiment needs at least one seed, not {seeds}"
        raise InvalidInputError(msg)
    place = None if folder is None else make_folder(folder, "hold the reports")
    embeddings, pages = cached_embedder(cache=cache), list[str]()
    for experiment in wanted:
        record = run_experiment(experiment, embeddings, seeds)
        pages.append(render_page(record))
        if place is not None:
            _write(record, place)
    return "\n".join(pages)


def render_page(record: Mapping[str, Any], plot: str | None = None) -> str:
    """The report of one experiment, as Markdown."""
    rows = [
        (name, format_interval(of["mean"], of["ci95"]), f"{of['least']:.3f}", f"{of['most']:.3f}")
        for name, of in record["figures"].items()
    ]
    command = _COMMAND.format(name=record["name"], seeds=record["seeds"])
    parts = [
        f"# {record['title']}",
        f"**{record['verdict'].capitalize()}**: {record['reason']}.",
        f"Paper: {record['paper']}.",
        *([f"Held to: {record['must']}."] if record["must"] else []),
        record["scene"],
        f"    {command}",
        f"{record['seeds']} seeds, all-MiniLM-L6-v2, no language model.",
        render_table(_HEAD, rows),
        *([f"![{record['title']}]({plot})"] if plot else []),
    ]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _write(record: Mapping[str, Any], folder: Path) -> None:
    name, plot = record["name"], None
    if record["curves"]:
        plot = f"{name}.png"
        _draw(record, folder / plot)
    (folder / f"{name}.json").write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    (folder / f"{name}.md").write_text(render_page(record, plot), encoding="utf-8")
    (folder / "README.md").write_text(_render_overview(folder), encoding="utf-8")


def _render_overview(folder: Path) -> str:
    """The overview: one line per report in the folder."""
    records = [
        json.loads(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.json"))
    ]
    rows = [
        (f"[{r['title']}]({r['name']}.md)", r["paper"], r["verdict"], r["reason"], r["seeds"])
        for r in records
    ]
    lines = render_table(("experiment", "the paper", "verdict", "here", "seeds"), rows)
    return f"# Experiments\n\n{_ABOUT}\n\n{lines.rstrip()}\n"


def _draw(record: Mapping[str, Any], path: Path) -> None:
    """The mean of every curve, in a band from the least to the most of all seeds."""
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
