"""Commands about documents: ``add``, ``sync``, ``forget`` and ``info``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from langchain_core.documents import Document
from rich.markup import escape

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    Output,
    Store,
    Vectors,
    dim,
    errors,
    existing_store,
    list_counts,
    make_table,
    namespace_option,
)
from crabpath_retrievers.core.progress import bar
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.ingest.files import read_documents, require_path
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.ingest.sync import Section
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.opening import describe, place_of, wrapped_store

_SHOWN = 50  # rows of a sync that are printed, unless only a plan was asked for

Sources = Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")]


def run_add(paths: Sources, store: Store = DEFAULT_STORE, vectors: Vectors = None) -> Output:
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
    }
    blank = f", {report.blank} without text left out" if report.blank else ""
    text = (
        f"{numbers['documents']} documents: {report.added} chunks added, {report.updated} updated, "
        f"{report.removed} removed, {report.unchanged} unchanged{blank}"
    )
    warnings = [f"[yellow]Skipped[/yellow] {escape(name)}: not a text file" for name in skipped]
    return Output({**numbers, "skipped": skipped}, [text], warnings)


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


def run_sync(
    sources: Sources,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; write nothing.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Retire everything of a source that is empty now.")
    ] = False,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
) -> Output:
    """Follow files as they change, and keep what was learned about their sections."""
    for path in sources:
        require_path(path)  # before a memory is created
    with CrabPath.open(store, vectors=vectors, create=not dry_run) as memory:
        plan = memory.sync(sources, allow_empty=allow_empty, dry_run=dry_run)
    shown = plan.sections if dry_run else plan.sections[:_SHOWN]
    columns = ("change", "similarity", "section", "source")
    table = [make_table(columns, map(_describe_section, shown))] if shown else []
    rest = len(plan.sections) - len(shown)
    more = [dim(f"… and {rest} more; --json shows all")] if rest else []
    shifted = f" ({len(plan.positions)} of them shifted)" if plan.positions else ""
    ending = "; nothing was written" if dry_run else ""
    counts = f"{list_counts(plan.counts())}{shifted}{ending}"
    warnings = [
        f"[yellow]Skipped[/yellow] {escape(source)}: no text, or too large"
        for source in plan.skipped
    ]
    return Output({**plan.to_dict(), "dry_run": dry_run}, (*table, *more, counts), warnings)


def _describe_section(section: Section) -> tuple[str, ...]:
    """Fate, similarity, title and source; after its former source if that is another one."""
    similarity = "" if section.similarity is None else f"{section.similarity:.2f}"
    source = section.node.source
    if section.was is not None and section.was.source != source:
        source = f"{section.was.source} → {source}"
    return section.fate, similarity, section.node.title or section.node.content[:60], source


def run_forget(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of chunks or documents.")] = None,
    source: Annotated[str | None, typer.Option(help="Every chunk of this source.")] = None,
    namespace: Annotated[
        str | None, namespace_option(help="All that this namespace learned.")
    ] = None,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
) -> Output:
    """Delete documents, or what a namespace has learned."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        removed = memory.forget(ids or None, source=source, namespace=namespace)
    text = f"{removed} chunks deleted" if namespace is None else f"{escape(namespace)} forgotten"
    return Output({"removed": removed}, [text])


def run_info(store: Store = DEFAULT_STORE, vectors: Vectors = None) -> Output:
    """Show what the memory holds, and where."""
    with existing_store(store) as opened:
        facts = describe(opened, _vectors_place(opened, place_of(store), vectors))
    rows = [
        (name, ", ".join(f"{k} {n}" for k, n in value.items()))
        if isinstance(value, dict)
        else (name, str(value))
        for name, value in facts.items()
    ]
    return Output(facts, [make_table(("", ""), rows, show_header=False)])


def _vectors_place(opened: GraphStore, place: str, vectors: str | None) -> str | None:
    """Where the vectors of a memory are, as far as that is known without opening them."""
    wrapped = wrapped_store(opened.catalog.meta())
    if wrapped is not None:
        return f"{wrapped}, wrapped"
    if vectors is None:
        return None if "://" in place else f"Chroma in {Path(place).resolve() / 'vectors'}"
    return f"Chroma {'at' if '://' in vectors else 'in'} {vectors}"
