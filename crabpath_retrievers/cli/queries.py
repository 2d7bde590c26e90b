"""Commands that ask: ``query``, ``explain`` and ``demo``."""

from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.demo import DemoResult, run_demo
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    Namespace,
    Output,
    Store,
    Vectors,
    dim,
    errors,
    existing_store,
    format_time,
    make_table,
)
from crabpath_retrievers.core.turn import PathEdge, Turn
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.rerank.ranker import Ranker
from crabpath_retrievers.retrieval.explain import DocumentReason, Explanation, explain_turn

_SHOWN = 4  # features of a document


def run_query(
    text: Annotated[str, typer.Argument(help="The question.")],
    k: Annotated[int, typer.Option("-k", help="Documents to return.")] = 4,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    namespace: Namespace = "default",
    fill: Annotated[bool, typer.Option(help="Exactly k, or only confident ones.")] = True,
    task: Annotated[str | None, typer.Option(help="Type of the task that asks.")] = None,
) -> Output:
    """Find the documents that answer a question."""
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        answer = memory.retrieve(text, k=k, namespace=namespace, fill=fill, task_type=task)
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
    rows = [
        (
            f"{item.score:.2f}",
            " → ".join(edge.kind for edge in item.returned.path) or "search",
            item.node.title or item.node.content[:60],
        )
        for item in answer.documents
    ]
    table = make_table(("score", "route", "document"), rows)
    why = dim(f"\nWhy: crabpath explain {answer.turn.id}")
    return Output({"turn_id": answer.turn.id, "documents": documents}, [table, why])


def run_explain(
    turn: Annotated[str, typer.Argument(help="Turn id, or run id of the host framework.")],
    store: Store = DEFAULT_STORE,
) -> Output:
    """Show why each document of a turn was returned: path, weights, tiers, probabilities."""
    with existing_store(store) as opened:
        explanation = explain_turn(opened, Ranker.load(), turn)
    query = f"[bold]Query: {escape(explanation.turn.query)}[/bold]"
    return Output(explanation.to_dict(), [query, explanation_table(explanation)])


def show_demo_result() -> Output:
    """Index real passages and answer questions with plain Chroma and with CrabPath."""
    result = run_demo(errors.print)
    return Output(result.to_dict(), _describe_demo(result))


def explanation_table(explanation: Explanation) -> Table:
    """One row per document: probability, route, and the features with the largest share."""
    table = Table("p", "document", "route", "log-odds by feature", show_lines=True)
    table.caption = _routing_summary(explanation.turn)
    for reason in explanation.documents:
        shares = list(reason.contributions.items())[:_SHOWN]
        table.add_row(
            f"{reason.probability:.2f}",
            escape(reason.title or reason.id),
            _route(reason, explanation.titles),
            "\n".join(f"{name} {share:+.2f}" for name, share in shares if name != "bias"),
        )
    return table


def _routing_summary(turn: Turn) -> str | None:
    """Calls, tokens and cost of a chat model in the turn; None where none was used."""
    asked = turn.llm_calls + turn.llm_cached_calls
    if not (asked or turn.routing):
        return None
    summary = f"chat model: {asked} calls, {turn.llm_tokens} tokens, ${turn.cost_usd:.5f}"
    return "\n".join([summary, *map(escape, turn.routing)])


def _route(reason: DocumentReason, titles: dict[str, str]) -> str:
    if not reason.path:
        return _search_hit(reason, titles)
    lines = [escape(titles.get(reason.path[0].source) or reason.path[0].source)]
    for edge in reason.path:
        target = escape(titles.get(edge.target) or edge.target)
        decided = f"{edge.kind} {edge.weight:.2f}, {edge.tier}, π {edge.probability:.2f}"
        lines.append(f"  └ {decided} → {target}")
        lines += _weight_changes(reason, edge)
    return "\n".join(lines)


def _search_hit(reason: DocumentReason, titles: dict[str, str]) -> str:
    """A search hit, with the edge that raised its score most."""
    edge = reason.support
    if edge is None:
        return "search hit"
    by = f"  {edge.kind} {edge.weight:.2f} by {escape(titles.get(edge.source, ''))}"
    return "\n".join(("search hit", by, *_weight_changes(reason, edge)))


def _weight_changes(reason: DocumentReason, edge: PathEdge) -> list[str]:
    """The feedback that changed the weight of an edge, with its time."""
    name = (edge.source, edge.target, edge.kind)
    return [
        f"      {move.delta:+.3f} by {escape(move.feedback_id)}, {format_time(move.created)}"
        for moved in reason.moved
        if (moved.source, moved.target, moved.kind) == name
        for move in moved.moves
    ]


def _describe_demo(result: DemoResult) -> Iterator[RenderableType]:
    """The results of the demo, and what to try next."""
    table = Table("k = 5, same embedder", "all gold passages found")
    for name, share in (("plain Chroma", result.plain), ("CrabPath", result.crabpath)):
        table.add_row(name, f"{share:.0%} of {result.questions} questions")
    yield table
    yield f"{result.passages} passages were indexed in {result.seconds:.0f} s.\n"
    if result.example and result.route:
        text, gold, plain, walked = result.example
        yield f"[bold]Example: {escape(text)}[/bold]"
        yield f"needed    {escape(', '.join(gold))}"
        yield f"Chroma    {escape(', '.join(plain))}"
        yield f"CrabPath  {escape(', '.join(walked))}\n"
        yield explanation_table(result.route)
    yield (
        "\nNext, on your own files:\n"
        "  crabpath add docs/\n"
        '  crabpath query "how do I deploy?"\n'
        "  crabpath explain TURN"
    )
