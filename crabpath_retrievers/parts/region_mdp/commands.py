"""``crabpath regions``: which step succeeds in which region, in tables and drawn."""

import warnings
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import RenderableType
from rich.markup import escape

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    Namespace,
    Output,
    Store,
    add_commands,
    dim,
    existing_store,
    make_table,
    stored_settings,
)
from crabpath_retrievers.core.extras import require_extra
from crabpath_retrievers.core.query import parse_label, parse_namespace
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.region_mdp.models import RegionModels
from crabpath_retrievers.parts.region_mdp.overview import (
    RegionOverview,
    RegionSummary,
    project_hubs,
    summarise_regions,
)
from crabpath_retrievers.regions import RegionIndex

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


_BEST = 3  # actions of a region that a table shows


def show_regions(
    level: Annotated[
        int | None, typer.Option(help="Level of the regions; none: the finest with experience.")
    ] = None,
    states: Annotated[
        bool, typer.Option("--states", help="What agents saw, in place of regions of documents.")
    ] = False,
    namespace: Namespace = "default",
    task: Annotated[str | None, typer.Option(help="Only this type of task.")] = None,
    most: Annotated[int, typer.Option(help="Regions to show: the most visited ones.")] = 20,
    sizes: Annotated[bool, typer.Option(help="Count documents; reads the whole corpus.")] = True,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw them: .png, .svg or .pdf.")
    ] = None,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Show which regions turns visited, with what outcome, and which steps succeed there."""
    if most < 1:
        msg = f"--most must be at least 1, not {most}"
        raise InvalidInputError(msg)
    wanted = None if task is None else parse_label("--task", task)
    if plot is not None:
        require_extra("eval", "--plot", "matplotlib")
    with existing_store(store) as opened:
        settings = stored_settings(opened).region
        models = RegionModels(opened, RegionIndex(opened, settings), settings)
        if not (states or models.regions.levels()):
            return _say_nothing(
                "This memory has no regions yet: they need two hubs, "
                "and about one document in sixteen becomes one."
            )
        summary = summarise_regions(
            models, parse_namespace(namespace), "states" if states else level, wanted, most
        )
        if summary is None:
            return _say_nothing(
                f"Namespace {namespace!r:.250} has no experience yet: record the outcomes of its "
                "turns, or learn from episodes; --states shows what agents saw in words."
            )
        counted = Counter(models.assignments(level).values()) if sizes and not states else None
    text = _make_tables(summary, counted)
    if plot is not None:
        write_plot(summary, counted, plot)
        text.append(dim(f"Drawn: {plot}"))
    return Output(_as_json(summary, counted, namespace, wanted), text)


def _say_nothing(why: str) -> Output:
    """Report that there is nothing to show, which is no error."""
    return Output({"regions": [], "actions": [], "reason": why}, [escape(why)])


def _make_tables(summary: RegionOverview, sizes: Mapping[str, int] | None) -> list[RenderableType]:
    titles = dict(zip(summary.hubs.ids, summary.hubs.titles, strict=True))
    columns = ("region", *(() if sizes is None else ("size",)), "quality", "visits")
    rows = []
    for row in summary.rows:
        size = () if sizes is None else (str(sizes.get(row.region, 0)),)
        best = [
            f"{_shorten(score.action)} {score.success:.0%} ({score.share:.0%})"
            for score in row.actions[:_BEST]
        ]
        numbers = (*size, f"{row.quality:.0%}", f"{row.arrivals:.4g}")
        name = _shorten(row.title or row.region)
        rows.append((name, *numbers, "\n".join(best), _next_region(row, titles)))
    caption = f"{len(summary.rows)} of {summary.visited} visited regions"
    if summary.hubs.level > 0:
        counted = ", ".join(map(str, summary.levels))
        caption += f"; level {summary.hubs.level} has {len(summary.hubs.ids)}; counted: {counted}"
    everywhere = [
        (_shorten(score.action), f"{score.success:.0%}", f"{score.trials:.4g}")
        for score in summary.actions
    ]
    return [
        make_table((*columns, "best actions: success (share)", "leads to"), rows, caption=caption),
        make_table(("action", "success", "steps"), everywhere, title="All regions together"),
    ]


def _next_region(row: RegionSummary, titles: Mapping[str, str]) -> str:
    if not row.next_regions:
        return "-"
    lead = row.next_regions[0]
    name = "itself" if lead.region == row.region else _shorten(titles[lead.region] or lead.region)
    return f"{name} {lead.share:.0%}"


def _shorten(text: str, longest: int = 40) -> str:
    """Cut a text to one line of at most ``longest`` characters."""
    line = " ".join(text.split())
    return line if len(line) <= longest else f"{line[: longest - 1]}…"


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


_DPI = 150
_LARGEST, _LEAST = 900.0, 20.0  # area of a marker, in square points
_LIKELY = 0.1  # share of a region's steps from which an arrow is drawn
_NAMED = 10
_ACTIONS = 12
_LETTERS = 28
_ARROW = {"arrowstyle": "-|>", "color": "0.45", "shrinkA": 5, "shrinkB": 5}


def write_plot(found: RegionOverview, sizes: Mapping[str, int] | None, file: Path) -> None:
    """Draw regions by the first two principal components of the hubs of their level.

    Markers are as large as the regions or, if ``sizes`` is None, as the number of turns. Their
    colour is the quality. An arrow shows that at least a tenth of a region's steps led to another
    one.

    Args:
        found: The regions, with what a namespace has learned in them.
        sizes: Number of documents by id of the hub; None if not counted.
        file: PNG, SVG or PDF, by its ending.

    Raises:
        InvalidInputError: The file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 6), layout="constrained")
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    _draw_map(figure, left, found, sizes)
    _draw_actions(right, found)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a font without some letter of a title
            figure.savefig(file, dpi=_DPI)
    except (OSError, ValueError) as error:
        msg = f"the plot cannot be written to {file}: {error}"
        raise InvalidInputError(msg) from error


