"""Explanations and the demo, drawn for a terminal."""

from datetime import datetime, timezone

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.cli.demo import DemoResult
from crabpath_retrievers.core.turn import PathEdge, Turn
from crabpath_retrievers.retrieval.explain import DocumentReason, Explanation

_SHOWN = 4


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
        f"      {move.delta:+.3f} by {escape(move.feedback_id)}, "
        f"{datetime.fromtimestamp(move.created, tz=timezone.utc).astimezone():%Y-%m-%d %H:%M}"
        for moved in reason.moved
        if (moved.source, moved.target, moved.kind) == name
        for move in moved.moves
    ]


def show_demo(result: DemoResult, out: Console) -> None:
    """Print the results of the demo, and what to try next."""
    table = Table("k = 5, same embedder", "all gold passages found")
    table.add_row("plain Chroma", f"{result.plain:.0%} of {result.questions} questions")
    table.add_row("CrabPath", f"{result.crabpath:.0%} of {result.questions} questions")
    out.print(table)
    out.print(f"{result.passages} passages were indexed in {result.seconds:.0f} s.\n")
    if result.example and result.route:
        text, gold, plain, walked = result.example
        out.print(f"Example: {escape(text)}", style="bold")
        out.print(f"needed    {escape(', '.join(gold))}")
        out.print(f"Chroma    {escape(', '.join(plain))}")
        out.print(f"CrabPath  {escape(', '.join(walked))}\n")
        out.print(explanation_table(result.route))
    out.print(
        "\nNext, on your own files:\n"
        "  crabpath add docs/\n"
        '  crabpath query "how do I deploy?"\n'
        "  crabpath explain TURN"
    )
