"""Commands about documents: ``add``, ``sync``, ``forget`` and ``info``."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from langchain_core.documents import Document
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    Vectors,
    errors,
    existing_store,
    out,
    report_errors,
)
from crabpath_retrievers.core.progress import bar
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.ingest.files import read_documents, require_path
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.ingest.sync import Section, SyncPlan
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.opening import describe, place_of, wrapped_store

_SHOWN = 50  # rows of a sync that are printed, unless only a plan was asked for


@report_errors
def run_add(
    paths: Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")],
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Add files, or update what the memory holds of them."""
    documents, skipped = read_documents(paths)
    with CrabPath.open(store, vectors=vectors) as memory:
        report = _add_documents(memory, documents)
    numbers = {
        "documents": len(documents) - report.blank,
        "added": report.added,
        "updated": report.updated,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "blank": report.blank,
        "skipped": [str(path) for path in skipped],
    }
    if as_json:
        typer.echo(json.dumps(numbers))
        return
    for path in skipped:
        errors.print(f"[yellow]Skipped[/yellow] {escape(str(path))}: not a text file")
    blank = f", {report.blank} without text left out" if report.blank else ""
    out.print(
        f"{numbers['documents']} documents: {report.added} chunks added, {report.updated} updated, "
        f"{report.removed} removed, {report.unchanged} unchanged{blank}"
    )


def _add_documents(memory: CrabPath, documents: list[Document]) -> IngestReport:
    """Add whole files; where the user interrupts, print how much was added."""
    done, total = 0, 0

    @contextmanager
    def count_chunks(chunks: int) -> Iterator[Callable[[int], None]]:
        nonlocal total
        total = chunks
        with bar(chunks) as show:

            def advance(some: int) -> None:
                nonlocal done
                done += some
                show(some)

            yield advance

    try:
        return memory.add_documents(documents, cleanup="incremental", progress=count_chunks)
    except KeyboardInterrupt:
        errors.print(f"Stopped: {done} of {total} new chunks are in; run it again to go on")
        raise typer.Exit(130) from None


@report_errors
def run_sync(
    sources: Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; write nothing.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Retire everything of a source that is empty now.")
    ] = False,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Follow files as they change, and keep what was learned about their sections."""
    for path in sources:
        require_path(path)  # before a memory is created
    with CrabPath.open(store, vectors=vectors, create=not dry_run) as memory:
        plan = memory.sync(sources, allow_empty=allow_empty, dry_run=dry_run)
    if as_json:
        typer.echo(json.dumps({**plan.to_dict(), "dry_run": dry_run}))
        return
    for source in plan.skipped:
        errors.print(f"[yellow]Skipped[/yellow] {escape(source)}: no text, or too large")
    if plan.sections:
        out.print(_sync_table(plan, None if dry_run else _SHOWN))
    if len(plan.sections) > _SHOWN and not dry_run:
        out.print(f"… and {len(plan.sections) - _SHOWN} more; --json shows all", style="dim")
    counts = ", ".join(f"{number} {fate}" for fate, number in plan.counts().items())
    shifted = f" ({len(plan.positions)} of them shifted)" if plan.positions else ""
    out.print(f"{counts}{shifted}{'; nothing was written' if dry_run else ''}")


def _sync_table(plan: SyncPlan, limit: int | None) -> Table:
    table = Table("change", "similarity", "section", "source", box=None, pad_edge=False)
    for section in plan.sections[:limit]:
        similarity = "" if section.similarity is None else f"{section.similarity:.2f}"
        title = section.node.title or section.node.content[:60]
        table.add_row(section.fate, similarity, escape(title), escape(_source_change(section)))
    return table


def _source_change(section: Section) -> str:
    """Source of a section, after its former source if that is another one."""
    source = section.node.source
    if section.was is None or section.was.source == source:
        return source
    return f"{section.was.source} → {source}"


@report_errors
def run_forget(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of chunks or documents.")] = None,
    source: Annotated[str | None, typer.Option(help="Every chunk of this source.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="All that this namespace learned.")
    ] = None,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Delete documents, or what a namespace has learned."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        removed = memory.forget(ids or None, source=source, namespace=namespace)
    if as_json:
        typer.echo(json.dumps({"removed": removed}))
    else:
        out.print(f"{removed} chunks deleted" if namespace is None else f"{namespace} forgotten")


@report_errors
def run_info(
    store: Store = DEFAULT_STORE, vectors: Vectors = None, as_json: AsJson = False
) -> None:
    """Show what the memory holds, and where."""
    with existing_store(store) as opened:
        facts = describe(opened, _vectors_place(opened, place_of(store), vectors))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        if isinstance(value, dict):
            text = ", ".join(f"{key} {number}" for key, number in value.items())
        else:
            text = str(value)
        table.add_row(name, escape(text))
    out.print(table)


def _vectors_place(opened: GraphStore, place: str, vectors: str | None) -> str | None:
    """Where the vectors of a memory are, as far as that is known without opening them."""
    wrapped = wrapped_store(opened.catalog.meta())
    if wrapped is not None:
        return f"{wrapped}, wrapped"
    if vectors is None:
        return None if "://" in place else f"Chroma in {Path(place).resolve() / 'vectors'}"
    return f"Chroma {'at' if '://' in vectors else 'in'} {vectors}"
