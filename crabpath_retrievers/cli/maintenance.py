"""Commands that operate a memory: ``health``, ``doctor``, ``maintain``, ``tune``, ``reindex``."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    OneNamespace,
    Place,
    Store,
    Vectors,
    errors,
    existing_store,
    out,
    report_errors,
)
from crabpath_retrievers.core.query import namespace_of
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, StoreLockedError
from crabpath_retrievers.learning.standalone import parse_settings, read_published_settings
from crabpath_retrievers.maintenance import MAINTENANCE_STEPS, MaintenanceReport, MaintenanceRunner
from crabpath_retrievers.maintenance.autotune import Autotuner, TuneReport
from crabpath_retrievers.maintenance.doctor import Diagnosis
from crabpath_retrievers.maintenance.doctor.run import examine
from crabpath_retrievers.maintenance.doctor.vector_checks import load_collections
from crabpath_retrievers.maintenance.health.measure import load_past_reports, measure_health
from crabpath_retrievers.maintenance.health.report import HealthReport, Metric
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import FindExisting
from crabpath_retrievers.vectors.opening import place_of

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 24  # reports that a sparkline shows
_COUNTED = ("avg_nodes_fired_per_query", "orphan_nodes")  # the others are shares
_MARKS = {"error": "[red]broken[/red]", "warning": "[yellow]repair[/yellow]", "info": "note"}
_PRIORITY = 10  # of 19, the lowest
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@report_errors
def run_health(
    path: Place = None,
    *,
    namespace: OneNamespace = "default",
    record: Annotated[bool, typer.Option(help="Keep the report for the history.")] = True,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Measure eight health metrics of a namespace, with their ranges and history."""
    name, place = namespace_of(namespace), path or store
    with existing_store(place) as opened:
        settings = parse_settings(read_published_settings(opened))
        held = _held_ids(place_of(place), vectors)
        past = load_past_reports(opened, name, _COLUMNS - 1)
        report = measure_health(opened, name, settings, held, record=record)
    if as_json:
        history = [one.to_dict() for one in past]
        typer.echo(json.dumps({**report.to_dict(), "history": history}))
        return
    _show_report(report, [*past, report])


