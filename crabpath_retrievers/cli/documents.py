"""Commands about documents: ``add``, ``forget`` and ``info``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer
from langchain_core.documents import Document
from rich.markup import escape
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    OpenFlags,
    Output,
    PlaceFlags,
    Store,
    Vectors,
    Yes,
    confirm_deletion,
    errors,
    existing_store,
    make_table,
    namespace_option,
)
from crabpath_retrievers.core.calls import bar
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.text import to_storable
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.opening import describe, is_pgvector, place_of, wrapped_store

SOURCE_FILES = "crabpath_retrievers.parts.source_files"
show_bar = partial(bar, piped=True)
"""Shows progress, also where the output is no terminal."""

Sources = Annotated[
    list[Path],
    typer.Argument(help="Files, or directories of them: text, HTML, PDF, Office, mail, JSON."),
]


def run_add(
    paths: Sources,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Add files, or update what the memory holds of them."""
    part = load_part(SOURCE_FILES)
    for path in paths:
        part.require_path(path)  # before a memory is created
    with CrabPath.open(store, **opening) as memory:
        roots = part.KnownRoots(memory.store)
        documents, skipped = part.read_documents(paths, roots.choose)
        roots.remember()
        report = _add_documents(memory, documents)
    sources = {one.metadata["source"] for one in documents if one.page_content.strip()}
    numbers = {"documents": len(sources), **count_chunks_by_fate(report), "skipped": skipped}
    blank = f", {report.blank} without text left out" if report.blank else ""
    text = f"{len(sources)} documents: {describe_report(report)}{blank}"
    return Output(numbers, [text], list_skipped(skipped))


def count_chunks_by_fate(report: IngestReport) -> dict[str, Any]:
    """Count the chunks of a report by what became of them."""
    names = ("added", "updated", "removed", "unchanged", "blank", "left_out")
    return {name: getattr(report, name) for name in names}


def describe_report(report: IngestReport) -> str:
    """Say what became of chunks."""
    return (
        f"{report.added} chunks added, {report.updated} updated, {report.removed} removed, "
        f"{report.unchanged} unchanged"
    )


@contextmanager
def explain_stop(describe: Callable[[], str]) -> Iterator[None]:
    """Print what was done so far if the user interrupts."""
    try:
        yield
    except KeyboardInterrupt:
        errors.print(f"Stopped: {describe()}")
        raise typer.Exit(130) from None


def _add_documents(memory: CrabPath, documents: list[Document]) -> IngestReport:
    """Add whole files; where the user interrupts, print how much was added."""
    done, total = 0, 0

    @contextmanager
    def count_chunks(chunks: int) -> Iterator[Callable[[int], None]]:
        nonlocal total
        total = chunks
        with show_bar(chunks) as show:

            def advance(some: int) -> None:
                nonlocal done
                done += some
                show(some)

            yield advance

    def describe() -> str:
        amount = f"{done} of {total} new chunks are in" if total else "nothing was added yet"
        return f"{amount}; run it again to go on"

    with explain_stop(describe):
        return memory.add_documents(documents, cleanup="incremental", progress=count_chunks)


def list_skipped(skipped: Mapping[str, str]) -> list[str]:
    """List which files, or parts of files, were not read, and why."""
    lines = load_part(SOURCE_FILES).describe_skipped(skipped)
    return [f"[yellow]Skipped[/yellow] {escape(line)}" for line in lines]


def run_forget(
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of chunks or documents.")] = None,
    source: Annotated[
        list[str] | None, typer.Option(help="Every chunk of this source; may be given repeatedly.")
    ] = None,
    namespace: Annotated[
        str | None, namespace_option(help="All that this namespace learned.")
    ] = None,
    erase: Annotated[
        bool,
        typer.Option(
            "--erase",
            help="Write the files anew, so that none holds it; alone: what was deleted before.",
        ),
    ] = False,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[PlaceFlags],
) -> Output:
    """Delete documents, or what a namespace has learned."""
    if odd := [name for name in (*(ids or ()), *(source or ())) if to_storable(name) != name]:
        msg = f"{odd[0]!r} is in no memory, whose names are in UTF-8: crabpath list shows them"
        raise InvalidInputError(msg)
    with CrabPath.open(store, create=False, **opening) as memory:
        _confirm_forgetting(ids or [], source or [], namespace, yes=yes)
        removed = memory.forget(
            ids or None, source=source or None, namespace=namespace, erase=erase
        )
    text = []
    if removed or not removed.unknown:
        text += [f"{escape(namespace)} forgotten" if namespace else f"{removed:d} chunks deleted"]
    if names := escape(", ".join(map(repr, removed.unknown))):
        text += [f"Nothing was there of {names}: see crabpath list, list --sources, or info"]
    return Output({"removed": int(removed), **removed.to_dict()}, text)


def _confirm_forgetting(
    ids: Sequence[str], sources: Sequence[str], namespace: str | None, *, yes: bool
) -> None:
    """Ask before documents, or what a namespace has learned, are deleted for good."""
    named = (
        ", ".join(ids),
        f"all of {', '.join(sources)}" if sources else "",
        namespace and f"all that {namespace} learned",
    )
    if what := " and ".join(filter(None, named)):
        confirm_deletion(f"Delete {what}? This cannot be undone.", yes=yes)


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
    """Describe where a memory's vectors are, without opening them; None if unknown."""
    meta = opened.catalog.meta()
    wrapped = wrapped_store(meta)
    if wrapped is not None:
        return f"{wrapped}, wrapped"
    if is_pgvector(vectors, meta):
        return f"pgvector in {opened.name}"
    if vectors is None:
        return None if is_url(place) else f"Chroma in {Path(place).resolve() / 'vectors'}"
    return f"Chroma {'at' if is_url(vectors) else 'in'} {vectors}"
