"""``crabpath ab``: how an A/B trial stands, beside whatever serves the memory."""

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.ab.comparison import Comparison
from crabpath_retrievers.ab.report import TrialReport
from crabpath_retrievers.ab.trial import Trial
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Place,
    Store,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import GraphStore

_COLOURS = {"promote": "green", "roll back": "red"}


@handled
def ab(
    path: Place = None,
    *,
    name: Annotated[str | None, typer.Option(help="Of the trial; none lists all.")] = None,
    checkpoint: Annotated[
        bool, typer.Option("--checkpoint", help="First look for harm, and end the trial if so.")
    ] = False,
    promote: Annotated[
        bool, typer.Option("--promote", help="Give all sessions the treatment, if it is better.")
    ] = False,
    roll_back: Annotated[
        bool, typer.Option("--roll-back", help="Give all sessions the control.")
    ] = False,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """How the two arms of a trial compare, and what follows."""
    if checkpoint + promote + roll_back > 1:
        msg = "use one of --checkpoint, --promote and --roll-back"
        raise InvalidInputError(msg)
    with existing_store(path or store) as opened:
        if name is None:
            _list(opened, as_json=as_json)
            return
        trial = Trial.open(opened, name)
        if checkpoint:
            trial.checkpoint()
        if promote:
            trial.promote()
        if roll_back:
            trial.roll_back()
        report = trial.report()
    if as_json:
        typer.echo(json.dumps(report.to_dict(), allow_nan=False))
    else:
        _show(report)


def _list(store: GraphStore, *, as_json: bool) -> None:
    states = [Trial.open(store, name).state for name in store.trials.names()]
    if as_json:
        typer.echo(json.dumps({"trials": [json.loads(state.to_json()) for state in states]}))
        return
    for state in states:
        out.print(f"{escape(state.name)}: {state.status}, share {state.share:g}")
    if not states:
        out.print("no trials")


def _show(report: TrialReport) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for heading in ("control", "treatment", "difference"):
        table.add_column(heading)
    compared = {one.metric: one for one in report.comparisons}
    control, treatment = report.to_dict()["control"], report.to_dict()["treatment"]
    for metric, value in control.items():
        other, one = treatment[metric], compared.get(metric)
        table.add_row(metric, _cell(value), _cell(other), _difference(one))
    table.title = f"{escape(report.state.name)}: {report.state.status}"
    out.print(table)
    colour = _COLOURS.get(report.verdict, "yellow")
    out.print(f"[{colour}]{report.verdict}[/{colour}]: {escape(report.reason)}")
    bad = sum(one.worse for one in report.state.checkpoints)
    out.print(f"{len(report.state.checkpoints)} checkpoints, {bad} of them bad", style="dim")


def _cell(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_cell(number)}" for name, number in value.items())
    return "-" if value is None else f"{value:.4g}"


def _difference(one: Comparison | None) -> str:
    if one is None or one.difference is None:
        return ""
    over = "sessions" if one.paired == "none" else f"paired by {one.paired}"
    ends = "" if one.low is None else f" [{one.low:.3g}, {one.high:.3g}]"
    return f"{one.difference:+.3g}{escape(ends)} {over}"
