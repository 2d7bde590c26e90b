"""The command that looks at the knobs of a namespace, and turns them; it runs beside a server."""

import json
from typing import Annotated

import typer
from rich.markup import escape

from crabpath_retrievers.autotune import Autotuner, TuneReport
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    Whose,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.published import published, settings_of
from crabpath_retrievers.query import namespace_of


@handled
def tune(
    *,
    namespace: Whose = "default",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look.")] = False,
    to: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KNOB=NUMBER", help="Instead: set a knob by hand."),
    ] = None,
    reset: Annotated[
        bool, typer.Option("--reset", help="Instead: let the knobs follow the settings again.")
    ] = False,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Measure the health of a namespace, and turn its knobs where that may mend it."""
    whose = namespace_of(namespace)
    if (dry_run, bool(to), reset).count(True) > 1:
        msg = "--dry-run, --set and --reset exclude each other: give one of them"
        raise InvalidInputError(msg)
    values = dict(map(_value, to or ()))
    with existing_store(store) as opened:
        tuner = Autotuner(opened, settings_of(published(opened)))
        if not (values or reset):
            _show(tuner.look(whose, dry_run=dry_run), as_json=as_json)
            return
        run = tuner.set(whose, values) if values else tuner.reset(whose)
        knobs = tuner.knobs(whose).to_dict()
    if as_json:
        typer.echo(json.dumps({"run": run, "knobs": knobs}))
    else:
        _print(knobs)


def _value(text: str) -> tuple[str, float]:
    name, _, number = text.partition("=")
    try:
        return name.strip(), float(number)
    except ValueError:
        msg = f"--set takes a knob and a number such as half_life=500, not {text!r:.250}"
        raise InvalidInputError(msg) from None


def _show(report: TuneReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_dict()))
        return
    for one in report.adjustments:
        would = "would go" if report.dry_run else "goes"
        out.print(f"{one.knob} {would} from {one.before:g} to {one.after:g}: {escape(one.why)}")
    if not report.adjustments:
        out.print(f"nothing to turn{f': {report.note}' if report.note else ''}")
    if report.snapshot:
        told = "was restored" if report.restored else "can be restored"
        out.print(f"snapshot {report.snapshot} of the last good state {told}")
    _print(report.knobs.to_dict())
    if report.run:
        out.print(f"[dim]crabpath maintain --undo {report.run} takes it back[/dim]")


def _print(knobs: dict[str, float]) -> None:
    told = ", ".join(f"{name} {value:g}" for name, value in knobs.items())
    out.print(told, style="dim")
