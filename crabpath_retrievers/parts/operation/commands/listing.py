"""Command ``list``."""

from collections.abc import Sequence
from typing import Annotated, Any

import typer
from rich.table import Column, Table

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    Output,
    Store,
    dim,
    existing_store,
    make_table,
    namespace_option,
)
from crabpath_retrievers.core.query import require_count
from crabpath_retrievers.core.records import Node
from crabpath_retrievers.core.text import find_first_line, format_time
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.listing import (
    ListQueries,
    NoteRecord,
    TurnRecord,
    list_notes,
    list_turns,
)
from crabpath_retrievers.storage.schema import RETIRED

_ID_WIDTH = 40  # characters of an id that stay together


def list_contents(
    source: Annotated[str | None, typer.Option(help="Only chunks of this source.")] = None,
    notes: Annotated[bool, typer.Option("--notes", help="Notes instead, newest first.")] = False,
    turns: Annotated[bool, typer.Option("--turns", help="Turns instead, newest first.")] = False,
    sources: Annotated[bool, typer.Option("--sources", help="Sources instead, by name.")] = False,
    retired: Annotated[
        bool, typer.Option("--retired", help="Retired sections instead; with --source, its own.")
    ] = False,
    limit: Annotated[int, typer.Option(help="How many at most.")] = 100,
    namespace: Annotated[
        str, namespace_option(help="The namespace of the notes or turns.")
    ] = "default",
    store: Store = DEFAULT_STORE,
) -> Output:
    """List chunks of documents, or notes, turns or sources; other processes may use the memory."""
    if [source is not None or retired, notes, turns, sources].count(True) > 1:
        msg = "give at most one of --source (or --retired), --notes, --turns and --sources"
        raise InvalidInputError(msg)
    limit = require_count("limit", limit)
    with existing_store(store) as opened:
        if notes:
            table, data = _list_notes(list_notes(opened, namespace, limit))
        elif turns:
            table, data = _list_turns(list_turns(opened, namespace, limit))
        elif sources:
            table, data = _list_sources(ListQueries(opened).count_by_source(limit))
        else:
            owner = RETIRED if retired else 0
            found = ListQueries(opened).list_nodes(limit, source=source, owner=owner)
            table, data = _list_nodes(found)
    if not data:
        whose = f" in namespace {namespace}" if notes or turns else ""
        return Output(data, [dim(f"nothing{whose}; crabpath info counts what there is")])
    more = [dim(f"the first {limit}; raise --limit for more")] if len(data) == limit else []
    return Output(data, [table, *more])


_Listed = tuple[Table, list[dict[str, Any]] | dict[str, int]]


def _list_sources(found: dict[str, int]) -> _Listed:
    rows = [(str(chunks), source) for source, chunks in found.items()]
    return make_table(("chunks", "source"), rows), found


def _list_nodes(found: Sequence[Node]) -> _Listed:
    rows = [(node.id, node.source, find_first_line(node.content)) for node in found]
    data = [
        {
            "id": node.id,
            "title": node.title,
            "source": node.source,
            "content": node.content,
            "metadata": dict(node.metadata),
        }
        for node in found
    ]
    return _make_list(("id", "source", "text"), rows), data


def _list_notes(found: Sequence[NoteRecord]) -> _Listed:
    rows = [(note.id, note.kind, find_first_line(note.text)) for note in found]
    return _make_list(("id", "kind", "note"), rows), [note._asdict() for note in found]


def _list_turns(found: Sequence[TurnRecord]) -> _Listed:
    rows = [
        (turn.id, format_time(turn.created), "yes" if turn.feedback_id else "", turn.query)
        for turn in found
    ]
    columns = ("id", "asked", "learned", "question")
    return _make_list(columns, rows), [turn._asdict() for turn in found]


def _make_list(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Make a table that cuts no cell; ids of usual length stay on one line, to be copied."""
    first, *others = columns
    short = all(len(row[0]) <= _ID_WIDTH for row in rows)
    kept = Column(first, no_wrap=short, overflow="fold")
    return make_table((kept, *(Column(name, overflow="fold") for name in others)), rows)
