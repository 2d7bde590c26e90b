"""Command group ``crabpath ab``: A/B trials; it reads the graph store alone."""

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.ab.comparison import Comparison, TrialReport
from crabpath_retrievers.ab.trial import Trial
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    existing_store,
    out,
    report_errors,
)

_COLOURS = {"promote": "green", "roll back": "red"}


ab = typer.Typer(no_args_is_help=True)

TrialName = Annotated[str, typer.Argument(help="Name of the trial.")]


@ab.command("list")
@report_errors
def list_trials(store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """List the trials of a memory, with their status."""
    with existing_store(store) as opened:
        states = [Trial.open(opened, name).state for name in opened.trials.names()]
    if as_json:
        typer.echo(json.dumps({"trials": [json.loads(state.to_json()) for state in states]}))
        return
    for state in states:
        out.print(f"{escape(state.name)}: {state.status}, share {state.share:g}")
    if not states:
        out.print("no trials")


@ab.command("report")
@report_errors
def show_trial(name: TrialName, store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Compare the two arms of a trial, and say what follows."""
    with existing_store(store) as opened:
        _show_report(Trial.open(opened, name).report(), as_json=as_json)


@ab.command("checkpoint")
@report_errors
def check_trial(name: TrialName, store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Check a trial for harm, and end it if the treatment is worse."""
    with existing_store(store) as opened:
        trial = Trial.open(opened, name)
        trial.checkpoint()
        _show_report(trial.report(), as_json=as_json)


@ab.command("promote")
@report_errors
def promote_treatment(
    name: TrialName, store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Give all sessions the treatment, if it is better."""
    with existing_store(store) as opened:
        trial = Trial.open(opened, name)
        trial.promote()
        _show_report(trial.report(), as_json=as_json)


@ab.command("roll-back")
@report_errors
def roll_back_trial(name: TrialName, store: Store = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Give all sessions the control."""
    with existing_store(store) as opened:
        trial = Trial.open(opened, name)
        trial.roll_back()
        _show_report(trial.report(), as_json=as_json)


def _show_report(report: TrialReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict(), allow_nan=False))
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for heading in ("control", "treatment", "difference"):
        table.add_column(heading)
    comparisons = {row.metric: row for row in report.comparisons}
    control, treatment = report.to_dict()["control"], report.to_dict()["treatment"]
    for metric, value in control.items():
        other, row = treatment[metric], comparisons.get(metric)
        table.add_row(metric, _cell(value), _cell(other), _difference(row))
    table.title = f"{escape(report.state.name)}: {report.state.status}"
    out.print(table)
    colour = _COLOURS.get(report.verdict, "yellow")
    out.print(f"[{colour}]{report.verdict}[/{colour}]: {escape(report.reason)}")
    bad = sum(checkpoint.worse for checkpoint in report.state.checkpoints)
    out.print(f"{len(report.state.checkpoints)} checkpoints, {bad} of them bad", style="dim")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(number)}" for name, number in value.items())
    return "-" if value is None else f"{value:.4g}"


def _difference(row: Comparison | None) -> str:
    if row is None or row.difference is None:
        return ""
    pairing = "sessions" if row.paired == "none" else f"paired by {row.paired}"
    interval = "" if row.low is None else f" [{row.low:.3g}, {row.high:.3g}]"
    return f"{row.difference:+.3g}{escape(interval)} {pairing}"
