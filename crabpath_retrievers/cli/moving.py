"""The commands that move what a memory holds, or has learned, from one place to another."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from crabpath_retrievers.archive.exporting import export as export_store
from crabpath_retrievers.archive.importing import Imported
from crabpath_retrievers.archive.reading import opened
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Place,
    Store,
    Vectors,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.query import namespace_of

Memory = Annotated[str, typer.Argument(help="Directory or database URL of the memory.")]
File = Annotated[Path, typer.Argument(help="File of the archive.")]


@handled
def export(
    path: Memory,
    archive: File,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only what this namespace has learned.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a memory, or what one namespace has learned, into one file; beside any server."""
    whose = None if namespace is None else namespace_of(namespace)
    with existing_store(path) as store:
        done = export_store(store, archive, whose)
    if as_json:
        typer.echo(json.dumps({**done._asdict(), "path": str(done.path)}))
    else:
        rows = sum(done.rows.values())
        out.print(f"{escape(str(done.path))}: {rows} rows, {done.size / 1e6:.1f} MB")


@handled
def import_(
    archive: File,
    path: Memory,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Only this one of a whole memory.")
    ] = None,
    rename: Annotated[str | None, typer.Option("--as", help="Its name there.")] = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Forget what it has learned there so far.")
    ] = False,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Take over an archive: a whole memory into an empty place, or what a namespace learned."""
    with opened(archive.expanduser()) as checked:  # before anything is made at the path
        whole = namespace is None and checked.manifest.namespace is None
    with CrabPath.open(path, vectors=vectors, create=whole) as memory:
        done = memory.import_archive(archive, namespace=namespace, rename=rename, replace=replace)
    _tell(done, path, as_json=as_json)


@handled
def migrate(
    source: Annotated[str, typer.Argument(help="Directory or database URL.")],
    destination: Annotated[
        str, typer.Argument(help="Where to: an empty place; or the source, to move vectors only.")
    ],
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Copy a memory to another database, or its vectors to another index."""
    from crabpath_retrievers.migration import migrate as copy

    _tell(copy(source, destination, vectors=vectors), destination, as_json=as_json)


@handled
def reindex(
    path: Place = None,
    *,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Fill the vector index again from the database, and delete what belongs to no document."""
    place = path or store
    with CrabPath.open(place, vectors=vectors, create=False, reindex=True) as memory:
        count, where = memory.index.count(), memory.index.description
    if as_json:
        typer.echo(json.dumps({"vectors": count}))
    else:
        out.print(f"{count} vectors in {escape(where)}")


def _tell(done: Imported, path: str, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(done._asdict()))
        return
    what = "memory" if done.namespace is None else f"namespace {escape(done.namespace)}"
    said = "was there before" if done.before else f"{_count(done.rows)} rows"
    out.print(f"{what} in {escape(path)}: {said}")
    if done.missing:
        errors.print(
            f"[yellow]Left out[/yellow] {_count(done.left_out)} rows about {done.missing} "
            "documents that this memory does not hold"
        )


def _count(rows: Mapping[str, int]) -> int:
    return sum(rows.values())


@handled
def replay(
    path: Memory,
    sessions: Annotated[Path, typer.Argument(help="File of JSON lines, one per question.")],
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Who learns.")] = "default",
    k: Annotated[int, typer.Option("-k", help="Documents to retrieve.")] = 4,
    checkpoint: Annotated[
        Path | None, typer.Option(help="File that remembers how far the replay is.")
    ] = None,
    skip_bad: Annotated[bool, typer.Option("--skip-bad", help="Pass over unusable lines.")] = False,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Ask what was asked in past sessions, and learn from how they ended."""
    with CrabPath.open(path, vectors=vectors, create=False) as memory:
        done = memory.replay(
            sessions, namespace=namespace, k=k, checkpoint=checkpoint, skip_bad=skip_bad
        )
    if as_json:
        plain: dict[str, Any] = done._asdict()
        troubles = {name: [t._asdict() for t in plain[name]] for name in ("refused", "bad")}
        typer.echo(json.dumps({**plain, **troubles}))
        return
    for name, lines in (("Unusable", done.bad), ("Refused", done.refused)):
        for line, why in lines:
            errors.print(f"[yellow]{name}[/yellow] line {line}: {escape(why)}")
    out.print(
        f"{done.asked} asked, {done.learned} learned from, {done.waiting} waiting, "
        f"{done.before} replayed before"
    )
