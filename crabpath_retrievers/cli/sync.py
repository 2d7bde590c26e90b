"""The command that follows sources as they change."""

import json
from pathlib import Path
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
    handled,
    out,
)
from crabpath_retrievers.ingest.sync_plan import Section, SyncPlan
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.sources import require_path

_SHOWN = 50  # rows for a person, unless a plan was asked for


@handled
def sync(
    sources: Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; write nothing.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Let all of a source retire that is empty now.")
    ] = False,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Follow files as they change; what was learned about a section stays with it."""
    for path in sources:
        require_path(path)  # before a memory is made
    with CrabPath.open(store, vectors=vectors, create=not dry_run) as memory:
        plan = memory.sync(sources, allow_empty=allow_empty, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps({**plan.to_dict(), "dry_run": dry_run}))
        return
    for source in plan.skipped:
        errors.print(f"[yellow]Skipped[/yellow] {escape(source)}: no text, or too large")
    if plan.sections:
        out.print(_table(plan, None if dry_run else _SHOWN))
    if len(plan.sections) > _SHOWN and not dry_run:
        out.print(f"… and {len(plan.sections) - _SHOWN} more; --json shows all", style="dim")
    counts = ", ".join(f"{number} {fate}" for fate, number in plan.counts().items())
    shifted = f" ({len(plan.positions)} of them shifted)" if plan.positions else ""
    out.print(f"{counts}{shifted}{'; nothing was written' if dry_run else ''}")


def _table(plan: SyncPlan, most: int | None) -> Table:
    table = Table("change", "similarity", "section", "source", box=None, pad_edge=False)
    for section in plan.sections[:most]:
        alike = "" if section.similarity is None else f"{section.similarity:.2f}"
        title = section.node.title or section.node.content[:60]
        table.add_row(section.fate, alike, escape(title), escape(_way(section)))
    return table


def _way(section: Section) -> str:
    """Where it is, and where it was if that is elsewhere."""
    source = section.node.source
    if section.was is None or section.was.source == source:
        return source
    return f"{section.was.source} → {source}"