@report_errors
def run_doctor(
    path: Place = None,
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Check a memory for damage, and say how to repair it; nothing is changed."""
    diagnosis = examine(path or store, vectors=vectors)
    if as_json:
        typer.echo(json.dumps(diagnosis.to_dict()))
    else:
        _show_diagnosis(diagnosis)
    if diagnosis.broken:
        raise typer.Exit(1)


def _held_ids(place: str, vectors: str | None) -> FindExisting | None:
    """A lookup of ids in the files of the vectors, or on their server; None where unreachable."""
    reason = "a URL does not say where the vectors are: give --vectors"
    if vectors is not None or "://" not in place:
        try:
            known, name = load_collections(Path(place) / "vectors" if vectors is None else vectors)
        except CrabPathError as error:
            reason = str(error)
        else:
            return known[name].ids.intersection if name in known else set[str]().intersection
    errors.print(f"[yellow]Left out[/yellow] chunks without a vector: {escape(reason)}")
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
    table.title = f"{escape(report.namespace)}: {report.healthy} of {report.judged_count} in range"
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
    """One bar per value, scaled from the least to the greatest; a gap for None."""
    known = [value for value in values if value is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    top = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round(top * (value - low) / span) if span else 0]
        for value in values
    )


def _show_diagnosis(diagnosis: Diagnosis) -> None:
    for finding in diagnosis.findings:
        out.print(f"{_MARKS[finding.severity]} {finding.check}: {escape(finding.message)}")
        out.print(f"  → {escape(finding.fix)}", style="dim")
    count = len(diagnosis.findings) or "nothing"
    checks = len(diagnosis.checked)
    out.print(f"{escape(diagnosis.place)}: {count} found in {checks} checks")


@report_errors
def run_maintain(
    step: Annotated[
        list[str] | None, typer.Option(help=f"Only this step: {', '.join(MAINTENANCE_STEPS)}.")
    ] = None,
    *,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would change.")
    ] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Repeat, such as every 30m, 1h or 1d.")
    ] = None,
    undo: Annotated[str | None, typer.Option(metavar="RUN", help="Instead: undo this run.")] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Remove what has faded, connect isolated nodes, bound the logs."""
    pause = None if every is None else _parse_interval(every)
    with _open_runner(store) as runner:
        if undo is not None:
            runner.undo(undo)
            typer.echo(json.dumps({"undone": undo})) if as_json else out.print(f"{undo} undone")
            return
        if pause is None:
            _show_maintenance(
                _run_in_background(runner, step or MAINTENANCE_STEPS, dry_run=dry_run),
                as_json=as_json,
            )
            return
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        while not ended.is_set():
            try:
                _show_maintenance(
                    _run_in_background(runner, step or MAINTENANCE_STEPS, dry_run=dry_run),
                    as_json=as_json,
                )
            except StoreLockedError as error:  # the next time will do
                errors.print(f"[yellow]Later:[/yellow] {escape(str(error))}")
            ended.wait(pause)


@contextmanager
def _open_runner(store: str) -> Iterator[MaintenanceRunner]:
    """A maintenance runner over the graph store alone."""
    with existing_store(store) as opened:
        yield MaintenanceRunner(opened, parse_settings(read_published_settings(opened)))


def _run_in_background(
    runner: MaintenanceRunner, steps: Sequence[str], *, dry_run: bool
) -> MaintenanceReport:
    """Run in a thread of low priority, so that queries on the same processors go first."""
    with ThreadPoolExecutor(1, initializer=_lower_priority) as thread:
        return thread.submit(runner.run, steps, dry_run=dry_run).result()


def _lower_priority() -> None:
    if sys.platform == "linux":  # elsewhere the number of a thread may be that of a process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)


def _parse_interval(text: str) -> float:
    match = re.fullmatch(r"\s*(\d{1,6})\s*([smhd])\s*", text)
    if match is None or not int(match[1]):
        msg = f"--every takes a time such as 30m, 1h or 1d, not {text!r:.250}"
        raise InvalidInputError(msg)
    return float(int(match[1]) * _SECONDS[match[2]])


def _show_maintenance(report: MaintenanceReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
        return
    changed = "would change" if report.dry_run else "changed"
    table = Table("step", "looked at", changed, "", "s", box=None, pad_edge=False)
    for step in report.steps:
        detail = ", ".join(f"{number} {name}" for name, number in step.detail.items())
        table.add_row(step.step, str(step.looked), str(step.changed), detail, f"{step.seconds:.1f}")
    out.print(table)
    if report.run:
        out.print(f"[dim]undo it with: crabpath maintain --undo {report.run}[/dim]")


@report_errors
def run_reindex(
    path: Place = None,
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Rebuild the vector index from the graph store."""
    place = path or store
    with CrabPath.open(place, vectors=vectors, create=False, reindex=True) as memory:
        count, where = memory.index.count(), memory.index.description
    if as_json:
        typer.echo(json.dumps({"vectors": count}))
    else:
        out.print(f"{count} vectors in {escape(where)}")


tune = typer.Typer(no_args_is_help=True)


@tune.command("run")
@report_errors
def run_tune(
    *,
    namespace: OneNamespace = "default",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only report what would change.")
    ] = False,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Measure the health of a namespace, and move its knobs where that may improve it."""
    name = namespace_of(namespace)
    with existing_store(store) as opened:
        report = _tuner(opened).run(name, dry_run=dry_run)
    _show_tuning(report, as_json=as_json)


@tune.command("show")
@report_errors
def show_knobs(
    namespace: OneNamespace = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Show the current knobs of a namespace."""
    name = namespace_of(namespace)
    with existing_store(store) as opened:
        knobs = _tuner(opened).knobs(name).to_dict()
    if as_json:
        typer.echo(json.dumps({"knobs": knobs}))
    else:
        _print_knobs(knobs)


@tune.command("set")
@report_errors
def run_set_knobs(
    values: Annotated[list[str], typer.Argument(metavar="KNOB=NUMBER...", help="New values.")],
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Set knobs of a namespace by hand."""
    numbers, name = dict(map(_parse_knob, values)), namespace_of(namespace)
    with existing_store(store) as opened:
        tuner = _tuner(opened)
        run, knobs = tuner.set_knobs(name, numbers), tuner.knobs(name).to_dict()
    _show_knob_change(run, knobs, as_json=as_json)


@tune.command("reset")
@report_errors
def run_reset_knobs(
    namespace: OneNamespace = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Let the knobs of a namespace follow the settings again."""
    name = namespace_of(namespace)
    with existing_store(store) as opened:
        tuner = _tuner(opened)
        run, knobs = tuner.reset(name), tuner.knobs(name).to_dict()
    _show_knob_change(run, knobs, as_json=as_json)


def _tuner(store: GraphStore) -> Autotuner:
    return Autotuner(store, parse_settings(read_published_settings(store)))


def _show_knob_change(run: str, knobs: dict[str, float], *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"run": run, "knobs": knobs}))
    else:
        _print_knobs(knobs)


def _parse_knob(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        msg = f"set takes a knob and a number such as half_life=500, not {text!r:.250}"
        raise InvalidInputError(msg) from None


def _show_tuning(report: TuneReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
        return
    for step in report.adjustments:
        would = "would go" if report.dry_run else "goes"
        out.print(f"{step.knob} {would} from {step.before:g} to {step.after:g}: {escape(step.why)}")
    if not report.adjustments:
        out.print(f"nothing to turn{f': {report.note}' if report.note else ''}")
    _print_knobs(report.knobs.to_dict())
    if report.run:
        out.print(f"[dim]undo it with: crabpath maintain --undo {report.run}[/dim]")


def _print_knobs(knobs: dict[str, float]) -> None:
    values = ", ".join(f"{name} {value:g}" for name, value in knobs.items())
    out.print(values, style="dim")
