"""Command group ``crabpath transfer``, and ``replay``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    OneNamespace,
    OpenFlags,
    Output,
    Place,
    PlaceFlags,
    Store,
    StoreOrFile,
    Vectors,
    Yes,
    confirm_deletion,
    existing_store,
    leave_receipts_to_command,
    namespace_option,
)
from crabpath_retrievers.core.query import parse_namespace
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.parts.operation.migrate import migrate
from crabpath_retrievers.parts.operation.replay import ReplayCheck
from crabpath_retrievers.parts.operation.transfer.archive import open_archive
from crabpath_retrievers.parts.operation.transfer.export import export_archive
from crabpath_retrievers.parts.operation.transfer.fill import ImportResult
from crabpath_retrievers.parts.operation.transfer.replay_file import LineError

_MOST_SHOWN = 10  # lines of a file that one kind of trouble names


def run_export(
    file: StoreOrFile,
    *,
    namespace: Annotated[
        str | None, namespace_option(help="Only what this namespace has learned.")
    ] = None,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Write a memory, or what one namespace has learned, into one file."""
    scope = None if namespace is None else parse_namespace(namespace)
    if file.expanduser().exists():
        confirm_deletion(f"Replace {file}?", yes=yes)
    with existing_store(store) as opened:
        done = export_archive(opened, file, scope)
    size = f"{sum(done.rows.values())} rows, {done.size / 1e6:.1f} MB"
    data = {**done._asdict(), "path": str(done.path)}
    return Output(data, [f"{escape(str(done.path))}: {size}"])


def export_graph(
    file: StoreOrFile,
    *,
    store: Store = DEFAULT_STORE,
    around: Annotated[
        list[str] | None, typer.Option(help="Only what is near this document, chunk or note.")
    ] = None,
    max_hops: Annotated[int, typer.Option(help="With --around: how near, in edges.")] = 2,
    limit: Annotated[int, typer.Option(help="With --around: how many nodes at most.")] = 500,
    edge_type: Annotated[
        list[str] | None, typer.Option("--type", help="Only edges of this type.")
    ] = None,
    namespace: OneNamespace = "default",
    **opening: Unpack[PlaceFlags],
) -> Output:
    """Write the graph as GraphML, to draw it: what is near a document, or all of it."""
    with CrabPath.open(store, create=False, **opening) as memory:
        graph = memory.graph.write_graphml(
            file,
            edge_type=edge_type or None,
            around=around or None,
            max_hops=max_hops,
            limit=limit,
            namespace=namespace,
        )
    return Output({"path": str(graph)}, [escape(str(graph))])


def import_archive(
    archive: Annotated[Path, typer.Argument(help="File of the archive.")],
    place: Place = None,  # noqa: ARG001  it comes as the store
    *,
    namespace: Annotated[
        str | None, namespace_option(help="Only this namespace of a whole memory.")
    ] = None,
    rename: Annotated[str | None, typer.Option("--as", help="Its name there.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="First delete what it has learned there so far.")
    ] = False,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[PlaceFlags],
) -> Output:
    """Import an archive: a whole memory into an empty place, or what a namespace learned."""
    with open_archive(archive.expanduser()) as checked:  # before anything is created at the path
        whole = namespace is None and checked.manifest.namespace is None
    if replace:
        confirm_deletion(f"Delete what the namespace has learned in {store} so far?", yes=yes)
    with CrabPath.open(store, create=whole, **opening) as memory:
        done = memory.transfer.import_archive(
            archive, namespace=namespace, rename=rename, replace=replace
        )
    return _show_import(done, store)


def migrate_memory(
    source: Annotated[str, typer.Argument(help="Directory or database URL.")],
    destination: Annotated[
        str, typer.Argument(help="Where to: an empty place; or the source, to move vectors only.")
    ],
    vectors: Vectors = None,
) -> Output:
    """Copy a memory to another database, or its vectors to another index."""
    return _show_import(migrate(source, destination, vectors=vectors), destination)


def _show_import(done: ImportResult, path: str) -> Output:
    what = "memory" if done.namespace is None else f"namespace {escape(done.namespace)}"
    amount = "was there before" if done.before else f"{sum(done.rows.values())} rows"
    left_out = (
        f"[yellow]Left out[/yellow] {sum(done.left_out.values())} rows about {done.missing} "
        "documents that this memory does not hold"
    )
    text = f"{what} in {escape(path)}: {amount}"
    return Output(done._asdict(), [text], warnings=[left_out] if done.missing else ())


def run_replay(
    file: StoreOrFile,
    *,
    store: Store = DEFAULT_STORE,
    namespace: Annotated[str, namespace_option(help="The namespace that learns.")] = "default",
    k: Annotated[int, typer.Option("-k", help="Documents to retrieve.")] = 4,
    checkpoint: Annotated[Path | None, typer.Option(help="File that saves the progress.")] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Skip unusable lines.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say how many lines name known documents.")
    ] = False,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Ask the questions of a log again, and learn from what was right.

    The file has JSON lines, one per question, runs exported from LangSmith among them, or is a
    table (.csv).
    """
    leave_receipts_to_command()
    with CrabPath.open(store, **opening, create=False) as memory:
        if dry_run:
            return _show_check(memory.learning.check_replay(file, namespace=namespace))
        done = memory.learning.replay(
            file, namespace=namespace, k=k, checkpoint=checkpoint, skip_bad=skip_bad
        )
    text = (
        f"{done.asked} asked, {done.learned} learned from, {done.waiting} waiting, "
        f"{done.before} replayed before, {len(done.refused)} refused, {len(done.bad)} unusable"
    )
    return _show_replay(done._asdict(), text, Unusable=done.bad, Refused=done.refused)


def _show_check(found: ReplayCheck) -> Output:
    text = (
        f"{found.readable} can be replayed: {found.matched} name relevant documents of this "
        f"memory, {len(found.unmatched)} only others; {len(found.bad)} unusable"
    )
    return _show_replay(found._asdict(), text, Unusable=found.bad, Unknown=found.unmatched)


def _show_replay(data: dict[str, Any], text: str, **troubles: Sequence[LineError]) -> Output:
    """Show a report with the first lines of each trouble; all of them are in ``data``.

    ``text`` is the beginning of what people read.
    """
    warnings = []
    for name, lines in troubles.items():
        shown = lines[:_MOST_SHOWN]
        warnings += [f"[yellow]{name}[/yellow] line {line}: {escape(why)}" for line, why in shown]
        if more := len(lines) - len(shown):
            warnings.append(f"[yellow]{name}[/yellow] are {more} more: --json lists them")
    listed = {
        name: [trouble._asdict() for trouble in value]
        for name, value in data.items()
        if isinstance(value, tuple)
    }
    return Output({**data, **listed}, [text], warnings)
