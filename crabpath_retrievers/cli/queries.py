"""Commands that ask: ``query``, ``explain`` and ``demo``."""

import json
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Namespace,
    Store,
    Vectors,
    errors,
    existing_store,
    out,
    report_errors,
)
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.retrieval.explain import explain_turn


@report_errors
def run_query(
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
    table = Table("score", "route", "document", box=None, pad_edge=False)
    for item in answer.documents:
        title = item.node.title or item.node.content[:60]
        route = " → ".join(edge.kind for edge in item.returned.path) or "search"
        table.add_row(f"{item.score:.2f}", route, escape(title))
    out.print(table)
    out.print(f"\nWhy: crabpath explain {answer.turn.id}", style="dim")


@report_errors
def run_explain(
    turn: Annotated[str, typer.Argument(help="Turn id, or run id of the host framework.")],
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show why each document of a turn was returned: path, weights, tiers, probabilities."""
    with existing_store(store) as opened:
        explanation = explain_turn(opened, Ranker.load(), turn)
    if as_json:
        typer.echo(json.dumps(explanation.to_dict()))
        return
    from crabpath_retrievers.cli.display import explanation_table

    out.print(f"Query: {escape(explanation.turn.query)}", style="bold")
    out.print(explanation_table(explanation))


@report_errors
def show_demo_result(as_json: AsJson = False) -> None:
    """Index real passages and answer questions with plain Chroma and with CrabPath."""
    from crabpath_retrievers.cli.demo import as_json as to_json
    from crabpath_retrievers.cli.demo import run_demo
    from crabpath_retrievers.cli.display import show_demo

    result = run_demo(errors.print)
    if as_json:
        typer.echo(to_json(result))
    else:
        show_demo(result, out)
