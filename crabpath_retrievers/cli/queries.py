"""Commands that ask: ``query``, ``explain``, and ``demo`` on real passages with a real embedder."""

import os
import re
import shlex
import textwrap
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    DEMO_STORE,
    Namespace,
    Output,
    QueryFlags,
    Store,
    dim,
    errors,
    existing_store,
)
from crabpath_retrievers.core.extras import EXTRAS, list_missing, load_part
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.records import Turn
from crabpath_retrievers.core.text import (
    find_first_line,
    list_query_words,
    list_searched_words,
    to_printable,
)
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.rerank import Ranker
from crabpath_retrievers.retrieval.pipeline import RetrievedDocument
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import StoredVectors
from crabpath_retrievers.vectors.opening import (
    is_pgvector,
    place_of,
    require_known_vectors,
    wrapped_store,
)

if TYPE_CHECKING:
    from crabpath_retrievers.parts.demo import DemoResult
    from crabpath_retrievers.parts.explain import Explanation

_FENCE = re.compile(r"\s*(?:`{3}|~{3})")
_HEADING = re.compile(r"#{1,6}\s")
_ITEM = re.compile(r"\s*(?:[|>*+-]|\d+[.)])\s")  # where a line of a list or table begins
_LINK = re.compile(r"!?\[([^\]\n]{0,300})\]\([^)\n]{0,500}\)")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])")
_WIDTH, _LINES = 74, 2  # characters and lines of an excerpt
_MOST_READ = 20_000  # characters of a document


def run_query(  # noqa: PLR0913  each is an option of the command
    text: Annotated[str, typer.Argument(help="The question.")],
    k: Annotated[int, typer.Option("-k", help="Documents to return.")] = 4,
    *,
    store: Store = DEFAULT_STORE,
    namespace: Namespace = "default",
    fill: Annotated[bool, typer.Option(help="Exactly k, or only confident ones.")] = True,
    task: Annotated[str | None, typer.Option(help="Type of the task that asks.")] = None,
    session: Annotated[str | None, typer.Option(help="The conversation that asks.")] = None,
    recency: Annotated[float | None, typer.Option(help="Half-life of a document, in days.")] = None,
    as_of: Annotated[str | None, typer.Option(help="Only what was valid at this date.")] = None,
    **opening: Unpack[QueryFlags],
) -> Output:
    """Find the documents that answer a question."""
    with _open_for_queries(store, **opening) as memory:
        answer = memory.retrieve(
            text,
            k=k,
            namespace=namespace,
            fill=fill,
            task_type=task,
            session=session,
            recency=recency,
            as_of=as_of,
        )
    documents = [
        {
            "id": item.node.id,
            "title": item.node.title,
            "source": item.node.source,
            "score": item.score,
            "origin": item.returned.origin,
            "content": item.node.content,
            "superseded_by": item.returned.superseded_by,
        }
        for item in answer.documents
    ]
    shown = [_describe_hit(item, text) for item in answer.documents]
    turn = answer.turn.id
    known = (DEFAULT_STORE, os.environ.get("CRABPATH_STORE"))
    place = "" if store in known else f" --store {shlex.quote(store)}"
    more = dim(f"\nRate: crabpath feedback {turn} --outcome 1 --used ID{place}")
    why = dim(f"Why:  crabpath explain {turn}{place}")
    return Output({"turn_id": turn, "documents": documents}, [*shown, more, why])


def _describe_hit(item: RetrievedDocument, question: str) -> Text:
    """Format a hit: score, title, route; excerpt; source; the id on a line of its own."""
    node = item.node
    route = " → ".join(edge.kind for edge in item.returned.path) or "search"
    lines = _find_excerpt(node.content, question)
    title = node.title or ("" if node.document else str(node.metadata["title"]))
    name = title or next(iter(lines), find_first_line(node.content))
    hit = Text(no_wrap=True, overflow="ignore")
    hit.append(f"{item.score:.2f}  {to_printable(name)} ({route})\n", "bold")
    for line in lines if title else lines[1:]:
        hit.append(f"      {to_printable(line)}\n")
    return hit.append(f"      {to_printable(node.source)}\n      {to_printable(node.id)}", "dim")


def _find_excerpt(content: str, question: str) -> list[str]:
    """Find the passage of a text that shares most with a question, cut to two lines.

    It shares the most letters in common words; text counts before code, and the first of equals.
    """
    asked = {*list_query_words(question)}
    passages = [
        (is_code, piece, paragraph[paragraph.index(piece) :])
        for is_code, paragraph in _list_paragraphs(content[:_MOST_READ])
        for sentence in _SENTENCE_END.split(paragraph)
        for piece in textwrap.wrap(sentence, _WIDTH * _LINES)
    ]

    def rate(passage: tuple[bool, str, str]) -> tuple[bool, bool, int]:
        is_code, piece, _ = passage
        shared = asked.intersection(list_searched_words(piece))
        return bool(shared), not is_code, sum(map(len, shared))

    best = max(passages, key=rate)[-1] if passages else find_first_line(content)
    return textwrap.wrap(best, _WIDTH, max_lines=_LINES, placeholder=" …")


def _list_paragraphs(content: str) -> list[tuple[bool, str]]:
    """Split a text into paragraphs, items and lines of code, each with whether it is code."""
    is_code, begins, found = False, True, list[tuple[bool, str]]()
    for line in content.splitlines():
        if fence := _FENCE.match(line):
            is_code = not is_code
        text = _LINK.sub(r"\1", line).strip()
        if fence or not re.search(r"\w", text) or (_HEADING.match(line) and not is_code):
            begins = True
        elif begins or is_code or _ITEM.match(line):
            found.append((is_code, text))
            begins = is_code
        else:
            found[-1] = (is_code, f"{found[-1][1]} {text}")
    return found


def _open_for_queries(store: str, **opening: Unpack[QueryFlags]) -> CrabPath:
    """Open a memory; vectors in a local directory are read from the graph store instead.

    So a question need not wait for another process that has locked the directory.
    """
    given: dict[str, Any] = {**opening}
    vectors = opening.get("vectors")
    require_known_vectors(vectors, store)
    with existing_store(store) as opened:
        meta = opened.catalog.meta()
    if not (is_url(vectors or store) or is_pgvector(vectors, meta) or wrapped_store(meta)):
        given["vectors"] = StoredVectors(GraphStore(place_of(store)))
    return CrabPath.open(store, create=False, **given)


def run_explain(
    turn: Annotated[str, typer.Argument(help="Turn id, or run id of the host framework.")],
    store: Store = DEFAULT_STORE,
) -> Output:
    """Show why each document of a turn was returned: path, weights, tiers, probabilities."""
    with existing_store(store) as opened:
        part = load_part("crabpath_retrievers.parts.explain")
        explanation: Explanation = part.explain_turn(opened, Ranker.load(), turn)
    query = f"[bold]Query: {escape(explanation.turn.query)}[/bold]"
    return Output(explanation.to_dict(), [query, explanation_table(explanation)])


def show_demo_result(
    store: Annotated[
        str, typer.Option("--store", "-s", help="Where its memory stays, for crabpath explore.")
    ] = DEMO_STORE,
) -> Output:
    """Index real passages and answer questions with plain Chroma and with CrabPath."""
    result: DemoResult = load_part("crabpath_retrievers.parts.demo").run_demo(store, errors.print)
    return Output(result.to_dict(), _describe_demo(result, store))


def explanation_table(explanation: "Explanation") -> Table:
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


def _describe_demo(result: "DemoResult", store: str) -> Iterator[RenderableType]:
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
