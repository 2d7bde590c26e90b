"""``crabpath regions``: which kind of step succeeds in which region."""

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Namespace,
    Store,
    existing_store,
    out,
    report_errors,
)
from crabpath_retrievers.core.query import label_of, namespace_of
from crabpath_retrievers.errors import InvalidInputError, NotFoundError
from crabpath_retrievers.evaluation.requirements import require_eval_extra
from crabpath_retrievers.learning.standalone import parse_settings, read_published_settings
from crabpath_retrievers.regions.hubs import Regions
from crabpath_retrievers.regions.models import RegionModels
from crabpath_retrievers.regions.overview import RegionOverview, RegionSummary, summarise_regions

_BEST = 3  # actions of a region that a table shows
_TITLE = 40


@report_errors
def show_regions(
    level: Annotated[
        int | None, typer.Option(help="Level of the regions; none: the finest with experience.")
    ] = None,
    namespace: Namespace = "default",
    task: Annotated[str | None, typer.Option(help="Only this type of task.")] = None,
    most: Annotated[int, typer.Option(help="Regions to show: the most visited ones.")] = 20,
    sizes: Annotated[bool, typer.Option(help="Count documents; reads the whole corpus.")] = True,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf.")
    ] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show which regions turns visited, with what outcome, and which steps succeed there."""
    if most < 1:
        msg = f"--most must be at least 1, not {most}"
        raise InvalidInputError(msg)
    wanted = None if task is None else label_of("--task", task)
    if plot is not None:
        require_eval_extra()
    with existing_store(store) as opened:
        settings = parse_settings(read_published_settings(opened)).region
        models = RegionModels(opened, Regions(opened, settings), settings)
        if not models.regions.levels():
            msg = (
                "this memory has no regions yet: they need two hubs, "
                "and about one document in sixteen becomes one"
            )
            raise NotFoundError(msg)
        summary = summarise_regions(models, namespace_of(namespace), level, wanted, most)
        if summary is None:
            msg = (
                f"namespace {namespace!r:.250} has no experience yet: record the outcomes of its "
                "turns, or learn from episodes"
            )
            raise NotFoundError(msg)
        counted = Counter(models.assignments(level).values()) if sizes else None
    if plot is not None:
        from crabpath_retrievers.cli.region_plot import write_plot

        write_plot(summary, counted, plot)
    if as_json:
        typer.echo(json.dumps(_as_json(summary, counted, namespace, wanted)))
        return
    _show(summary, counted)
    if plot is not None:
        out.print(f"Drawn: {escape(str(plot))}", style="dim")


def _show(summary: RegionOverview, sizes: Mapping[str, int] | None) -> None:
    titles = dict(zip(summary.hubs.ids, summary.hubs.titles, strict=True))
    columns = ("region", *(() if sizes is None else ("size",)), "quality", "visits")
    table = Table(*columns, "best actions: success (share)", "leads to")
    for row in summary.rows:
        size = () if sizes is None else (str(sizes.get(row.region, 0)),)
        numbers = (*size, f"{row.quality:.0%}", f"{row.arrivals:.4g}")
        best = [
            f"{_shorten(score.action)} {score.success:.0%} ({score.share:.0%})"
            for score in row.actions[:_BEST]
        ]
        table.add_row(
            _shorten(row.title or row.region), *numbers, "\n".join(best), _next_region(row, titles)
        )
    table.caption = (
        f"{len(summary.rows)} of {summary.visited} visited regions; level "
        f"{summary.hubs.level} has {len(summary.hubs.ids)}; counted levels: "
        f"{', '.join(map(str, summary.levels))}"
    )
    out.print(table)
    everywhere = Table("action", "success", "steps", title="All regions together")
    for score in summary.actions:
        everywhere.add_row(_shorten(score.action), f"{score.success:.0%}", f"{score.trials:.4g}")
    out.print(everywhere)


def _next_region(row: RegionSummary, titles: Mapping[str, str]) -> str:
    if not row.next_regions:
        return "-"
    lead = row.next_regions[0]
    name = "itself" if lead.region == row.region else _shorten(titles[lead.region] or lead.region)
    return f"{name} {lead.share:.0%}"


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    return escape(line if len(line) <= _TITLE else f"{line[: _TITLE - 1]}…")


def _as_json(
    summary: RegionOverview, sizes: Mapping[str, int] | None, namespace: str, task: str | None
) -> dict[str, Any]:
    return {
        "level": summary.hubs.level,
        "levels": summary.levels,
        "hubs": len(summary.hubs.ids),
        "visited": summary.visited,
        "namespace": namespace,
        "task": task,
        "regions": [
            {
                "region": row.region,
                "title": row.title,
                "size": None if sizes is None else sizes.get(row.region, 0),
                "quality": row.quality,
                "came": row.arrivals,
                "actions": [score._asdict() for score in row.actions],
                "leads": [lead._asdict() for lead in row.next_regions],
            }
            for row in summary.rows
        ],
        "actions": [score._asdict() for score in summary.actions],
    }
