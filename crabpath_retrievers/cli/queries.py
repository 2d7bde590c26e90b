"""The command that asks: ``query``."""

import os
import re
import shlex
import textwrap
from typing import Annotated, Any

import typer
from rich.text import Text
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    Namespace,
    Output,
    QueryFlags,
    Store,
    dim,
    existing_store,
)
from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.core.text import (
    find_first_line,
    list_query_words,
    list_searched_words,
    to_printable,
)
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.retrieval.pipeline import RetrievedDocument
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.base import StoredVectors
from crabpath_retrievers.vectors.opening import (
    is_pgvector,
    place_of,
    require_known_vectors,
    wrapped_store,
)

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
