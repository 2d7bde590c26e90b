"""Commands that operate: readiness, health, doctor, maintenance, knobs, index, embedder."""

import os
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.text import Text
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    DryRun,
    EmbedderName,
    OneNamespace,
    Output,
    PlaceFlags,
    Replica,
    Store,
    Vectors,
    catch_signals,
    dim,
    errors,
    existing_store,
    list_counts,
    make_table,
    stored_settings,
)
from crabpath_retrievers.core.query import is_url, parse_namespace
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, StoreLockedError
from crabpath_retrievers.parts.operation.maintenance import (
    Autotuner,
    HealthReport,
    Metric,
    TuneReport,
    load_past_reports,
    measure_health,
)
from crabpath_retrievers.parts.operation.maintenance.doctor import examine, load_collections
from crabpath_retrievers.parts.operation.maintenance.runner import (
    MAINTENANCE_STEPS,
    MaintenanceReport,
    MaintenanceRunner,
)
from crabpath_retrievers.parts.operation.readiness import check_place
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import FindExisting
from crabpath_retrievers.vectors.opening import PGVECTOR, is_pgvector, place_of

_BARS = "▁▂▃▄▅▆▇█"
_COLUMNS = 24  # reports that a sparkline shows
_COUNTED = ("avg_nodes_fired_per_query", "orphan_nodes")  # the others are shares
_SEVERITIES = {"error": "[red]broken[/red]", "warning": "[yellow]repair[/yellow]", "info": "note"}
_MARKS = {True: Text("✓", "green"), False: Text("✗", "red"), None: Text("-")}
_PRIORITY = 10  # of 19, the lowest
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def run_health(
    *,
    namespace: OneNamespace = "default",
    record: Annotated[bool, typer.Option(help="Keep the report for the history.")] = True,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
) -> Output:
    """Measure eight health metrics of a namespace, with their ranges and history."""
    name = parse_namespace(namespace)
    with existing_store(store) as opened:
        held = _held_ids(opened, place_of(store), vectors)
        past = load_past_reports(opened, name, _COLUMNS - 1)
        report = measure_health(opened, name, stored_settings(opened), held, record=record)
    data = {**report.to_dict(), "history": [one.to_dict() for one in past]}
    return Output(data, _describe_health(report, [*past, report]))


def run_doctor(
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    embeddings: EmbedderName = None,
) -> Output:
    """Check a memory for damage, and say how to repair it; nothing is changed."""
    diagnosis = examine(store, vectors=vectors, embeddings=embeddings)
    lines = []
    for finding in diagnosis.findings:
        severity = _SEVERITIES[finding.severity]
        lines.append(f"{severity} {finding.check}: {escape(finding.message)}")
        lines.append(dim(f"  → {finding.fix}"))
    count, checks = len(diagnosis.findings) or "nothing", len(diagnosis.checked)
    lines.append(f"{escape(diagnosis.place)}: {count} found in {checks} checks")
    return Output(diagnosis.to_dict(), lines, code=int(bool(diagnosis.broken)))


def run_ready(
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    replica: Replica = None,
) -> Output:
    """Ask whether database and vector store answer, within a second; exit code 1 if not."""
    state = check_place(store, vectors, replica)
    shown = f"{'ready' if state.ready else '[red]not ready[/red]'}: {escape(state.reason)}"
    return Output(state.to_dict(), [shown], code=int(not state.ready))


def _held_ids(opened: GraphStore, place: str, vectors: str | None) -> FindExisting | None:
    """Make a look-up of ids in the files of the vectors, or on their server.

    ``place`` is that of the memory; ``vectors`` that of the vectors, None for the usual one. None
    if the vectors cannot be read, with a message.
    """
    reason = "a URL does not say where the vectors are: give --vectors"
    if is_pgvector(vectors, opened.catalog.meta()):
        vectors = PGVECTOR
    if vectors is not None or not is_url(place):
        try:
            where = Path(place) / "vectors" if vectors is None else vectors
            known, name = load_collections(where, opened)
        except CrabPathError as error:
            reason = str(error)
        else:
            return known.get(name, set[str]()).intersection
    errors.print(f"[yellow]Left out[/yellow] chunks without a vector: {escape(reason)}")
    return None


def _describe_health(
    report: HealthReport, reports: Sequence[HealthReport]
) -> Iterator[RenderableType]:
    rows = [
        (
            metric.name,
            _number(metric, metric.value),
            f"{_number(metric, metric.low)} to {_number(metric, metric.high)}",
            _MARKS[metric.in_range],
            sparkline([one[metric.name].value for one in reports]),
            str(metric.sampled),
        )
        for metric in report.metrics
    ]
    title = f"{escape(report.namespace)}: {report.healthy} of {report.judged_count} in range"
    yield make_table(("metric", "value", "well", "", "before", "of"), rows, title=title)
    for metric in report.metrics:
        if not metric.in_range:
            yield dim(f"{metric.name}: {metric.note}")
    for name, tiers in report.edges.items():
        yield dim(f"{name} edges: {list_counts(tiers)}")


def _number(metric: Metric, value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.4g}" if metric.name in _COUNTED else f"{value:.1%}"


def sparkline(values: Sequence[float | None]) -> str:
    """Draw one bar per value, scaled from the least to the greatest; a gap for None."""
    known = [value for value in values if value is not None]
    low, span = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    top = len(_BARS) - 1
    return "".join(
        " " if value is None else _BARS[round(top * (value - low) / span) if span else 0]
        for value in values
    )


