"""Commands ``explain``, and ``demo`` on real passages with a real embedder."""

import shlex
from collections.abc import Iterator
from typing import Annotated

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    DEMO_STORE,
    Output,
    Store,
    errors,
    existing_store,
)
from crabpath_retrievers.core.extras import EXTRAS, list_missing
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.parts.demo import DemoResult, run_demo
from crabpath_retrievers.parts.explain import Explanation, explain_turn
from crabpath_retrievers.rerank import Ranker


def run_explain(
    turn: Annotated[str, typer.Argument(help="Turn id, or run id of the host framework.")],
    store: Store = DEFAULT_STORE,
) -> Output:
    """Show why each document of a turn was returned: path, weights, tiers, probabilities."""
    with existing_store(store) as opened:
        explanation = explain_turn(opened, Ranker.load(), turn)
    query = f"[bold]Query: {escape(explanation.turn.query)}[/bold]"
    return Output(explanation.to_dict(), [query, explanation_table(explanation)])


def show_demo_result(
    store: Annotated[
        str, typer.Option("--store", "-s", help="Where its memory stays, for crabpath explore.")
    ] = DEMO_STORE,
) -> Output:
    """Index real passages and answer questions with plain Chroma and with CrabPath."""
    result = run_demo(store, errors.print)
    return Output(result.to_dict(), _describe_demo(result, store))


def explanation_table(explanation: Explanation) -> Table:
    """Make a table of a turn's documents: probability, route, features with largest share."""
    table = Table("p", "document", "route", "log-odds by feature", show_lines=True)
    table.caption = _routing_summary(explanation.turn)
    for row in explanation.to_lines():
        route, shares = "\n".join(row.route), "\n".join(row.shares)
        table.add_row(row.probability, escape(row.document), escape(route), escape(shares))
    return table


def _routing_summary(turn: Turn) -> str | None:
    """Format calls, tokens and cost of a chat model in a turn; None if none was used."""
    asked = turn.llm_calls + turn.llm_cached_calls
    if not (asked or turn.routing):
        return None
    summary = f"chat model: {asked} calls, {turn.llm_tokens} tokens, ${turn.cost_usd:.5f}"
    return "\n".join([summary, *map(escape, turn.routing)])


def _describe_demo(result: DemoResult, store: str) -> Iterator[RenderableType]:
    """Describe the demo's results and the next commands, with their installs."""
    place = "" if store == DEMO_STORE else f" --store {escape(shlex.quote(store))}"
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
        f"\nSee its walks, give a thumb, undo it:\n{_describe_install('server')}"
        f"  crabpath explore{place}\n"
        f"\nNext, on your own files:\n{_describe_install('files')}"
        "  crabpath add docs/\n"
        '  crabpath query "how do I deploy?"\n'
        "  crabpath explain TURN"
    )


def _describe_install(extra: str) -> str:
    """Format the command that installs an extra; empty where it is installed."""
    is_missing = bool(list_missing(EXTRAS[extra]))
    return f"  pip install 'crabpath-retrievers\\[{extra}]'\n" if is_missing else ""
