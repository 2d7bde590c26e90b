"""Command groups ``crabpath history`` and ``crabpath transfer``."""

from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape
from typing_extensions import Unpack

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    OneNamespace,
    Output,
    Place,
    PlaceFlags,
    Store,
    StoreOrFile,
    Vectors,
    Within,
    Yes,
    confirm_deletion,
    existing_store,
    make_table,
    namespace_option,
)
from crabpath_retrievers.core.changes.archive import ImportResult
from crabpath_retrievers.core.query import namespace_of
from crabpath_retrievers.core.text import format_time
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.storage.write.namespaces import set_frozen
from crabpath_retrievers.transfer.archive_reader import open_archive
from crabpath_retrievers.transfer.export import export_archive

SnapshotName = Annotated[
    str, typer.Argument(help="Id of the snapshot, or its name in its namespace.")
]


def take_snapshot(
    name: Annotated[str | None, typer.Argument(help="A name to find it by.")] = None,
    *,
    namespace: OneNamespace = "default",
    store: Store = DEFAULT_STORE,
) -> Output:
    """Save all that a namespace has learned up to now."""
    with existing_store(store) as opened:
        identity = StandaloneLearner(opened).history.snapshot(namespace, name)
    return Output({"snapshot": identity}, [identity])


def delete_snapshot(
    snapshot: SnapshotName,
    namespace: OneNamespace = "default",
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Delete a snapshot."""
    confirm_deletion(f"Delete the snapshot {snapshot}? This cannot be undone.", yes=yes)
    with existing_store(store) as opened:
        identity = StandaloneLearner(opened).history.delete(snapshot, namespace)
    return Output({"deleted": identity}, [f"{identity} deleted"])


def list_snapshots(namespace: Within = None, store: Store = DEFAULT_STORE) -> Output:
    """List the snapshots of a namespace, or of all."""
    scope = None if namespace is None else namespace_of(namespace)
    with existing_store(store) as opened:
        snapshots = opened.history.snapshots(scope)
    columns = ("id", "namespace", "name", "taken", "lessons", "bytes")
    rows = [
        (s.id, s.namespace, s.name or "", format_time(s.created), str(s.learned), str(s.size))
        for s in snapshots
    ]
    return Output([snapshot._asdict() for snapshot in snapshots], [make_table(columns, rows)])


def restore_snapshot(
    snapshot: SnapshotName,
    namespace: Within = None,
    yes: Yes = False,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Reset what a namespace has learned to what it was at a snapshot."""
    confirm_deletion(f"Delete all that was learned since the snapshot {snapshot}?", yes=yes)
    with existing_store(store) as opened:
        restored = StandaloneLearner(opened).history.restore(snapshot, namespace)
    name, lessons = escape(restored.namespace), restored.learned
    text = f"{name} was reset to what it had learned from {lessons} lessons"
    return Output(restored._asdict(), [text])


def freeze_namespace(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Stop a namespace from learning; queries go on using what it has learned."""
    return _set_frozen(store, namespace, frozen=True)


def unfreeze_namespace(namespace: OneNamespace = "default", store: Store = DEFAULT_STORE) -> Output:
    """Let a frozen namespace learn again."""
    return _set_frozen(store, namespace, frozen=False)


def _set_frozen(store: str, namespace: str, *, frozen: bool) -> Output:
    space = namespace_of(namespace)
    with existing_store(store) as opened:
        opened.write(set_frozen, space, frozen=frozen)
    text = f"{escape(space)} {'learns nothing more' if frozen else 'learns again'}"
    return Output({"namespace": space, "frozen": frozen}, [text])


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
    scope = None if namespace is None else namespace_of(namespace)
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
    from crabpath_retrievers.stores.migrate import migrate

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
