"""The commands that teach. They embed what they are told, so they open the whole memory."""

import json
from typing import Annotated, Any

import typer
from rich.markup import escape

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    Vectors,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory import CrabPath

Authority = Annotated[
    str | None, typer.Option(help="overlay, canonical or constitutional: how slowly it fades.")
]
Related = Annotated[list[str] | None, typer.Option(help="A document that it leads to.")]
Title = Annotated[str, typer.Option(help="Title of the note.")]
NoteId = Annotated[str | None, typer.Option("--id", help="Its id; the same one replaces it.")]


@handled
def teach(  # noqa: PLR0913, PLR0917  each is an option of the command
    text: Annotated[str, typer.Argument(help="What the documents do not say.")],
    query: Annotated[str | None, typer.Option(help="A question that it answers.")] = None,
    related: Related = None,
    kind: Annotated[str, typer.Option(help="teaching or directive.")] = "teaching",
    authority: Authority = None,
    title: Title = "",
    note_id: NoteId = None,
    namespace: Annotated[str, typer.Option("--namespace", "-n", help="Who sees it.")] = "default",
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Tell a namespace something; its queries find it as they find documents."""
    if kind not in {"teaching", "directive"}:
        msg = f"--kind must be teaching or directive, not {kind!r}: for corrections use correct"
        raise InvalidInputError(msg)
    given = _given(related, title, note_id, authority)
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        tell = memory.teach if kind == "teaching" else memory.direct
        _show(tell(text, query=query, namespace=namespace, **given), as_json)


@handled
def correct(  # noqa: PLR0913, PLR0917  each is an option of the command
    text: Annotated[str, typer.Argument(help="What is right.")],
    turn: Annotated[str | None, typer.Option(help="Turn id, or run id, that was wrong.")] = None,
    wrong: Annotated[
        list[str] | None, typer.Option(help="A document that is wrong; none: the best of --turn.")
    ] = None,
    query: Annotated[str | None, typer.Option(help="A question that it answers.")] = None,
    related: Related = None,
    authority: Authority = None,
    title: Title = "",
    note_id: NoteId = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Who sees it; none: whose turn it was.")
    ] = None,
    store: Store = DEFAULT_STORE,
    vectors: Vectors = None,
    as_json: AsJson = False,
) -> None:
    """Say what would have been right; what was wrong is ranked lower where that is found."""
    given = _given(related, title, note_id, authority)
    with CrabPath.open(store, vectors=vectors, create=False) as memory:
        note = memory.correct(
            text, turn_id=turn, wrong=wrong or None, query=query, namespace=namespace, **given
        )
    _show(note, as_json)


def _given(
    related: list[str] | None, title: str, note_id: str | None, authority: str | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"related": related or (), "title": title, "id": note_id}
    return fields if authority is None else {**fields, "authority": authority}


def _show(note: str, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps({"id": note}))
    else:
        out.print(f"Kept as {escape(note)}")
