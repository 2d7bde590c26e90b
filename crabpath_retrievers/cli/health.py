"""``crabpath health`` and ``crabpath doctor``: beside whatever serves the memory."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Place,
    Store,
    Vectors,
    Whose,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.doctor import Diagnosis, examine
from crabpath_retrievers.doctor.vectors import known_vectors
from crabpath_retrievers.errors import CrabPathError
from crabpath_retrievers.feedback.published import published, settings_of
from crabpath_retrievers.health.checkup import checkup, past_reports
from crabpath_retrievers.health.report import HealthReport, Metric
from crabpath_retrievers.opening import place_of
from crabpath_retrievers.query import namespace_of
from crabpath_retrievers.seeds.index import Held

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 24  # reports that a sparkline shows
_COUNTED = ("avg_nodes_fired_per_query", "orphan_nodes")  # the others are shares
_MARKS = {"error": "[red]broken[/red]", "warning": "[yellow]mend[/yellow]", "info": "note"}


@handled
def health(
    path: Place = None,
    *,
    namespace: Whose = "default",
    record: Annotated[bool, typer.Option(help="Keep the report for the history.")] = True,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """How well a namespace is: eight metrics, their ranges, and how they were before."""
    whose, place = namespace_of(namespace), path or store
    with existing_store(place) as opened:
        settings = settings_of(published(opened))
        held = _held(place_of(place), vectors)
        past = past_reports(opened, whose, _COLUMNS - 1)
        report = checkup(opened, whose, settings, held, record=record)
    if as_json:
        history = [one.to_dict() for one in past]
        typer.echo(json.dumps({**report.to_dict(), "history": history}))
        return
    _show_report(report, [*past, report])


@handled
def doctor(
    path: Place = None,
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """What is wrong with a memory, and how it is mended; nothing is changed."""
    diagnosis = examine(path or store, vectors=vectors)
    if as_json:
        typer.echo(json.dumps(diagnosis.to_dict()))
    else:
        _show(diagnosis)
    if diagnosis.broken:
        raise typer.Exit(1)


def _held(place: str, vectors: str | None) -> Held | None:
    """Asks the files of the vectors, which another process may have open, or their server."""
    why = "a URL does not say where the vectors are: give --vectors"
    if vectors is not None or "://" not in place:
        try:
            known, name = known_vectors(Path(place) / "vectors" if vectors is None else vectors)
        except CrabPathError as error:
            why = str(error)
        else:
            return known[name].ids.intersection if name in known else set[str]().intersection
    errors.print(f"[yellow]Left out[/yellow] chunks without a vector: {escape(why)}")
    return None


def _show_report(report: HealthReport, reports: Sequence[HealthReport]) -> None:
    table = Table("metric", "value", "well", "", "before", "of", box=None, pad_edge=False)
    for metric in report.metrics:
        mark = {True: "[green]✓[/green]", False: "[red]✗[/red]", None: "-"}[metric.in_range]
        table.add_row(
            metric.name,
            _number(metric, metric.value),
            f"{_number(metric, metric.low)} to {_number(metric, metric.high)}",
            mark,
            sparkline([one[metric.name].value for one in reports]),
            str(metric.sampled),
        )
    table.title = f"{escape(report.namespace)}: {report.healthy} of {report.judged} in range"
    out.print(table)
    for metric in report.metrics:
        if not metric.in_range:
            out.print(f"{metric.name}: {escape(metric.note)}", style="dim")
    for name, tiers in report.edges.items():
        counts = ", ".join(f"{count} {tier}" for tier, count in tiers.items())
        out.print(f"{name} edges: {counts}", style="dim")


def _number(metric: Metric, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if metric.name in _COUNTED else f"{value:.1%}"


def sparkline(values: Sequence[float | None]) -> str:
    """One bar per value, from the least to the greatest of them; a gap where there is none."""
    known = [value for value in values if value is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    top = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round(top * (value - low) / span) if span else 0]
        for value in values
    )


def _show(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        out.print(f"{_MARKS[finding.severity]} {finding.check}: {escape(finding.message)}")
        out.print(f"  → {escape(finding.fix)}", style="dim")
    found = len(diagnosis.findings) or "nothing"
    checks = len(diagnosis.checked)
    out.print(f"{escape(diagnosis.place)}: {found} found in {checks} checks")
