"""The command line. Exit codes: 0 done, 1 a store or environment problem, 2 unusable input."""

import json
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli_history import (
    freeze,
    restore,
    snapshot,
    snapshots,
    undo,
    unfreeze,
)
from crabpath_retrievers.cli_learning import feedback, learn
from crabpath_retrievers.cli_options import (
    DEFAULT_STORE,
    AsJson,
    Namespace,
    Store,
    Vectors,
    errors,
    handled,
    out,
)
from crabpath_retrievers.cli_teaching import correct, teach
from crabpath_retrievers.evaluation.extra import require_eval_extra
from crabpath_retrievers.files import documents_in
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.seeds.embedder import MODEL

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
for history in (undo, snapshot, restore, snapshots, freeze, unfreeze):
    app.command()(history)


@app.command()
@handled
def add(
    paths: Annotated[list[Path], typer.Argument(help="Text files, or directories of them.")],
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Add or update documents."""
    documents, skipped = documents_in(paths)
    with CrabPath.open(store, vectors=vectors) as memory:
        report = memory.add_documents(documents)
    numbers = {
        "documents": len(documents),
        "added": report.added,
        "updated": report.updated,
        "removed": report.removed,
        "unchanged": report.unchanged,
        "skipped": [str(path) for path in skipped],
    }
    if as_json:
        typer.echo(json.dumps(numbers))
        return
    for path in skipped:
        errors.print(f"[yellow]Skipped[/yellow] {escape(str(path))}: not a text file")
    out.print(
        f"{len(documents)} documents: {report.added} chunks added, {report.updated} updated, "
        f"{report.removed} removed, {report.unchanged} unchanged"
    )


@app.command()
@handled
def query(
    text: Annotated[str, typer.Argument(help="The question.")],
    k: Annotated[int, typer.Option("-k", help="Documents to return.")] = 4,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    namespace: Namespace = "default",
    fill: Annotated[bool, typer.Option(help="Exactly k, or only confident ones.")] = True,
    as_json: AsJson = False,
) -> None:
    """Find the documents that answer a question."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        answer = memory.retrieve(text, k=k, namespace=namespace, fill=fill)
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
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Why each document of a turn came: seed or path, weights, tiers, probabilities."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        explanation = memory.explain(turn)
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
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        facts = memory.info()
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


@app.command("fit-prior")
@handled
def fit_prior(
    hotpotqa: Annotated[Path, typer.Option(help="HotpotQA training file, distractor setting.")],
    two_wiki: Annotated[Path, typer.Option("--2wiki", help="2WikiMultihopQA training file.")],
    musique: Annotated[Path, typer.Option(help="MuSiQue training file.")],
    write: Annotated[Path, typer.Option(help="Where to write the prior.")] = Path("prior.json"),
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
) -> None:
    """Fit the ranker's prior on training files, never on development files."""
    from crabpath_retrievers.evaluation.fitting.fit_prior import fit_files

    prior = fit_files({"hotpotqa": hotpotqa, "2wiki": two_wiki, "musique": musique}, cache)
    write.write_text(json.dumps(prior, indent=2) + "\n", encoding="utf-8")
    typer.echo(json.dumps(prior, indent=2))


@app.command("eval")
@handled
def evaluate(  # noqa: PLR0913, PLR0917  each is an option of the command
    dataset: Annotated[str, typer.Argument(help="hotpotqa, multihoprag, 2wiki, musique or beir.")],
    data: Annotated[Path, typer.Option(help="Its official file or folder, plain or .gz.")],
    methods: Annotated[str, typer.Option(help="Which to compare.")] = "dense,lexical,hybrid,cold",
    k: Annotated[str, typer.Option("--k", "-k", help="Cut-offs.")] = "2,5,10",
    limit: Annotated[int | None, typer.Option(help="Most questions; the first ones.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Draws the questions of --limit, and the resamples.")
    ] = None,
    embedding: Annotated[
        str | None, typer.Option(help="A sentence-transformers model; none: all-MiniLM-L6-v2.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    setting: Annotated[
        str, typer.Option(help="pooled, or closed: a question's own paragraphs only.")
    ] = "pooled",
    level: Annotated[
        str, typer.Option(help="document, or chunk: the measures of MultiHop-RAG itself.")
    ] = "document",
    stream: Annotated[
        str | None, typer.Option(help="prequential: retrieve, score, then learn.")
    ] = None,
    feedback: Annotated[str, typer.Option(help="used, answer or outcome.")] = "used",
    noise: Annotated[float, typer.Option(help="Share of the feedback that is flipped.")] = 0.0,
    epochs: Annotated[int, typer.Option(help="Passes over the questions.")] = 1,
    dropped: Annotated[
        float, typer.Option(help="Share of a question's words that later passes leave out.")
    ] = 0.0,
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
    report: Annotated[
        Path | None, typer.Option(help="Directory for a report with tables and plots.")
    ] = None,
) -> None:
    """Measure retrieval on a data set with labels; see docs/evaluation.md."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.plan import Plan, cut_offs, names
    from crabpath_retrievers.evaluation.reporting.writing import evaluate_and_write

    plan = Plan(
        dataset=dataset,
        data=data,
        methods=names(methods),
        ks=cut_offs(k),
        limit=limit,
        seed=seed,
        embedding=embedding or MODEL,
        cache=cache,
        setting=setting,
        level=level,
        stream=stream,
        feedback=cast("Any", feedback),
        noise=noise,
        epochs=epochs,
        dropped=dropped,
    )
    typer.echo(evaluate_and_write(plan, json_file=write, folder=report))


@app.command("eval-attribution")
@handled
def eval_attribution(
    hotpotqa: Annotated[Path | None, typer.Option(help="HotpotQA file with answers.")] = None,
    multihoprag: Annotated[Path | None, typer.Option(help="Folder of MultiHop-RAG.")] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
    write: Annotated[
        Path | None, typer.Option("--json", help="Where to write the figures.")
    ] = None,
) -> None:
    """Measure whether gold answers are attributed to the gold documents that were returned."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.reporting.writing import attribute_and_write

    given = {"hotpotqa": hotpotqa, "multihoprag": multihoprag}
    paths = {name: path for name, path in given.items() if path is not None}
    typer.echo(attribute_and_write(paths, cache=cache, json_file=write))


if __name__ == "__main__":
    app()