def run_maintain(
    step: Annotated[
        list[str] | None, typer.Option(help=f"Only this step: {', '.join(MAINTENANCE_STEPS)}.")
    ] = None,
    *,
    dry_run: DryRun = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Repeat, such as every 30m, 1h or 1d.")
    ] = None,
    undo: Annotated[str | None, typer.Option(metavar="RUN", help="Instead: undo this run.")] = None,
    store: Store = DEFAULT_STORE,
) -> Iterator[Output]:
    """Remove what has faded, connect isolated nodes, bound the logs."""
    pause = None if every is None else _parse_interval(every)
    with existing_store(store) as opened:
        runner = MaintenanceRunner(opened, stored_settings(opened))
        if undo is not None:
            runner.undo(undo)
            yield Output({"undone": undo}, [f"{escape(undo)} undone"])
            return
        if pause is None:
            yield _run_in_background(runner, step or MAINTENANCE_STEPS, dry_run=dry_run)
            return
        with catch_signals() as ended:
            while not ended.is_set():
                try:
                    yield _run_in_background(runner, step or MAINTENANCE_STEPS, dry_run=dry_run)
                except StoreLockedError as error:  # the next time will do
                    errors.print(f"[yellow]Later:[/yellow] {escape(str(error))}")
                ended.wait(pause)


def _run_in_background(runner: MaintenanceRunner, steps: Sequence[str], *, dry_run: bool) -> Output:
    """Run maintenance steps in a thread of low priority.

    Queries on the same processors go first. ``dry_run`` only reports.
    """
    with ThreadPoolExecutor(1, initializer=_lower_priority) as thread:
        report = thread.submit(runner.run, steps, dry_run=dry_run).result()
    return Output(report.to_dict(), _describe_maintenance(report))


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


def _describe_maintenance(report: MaintenanceReport) -> Iterator[RenderableType]:
    rows = [
        (s.step, str(s.looked), str(s.changed), list_counts(s.detail), f"{s.seconds:.1f}")
        for s in report.steps
    ]
    changed = "would change" if report.dry_run else "changed"
    yield make_table(("step", "looked at", changed, "", "s"), rows)
    if report.run:
        yield _describe_undo(report.run)


def _describe_undo(run: str) -> str:
    return dim(f"undo it with: crabpath maintain --undo {run}")


def run_reindex(store: Store = DEFAULT_STORE, **opening: Unpack[PlaceFlags]) -> Output:
    """Rebuild the vector index from the graph store."""
    with CrabPath.open(store, create=False, reindex=True, **opening) as memory:
        count, where = memory.index.count(), memory.index.description
    return Output({"vectors": count}, [f"{count} vectors in {escape(where)}"])


def run_reembed(
    embeddings: Annotated[str, typer.Argument(metavar="PROVIDER:MODEL", help="New embedder.")],
    query_prefix: Annotated[str | None, typer.Option(help="Written before questions.")] = None,
    document_prefix: Annotated[str | None, typer.Option(help="Written before texts.")] = None,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[PlaceFlags],
) -> Output:
    """Embed everything again with another embedder; queries go on, what was learned stays."""
    with CrabPath.open(store, create=False, **opening) as memory:
        count = memory.maintenance.change_embedder(
            embeddings, query_prefix=query_prefix, document_prefix=document_prefix
        )
        model = memory.embedder.model
    return Output({"embedded": count, "model": model}, [f"{count} texts by {escape(model)}"])


def run_tune(
    *, namespace: OneNamespace = "default", dry_run: DryRun = False, store: Store = DEFAULT_STORE
) -> Output:
    """Measure the health of a namespace, and move its knobs where that may improve it."""
    name = parse_namespace(namespace)
    with existing_store(store) as opened:
        report = _tuner(opened).run(name, dry_run=dry_run)
    return Output(report.to_dict(), _describe_tuning(report))


def show_knobs(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Show the current knobs of a namespace."""
    name = parse_namespace(namespace)
    with existing_store(store) as opened:
        return _show_knobs(opened, name)


def run_set_knobs(
    values: Annotated[list[str], typer.Argument(metavar="KNOB=NUMBER...", help="New values.")],
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
) -> Output:
    """Set knobs of a namespace by hand."""
    numbers, name = dict(map(_parse_knob, values)), parse_namespace(namespace)
    with existing_store(store) as opened:
        return _show_knobs(opened, name, run=_tuner(opened).set_knobs(name, numbers))


def run_reset_knobs(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Let the knobs of a namespace follow the settings again."""
    name = parse_namespace(namespace)
    with existing_store(store) as opened:
        return _show_knobs(opened, name, run=_tuner(opened).reset(name))


def _tuner(store: GraphStore) -> Autotuner:
    return Autotuner(store, stored_settings(store))


def _show_knobs(store: GraphStore, namespace: str, **change: str) -> Output:
    """Show the knobs of a namespace, after a run has changed them."""
    knobs = _tuner(store).knobs(namespace).to_dict()
    return Output({**change, "knobs": knobs}, [_list_knobs(knobs)])


def _parse_knob(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        msg = f"set takes a knob and a number such as half_life=500, not {text!r:.250}"
        raise InvalidInputError(msg) from None


def _describe_tuning(report: TuneReport) -> Iterator[str]:
    for step in report.adjustments:
        would = "would go" if report.dry_run else "goes"
        yield f"{step.knob} {would} from {step.before:g} to {step.after:g}: {escape(step.why)}"
    if not report.adjustments:
        yield f"nothing to turn{f': {escape(report.note)}' if report.note else ''}"
    yield _list_knobs(report.knobs.to_dict())
    if report.run:
        yield _describe_undo(report.run)


def _list_knobs(knobs: dict[str, float]) -> str:
    return dim(", ".join(f"{name} {value:g}" for name, value in knobs.items()))
