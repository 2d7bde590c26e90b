"""Command group ``crabpath ab``: A/B trials; it reads the graph store alone."""

import json
from collections.abc import Callable
from typing import Annotated

import typer
from rich.markup import escape

from crabpath_lab.ab.comparison import Comparison
from crabpath_lab.ab.state import TrialQueries
from crabpath_lab.ab.trial import Trial
from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    Output,
    Store,
    dim,
    existing_store,
    make_table,
)

_COLOURS = {"promote": "green", "roll back": "red"}

TrialName = Annotated[str, typer.Argument(help="Name of the trial.")]


def list_trials(store: Store = DEFAULT_STORE) -> Output:
    """List the trials of a memory, with their status."""
    with existing_store(store) as opened:
        states = [Trial.open(opened, name).state for name in TrialQueries(opened).names()]
    lines = [f"{escape(state.name)}: {state.status}, share {state.share:g}" for state in states]
    data = {"trials": [json.loads(state.to_json()) for state in states]}
    return Output(data, lines or ["no trials"])


def show_trial(name: TrialName, store: Store = DEFAULT_STORE) -> Output:
    """Compare the two arms of a trial, and say what follows."""
    return _report(store, name)


def check_trial(name: TrialName, store: Store = DEFAULT_STORE) -> Output:
    """Check a trial for harm, and end it if the treatment is worse."""
    return _report(store, name, Trial.checkpoint)


def promote_treatment(name: TrialName, store: Store = DEFAULT_STORE) -> Output:
    """Give all sessions the treatment, if it is better."""
    return _report(store, name, Trial.promote)


def roll_back_trial(name: TrialName, store: Store = DEFAULT_STORE) -> Output:
    """Give all sessions the control."""
    return _report(store, name, Trial.roll_back)


def _report(store: str, name: str, act: Callable[[Trial], object] | None = None) -> Output:
    """Compare the arms of a trial, after an action on it."""
    with existing_store(store) as opened:
        trial = Trial.open(opened, name)
        if act is not None:
            act(trial)
        report = trial.report()
    data, state = report.to_dict(), report.state
    comparisons = {row.metric: row for row in report.comparisons}
    rows = [
        (
            metric,
            _cell(value),
            _cell(data["treatment"][metric]),
            _difference(comparisons.get(metric)),
        )
        for metric, value in data["control"].items()
    ]
    table = make_table(("metric", "control", "treatment", "difference"), rows)
    table.columns[0].no_wrap = True
    table.title = f"{escape(state.name)}: {state.status}"
    colour = _COLOURS.get(report.verdict, "yellow")
    verdict = f"[{colour}]{report.verdict}[/{colour}]: {escape(report.reason)}"
    bad = sum(checkpoint.worse for checkpoint in state.checkpoints)
    checkpoints = dim(f"{len(state.checkpoints)} checkpoints, {bad} of them bad")
    return Output(data, [table, verdict, checkpoints])


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(number)}" for name, number in value.items())
    return "-" if value is None else f"{value:.4g}"


def _difference(row: Comparison | None) -> str:
    if row is None or row.difference is None:
        return ""
    pairing = "sessions" if row.paired == "none" else f"paired by {row.paired}"
    interval = "" if row.low is None else f" [{row.low:.3g}, {row.high:.3g}]"
    return f"{row.difference:+.3g}{interval} {pairing}"