def _draw_map(
    figure: "Figure", axes: "Axes", found: RegionOverview, sizes: Mapping[str, int] | None
) -> None:
    points = dict(zip(found.hubs.ids, project_hubs(found.hubs), strict=True))
    every = np.array(list(points.values()))
    axes.scatter(every[:, 0], every[:, 1], s=6, color="0.8", zorder=1)
    measure = {
        row.region: row.arrivals if sizes is None else float(sizes.get(row.region, 0))
        for row in found.rows
    }
    most = max(measure.values()) or 1.0
    shown = np.array([points[row.region] for row in found.rows])
    marks = axes.scatter(
        shown[:, 0],
        shown[:, 1],
        s=[max(_LEAST, _LARGEST * value / most) for value in measure.values()],
        c=[row.quality for row in found.rows],
        cmap="RdYlGn",
        vmin=0,
        vmax=1,
        edgecolors="black",
        linewidths=0.5,
        alpha=0.85,
        zorder=3,
    )
    figure.colorbar(marks, ax=axes, label="quality: P(success) of what comes by")
    _draw_arrows(axes, found, points)
    for row in found.rows[:_NAMED]:
        axes.annotate(
            _shorten(row.title or row.region, _LETTERS),
            points[row.region],
            fontsize=7,
            parse_math=False,
            xytext=(4, 4),
            textcoords="offset points",
            zorder=4,
        )
    by = "turns" if sizes is None else "documents"
    axes.set_title(f"Regions of level {found.hubs.level}; area: {by}; arrows: where steps led")
    axes.set_xlabel("first principal component of the hubs")
    axes.set_ylabel("second")


def _draw_arrows(
    axes: "Axes", found: RegionOverview, points: Mapping[str, NDArray[np.float64]]
) -> None:
    for row in found.rows:
        for lead in row.next_regions:
            if lead.share >= _LIKELY and lead.region != row.region:
                style: dict[str, Any] = {**_ARROW, "alpha": min(1.0, 0.2 + lead.share)}
                tip, tail = tuple(points[lead.region]), tuple(points[row.region])
                axes.annotate("", tip, tail, arrowprops=style, zorder=2)


def _draw_actions(axes: "Axes", found: RegionOverview) -> None:
    shown = found.actions[:_ACTIONS]
    places = range(len(shown))
    bars = axes.barh(places, [score.success for score in shown], color="tab:blue")
    axes.bar_label(bars, [f"{score.trials:.0f} steps" for score in shown], padding=3, fontsize=8)
    axes.set_yticks(places, [_shorten(score.action, _LETTERS) for score in shown], parse_math=False)
    axes.invert_yaxis()
    axes.set_xlim(0, 1.15)
    axes.set_xlabel("P(success)")
    axes.set_title("Success by action, all regions")


def register(app: typer.Typer) -> None:
    """Add the command."""
    add_commands(app, "Research", {"regions": show_regions})
