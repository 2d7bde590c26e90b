"""Commands ``ingest`` and ``sync``: many files, and files that change."""

from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    OpenFlags,
    Output,
    Store,
    dim,
    list_counts,
    make_table,
)
from crabpath_retrievers.cli.documents import (
    Sources,
    count_chunks_by_fate,
    describe_report,
    explain_stop,
    list_skipped,
    show_bar,
)
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.parts.source_files import require_path

if TYPE_CHECKING:
    from crabpath_retrievers.parts.sync import Section

_SHOWN = 50  # files of a sync that are printed, unless only a plan was asked for


def run_ingest(
    sources: Sources,
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Ray cluster: host:port, auto, or local."),
    ] = None,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Add very many files, on a Ray cluster if one is given; run it again after a stop."""
    for path in sources:
        require_path(path)  # before a memory is created
    stopped = "what was published stays; run it again to go on"
    with (
        CrabPath.open(store, **opening) as memory,
        explain_stop(lambda: stopped),
    ):
        report = memory.ingest(sources, ray=ray, progress=show_bar)
    speed = f"{report.seconds:.1f} s ({report.rate:.0f}/s)"
    text = f"{report.documents} documents in {speed}: {describe_report(report.chunks)}"
    bill = (
        f"about {report.embedded_tokens:,} tokens embedded, "
        f"{report.llm_tokens} tokens of language models"
    )
    numbers = {
        "documents": report.documents,
        **count_chunks_by_fate(report.chunks),
        "seconds": round(report.seconds, 3),
        "embedded_tokens": report.embedded_tokens,
        "llm_tokens": report.llm_tokens,
        "skipped": report.skipped,
    }
    return Output(numbers, [text, bill], list_skipped(report.skipped))


def run_sync(
    sources: Sources,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what would change; write nothing.")
    ] = False,
    allow_empty: Annotated[
        bool, typer.Option("--allow-empty", help="Retire everything of a source that is empty now.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Print one line per section, with its similarity.")
    ] = False,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Follow files as they change, and keep what was learned about their sections."""
    for path in sources:
        require_path(path)  # before a memory is created
    stopped = "a sync is done as a whole or not at all; run it again to finish it"
    with (
        CrabPath.open(store, **opening, create=not dry_run) as memory,
        explain_stop(lambda: stopped),
    ):
        plan = memory.sync(sources, allow_empty=allow_empty, dry_run=dry_run, progress=show_bar)
    if verbose:
        columns: tuple[str, ...] = ("change", "similarity", "section", "source")
        rows = list(map(_describe_section, plan.sections))
    else:
        columns, rows = ("source", "sections"), _count_by_file(plan.sections)
    shown = rows if dry_run or verbose else rows[:_SHOWN]
    table = [make_table(columns, shown)] if shown else []
    rest = len(rows) - len(shown)
    more = [dim(f"… and {rest} more files; --verbose or --json shows all")] if rest else []
    shifted = f" ({len(plan.positions)} of them shifted)" if plan.positions else ""
    ending = "; nothing was written" if dry_run else ""
    counts = f"{list_counts(plan.counts())}{shifted}{ending}"
    shown_plan = {**plan.to_dict(), "dry_run": dry_run}
    return Output(shown_plan, (*table, *more, counts), list_skipped(plan.skipped))


def _count_by_file(sections: "Sequence[Section]") -> list[tuple[str, ...]]:
    """Count added, changed and deleted sections by file; a renamed file has both names."""
    files: dict[str, Counter[str]] = {}
    for section in sections:
        files.setdefault(_describe_source(section), Counter())[section.fate] += 1
    return [(name, list_counts(c)) for name, c in sorted(files.items())]


def _describe_section(section: "Section") -> tuple[str, ...]:
    """Format a section as a row: fate, similarity, title and source."""
    similarity = "" if section.similarity is None else f"{section.similarity:.2f}"
    title = section.node.title or section.node.content[:60]
    return section.fate, similarity, title, _describe_source(section)


def _describe_source(section: "Section") -> str:
    """Format the source of a section: ``former → present`` if it was moved."""
    source = section.node.source
    was = source if section.was is None else section.was.source
    return source if was == source else f"{was} → {source}"
