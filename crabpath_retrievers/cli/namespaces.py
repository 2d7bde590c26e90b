"""Command groups ``crabpath history`` and ``crabpath transfer``."""

import json
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Memory,
    OneNamespace,
    Store,
    Vectors,
    Within,
    errors,
    existing_store,
    out,
    report_errors,
)
from crabpath_retrievers.core.changes import SetFrozen
from crabpath_retrievers.core.query import namespace_of
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.transfer.archive_reader import open_archive
from crabpath_retrievers.transfer.export import export_archive as export_store
from crabpath_retrievers.transfer.import_ import ImportResult

SnapshotName = Annotated[
    str, typer.Argument(help="Id of the snapshot, or its name in its namespace.")
]


ArchiveFile = Annotated[Path, typer.Argument(help="File of the archive.")]


history = typer.Typer(no_args_is_help=True)
transfer = typer.Typer(no_args_is_help=True)


@history.command("snapshot")
@report_errors
def take_snapshot(
    name: Annotated[str | None, typer.Argument(help="A name to find it by.")] = None,
    *,
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Save all that a namespace has learned up to now."""
    with existing_store(store) as graph_store:
        identity = StandaloneLearner(graph_store).history.snapshot(namespace, name)
    if as_json:
        typer.echo(json.dumps({"snapshot": identity}))
    else:
        out.print(identity)


@history.command("delete")
@report_errors
def delete_snapshot(
    snapshot: SnapshotName,
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Delete a snapshot."""
    with existing_store(store) as graph_store:
        identity = StandaloneLearner(graph_store).history.delete(snapshot, namespace)
    if as_json:
        typer.echo(json.dumps({"deleted": identity}))
    else:
        out.print(f"{identity} deleted")


@history.command("list")
@report_errors
def list_snapshots(
    namespace: Within = None, store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """List the snapshots of a namespace, or of all."""
    scope = None if namespace is None else namespace_of(namespace)
    with existing_store(store) as graph_store:
        snapshots = graph_store.history.snapshots(scope)
    if as_json:
        typer.echo(json.dumps([snapshot._asdict() for snapshot in snapshots]))
        return
    table = Table("id", "namespace", "name", "taken", "lessons", "bytes", box=None, pad_edge=False)
    for snapshot in snapshots:
        created = datetime.fromtimestamp(snapshot.created, tz=timezone.utc).astimezone()
        table.add_row(
            snapshot.id,
            escape(snapshot.namespace),
            escape(snapshot.name or ""),
            f"{created:%Y-%m-%d %H:%M}",
            str(snapshot.learned),
            str(snapshot.size),
        )
    out.print(table)


@history.command("restore")
@report_errors
def restore_snapshot(
    snapshot: SnapshotName,
    namespace: Within = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Reset what a namespace has learned to what it was at a snapshot."""
    with existing_store(store) as graph_store:
        restored = StandaloneLearner(graph_store).history.restore(snapshot, namespace)
    if as_json:
        typer.echo(json.dumps(restored._asdict()))
    else:
        name, lessons = escape(restored.namespace), restored.learned
        out.print(f"{name} was reset to what it had learned from {lessons} lessons")


@history.command("freeze")
@report_errors
def freeze_namespace(
    namespace: OneNamespace = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Stop a namespace from learning; queries go on using what it has learned."""
    _set_frozen(store, namespace, frozen=True, as_json=as_json)


@history.command("unfreeze")
@report_errors
def unfreeze_namespace(
    namespace: OneNamespace = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Let a frozen namespace learn again."""
    _set_frozen(store, namespace, frozen=False, as_json=as_json)


def _set_frozen(store: str, namespace: str, *, frozen: bool, as_json: bool) -> None:
    space = namespace_of(namespace)
    with existing_store(store) as graph_store:
        graph_store.apply([SetFrozen(space, frozen=frozen)])
    if as_json:
        typer.echo(json.dumps({"namespace": space, "frozen": frozen}))
    else:
        out.print(f"{escape(space)} {'learns nothing more' if frozen else 'learns again'}")


@transfer.command("export")
@report_errors
def run_export(
    path: Memory,
    archive: ArchiveFile,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only what this namespace has learned.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a memory, or what one namespace has learned, into one file."""
    scope = None if namespace is None else namespace_of(namespace)
    with existing_store(path) as store:
        done = export_store(store, archive, scope)
    if as_json:
        typer.echo(json.dumps({**done._asdict(), "path": str(done.path)}))
    else:
        rows = sum(done.rows.values())
        out.print(f"{escape(str(done.path))}: {rows} rows, {done.size / 1e6:.1f} MB")


@transfer.command("import")
@report_errors
def import_archive(
    archive: ArchiveFile,
    path: Memory,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this namespace of a whole memory.")
    ] = None,
    rename: Annotated[str | None, typer.Option("--as", help="Its name there.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="First delete what it has learned there so far.")
    ] = False,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Import an archive: a whole memory into an empty place, or what a namespace learned."""
    with open_archive(archive.expanduser()) as checked:  # before anything is created at the path
        whole = namespace is None and checked.manifest.namespace is None
    with CrabPath.open(path, vectors=vectors, create=whole) as memory:
        done = memory.transfer.import_archive(
            archive, namespace=namespace, rename=rename, replace=replace
        )
    _show_import(done, path, as_json=as_json)


@transfer.command("migrate")
@report_errors
def migrate_memory(
    source: Annotated[str, typer.Argument(help="Directory or database URL.")],
    destination: Annotated[
        str, typer.Argument(help="Where to: an empty place; or the source, to move vectors only.")
    ],
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Copy a memory to another database, or its vectors to another index."""
    from crabpath_retrievers.stores.migrate import migrate as copy

    _show_import(copy(source, destination, vectors=vectors), destination, as_json=as_json)


def _show_import(done: ImportResult, path: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done._asdict()))
        return
    what = "memory" if done.namespace is None else f"namespace {escape(done.namespace)}"
    amount = "was there before" if done.before else f"{_total(done.rows)} rows"
    out.print(f"{what} in {escape(path)}: {amount}")
    if done.missing:
        errors.print(
            f"[yellow]Left out[/yellow] {_total(done.left_out)} rows about {done.missing} "
            "documents that this memory does not hold"
        )


def _total(rows: Mapping[str, int]) -> int:
    return sum(rows.values())
