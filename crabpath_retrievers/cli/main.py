"""The command line. Exit codes: 0 done, 1 a store or environment problem, 2 unusable input."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from langchain_core.documents import Document
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.ab import ab
from crabpath_retrievers.cli.autotune import tune
from crabpath_retrievers.cli.evaluation import run_evaluation
from crabpath_retrievers.cli.health import doctor, health
from crabpath_retrievers.cli.history import (
    freeze,
    restore,
    snapshot,
    snapshots,
    undo,
    unfreeze,
)
from crabpath_retrievers.cli.learning import feedback, learn
from crabpath_retrievers.cli.maintenance import maintain
from crabpath_retrievers.cli.moving import export, import_, migrate, reindex, replay
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Namespace,
    Store,
    Vectors,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.cli.regions import regions
from crabpath_retrievers.cli.sync import sync
from crabpath_retrievers.cli.teaching import correct, teach
from crabpath_retrievers.explanation import explain_turn
from crabpath_retrievers.files import documents_in
from crabpath_retrievers.ingest.pipeline import IngestReport
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.opening import describe, place_of, wrapped_store
from crabpath_retrievers.progress import bar
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.storage import GraphStore

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Retrieval over a graph of your documents that learns from outcomes.",
)
app.command()(feedback)
app.command()(learn)
app.command()(teach)
app.command()(correct)
app.command()(regions)
app.command()(health)
app.command()(doctor)
app.command()(maintain)
app.command()(sync)
app.command()(ab)
app.command()(tune)
for history in (undo, snapshot, restore, snapshots, freeze, unfreeze):
    app.command()(history)
for moving in (export, migrate, reindex, replay):
    app.command()(moving)
app.command("import")(import_)
app.command("eval")(run_evaluation)


@app.command()
@handled
def add(
    paths: Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")],
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Add files, or bring what the memory holds of them to what they are now."""
    documents, skipped = documents_in(paths)
    with CrabPath.open(store, vectors=vectors) as memory:
        report = _added(memory, documents)
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


def _added(memory: CrabPath, documents: list[Document]) -> IngestReport:
    """Add whole files; where the user stops it, say what is in."""
    done, total = 0, 0

    @contextmanager
    def counted(chunks: int) -> Iterator[Callable[[int], None]]:
        nonlocal total
        total = chunks
        with bar(chunks) as show:

            def advance(some: int) -> None:
                nonlocal done
                done += some
                show(some)

            yield advance

    try:
        return memory.add_documents(documents, cleanup="incremental", progress=counted)
    except KeyboardInterrupt:
        errors.print(f"Stopped: {done} of {total} new chunks are in; run it again to go on")
        raise typer.Exit(130) from None


@app.command()
@handled
def query(
    text: Annotated[str, typer.Argument(help="The question.")],
    k: Annotated[int, typer.Option("-k", help="Documents to return.")] = 4,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    namespace: Namespace = "default",
    fill: Annotated[bool, typer.Option(help="Exactly k, or only confident ones.")] = True,
    task: Annotated[str | None, typer.Option(help="Type of the task that asks.")] = None,
    as_json: AsJson = False,
) -> None:
    """Find the documents that answer a question."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        answer = memory.retrieve(text, k=k, namespace=namespace, fill=fill, task_type=task)
    if as_json:
        documents = [
            {
                "id": item.node.id,
                "title": item.node.title,
                "source": item.node.source,
                "score": item.score,
                "origin": item.returned.origin,
                "content": item.node.content,
            }
            for item in answer.documents
        ]
        typer.echo(json.dumps({"turn_id": answer.turn.id, "documents": documents}))
        return
    table = Table("score", "came by", "document", box=None, pad_edge=False)
    for item in answer.documents:
        title = item.node.title or item.node.content[:60]
        route = " → ".join(edge.kind for edge in item.returned.path) or "search"
        table.add_row(f"{item.score:.2f}", route, escape(title))
    out.print(table)
    out.print(f"\nWhy: crabpath explain {answer.turn.id}", style="dim")


@app.command()
@handled
def explain(
    turn: Annotated[str, typer.Argument(help="Turn id, or run id of the host framework.")],
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Why each document of a turn came: seed or path, weights, tiers, probabilities."""
    with existing_store(store) as opened:
        explanation = explain_turn(opened, Ranker.load(), turn)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict()))
        return
    from crabpath_retrievers.display import explanation_table

    out.print(f"Query: {escape(explanation.turn.query)}", style="bold")
    out.print(explanation_table(explanation))


@app.command()
@handled
def info(store: Store = DEFAULT_STORE, vectors: Vectors = None, as_json: AsJson = False) -> None:
    """What the memory holds, and where."""
    with existing_store(store) as opened:
        facts = describe(opened, _where(opened, place_of(store), vectors))
    if as_json:
        typer.echo(json.dumps(facts))
        return
    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        shown = (
            ", ".join(f"{k} {v}" for k, v in value.items()) if isinstance(value, dict) else value
        )
        table.add_row(name, escape(str(shown)))
    out.print(table)


def _where(opened: GraphStore, place: str, vectors: str | None) -> str | None:
    """Where the vectors of a memory are, as far as it can be told without opening them."""
    wrapped = wrapped_store(opened.catalog.meta())
    if wrapped is not None:
        return f"{wrapped}, wrapped"
    if vectors is None:
        return None if "://" in place else f"Chroma in {Path(place).resolve() / 'vectors'}"
    return f"Chroma {'at' if '://' in vectors else 'in'} {vectors}"


@app.command()
@handled
def forget(
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


@app.command()
@handled
def demo(as_json: AsJson = False) -> None:
    """Index real passages and answer questions with plain Chroma and with CrabPath."""
    from crabpath_retrievers.demo import as_json as to_json
    from crabpath_retrievers.demo import run_demo
    from crabpath_retrievers.display import show_demo

    result = run_demo(errors.print)
    if as_json:
        typer.echo(to_json(result))
    else:
        show_demo(result, out)
