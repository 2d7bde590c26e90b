"""The command that maintains a memory: beside any process, but for what must be embedded."""

import json
import os
import re
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    Vectors,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError, StoreLockedError
from crabpath_retrievers.feedback.published import published, settings_of
from crabpath_retrievers.maintenance import STEPS, MaintenanceReport, Upkeep
from crabpath_retrievers.memory import CrabPath

_PRIORITY = 10  # of 19, the lowest
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


@handled
def maintain(
    step: Annotated[
        list[str] | None, typer.Option(help=f"Only this step: {', '.join(STEPS)}.")
    ] = None,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only look.")] = False,
    every: Annotated[
        str | None, typer.Option(metavar="TIME", help="Go on, such as every 30m, 1h or 1d.")
    ] = None,
    undo: Annotated[
        str | None, typer.Option(metavar="RUN", help="Instead: take this maintenance back.")
    ] = None,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Shed what has faded, merge what says the same, connect what is alone, bound the logs.

    Where split is asked for, the whole memory is opened: its parts are embedded.
    """
    pause = None if every is None else _seconds(every)
    with _upkeep(store, vectors, embedding="split" in (step or ()) and undo is None) as upkeep:
        if undo is not None:
            upkeep.undo(undo)
            typer.echo(json.dumps({"undone": undo})) if as_json else out.print(f"{undo} undone")
            return
        if pause is None:
            _show(_gently(upkeep, step or STEPS, dry_run=dry_run), as_json=as_json)
            return
        ended = threading.Event()
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        while not ended.is_set():
            try:
                _show(_gently(upkeep, step or STEPS, dry_run=dry_run), as_json=as_json)
            except StoreLockedError as error:  # the next time will do
                errors.print(f"[yellow]Later:[/yellow] {escape(str(error))}")
            ended.wait(pause)


@contextmanager
def _upkeep(store: str, vectors: str | None, *, embedding: bool) -> Iterator[Upkeep]:
    """Maintenance of a memory, by its graph store alone unless texts are to be embedded."""
    with existing_store(store) as opened:
        settings = settings_of(published(opened))
        if not embedding:
            yield Upkeep(opened, settings)
            return
    with CrabPath.open(store, vectors=vectors, settings=settings, create=False) as memory:
        yield memory.upkeep


def _gently(upkeep: Upkeep, steps: Sequence[str], *, dry_run: bool) -> MaintenanceReport:
    """Run in a thread that lets queries on the same processors go first, where it can."""
    with ThreadPoolExecutor(1, initializer=_step_back) as thread:
        return thread.submit(upkeep.run, steps, dry_run=dry_run).result()


def _step_back() -> None:
    if sys.platform == "linux":  # elsewhere the number of a thread may be that of a process
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _PRIORITY)


def _seconds(text: str) -> float:
    found = re.fullmatch(r"\s*(\d{1,6})\s*([smhd])\s*", text)
    if found is None or not int(found[1]):
        msg = f"--every takes a time such as 30m, 1h or 1d, not {text!r:.250}"
        raise InvalidInputError(msg)
    return float(int(found[1]) * _SECONDS[found[2]])


def _show(report: MaintenanceReport, *, as_json: bool) -> None:
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
        out.print(f"[dim]crabpath maintain --undo {report.run} takes it back[/dim]")
