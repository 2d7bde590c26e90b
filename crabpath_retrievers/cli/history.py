"""The commands that take back what was learned. They need the graph store alone."""

import json
from datetime import datetime, timezone
from typing import Annotated

import typer
from rich.markup import escape
from rich.table import Table

from crabpath_retrievers.changes import Freeze
from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    Whose,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.outside import Outside
from crabpath_retrievers.query import namespace_of

Within = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Look in this namespace alone.")
]
Kept = Annotated[str, typer.Argument(help="Id of the snapshot, or its name in its namespace.")]


@handled
def undo(
    feedback_id: Annotated[str | None, typer.Argument(help="Id of the feedback.")] = None,
    *,
    turn: Annotated[
        str | None, typer.Option(help="Instead: turn or run id that it was about.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Instead: all that this user gave.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Instead, or with --user: human, self, harvested, teacher.")
    ] = None,
    namespace: Within = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Take back all that one feedback, or all feedback of one giver, taught."""
    if user is not None or source is not None:
        if feedback_id is not None or turn is not None:
            msg = "give a feedback id, --turn, or --user and --source: one of the three"
            raise InvalidInputError(msg)
        _undo_all(user, source, namespace, store, as_json=as_json)
        return
    with existing_store(store) as opened:
        receipt = Outside(opened).undoing.undo(feedback_id, turn, namespace)
    if as_json:
        typer.echo(json.dumps(receipt._asdict()))
    elif receipt.status == "undone":
        out.print(": ".join(filter(None, (receipt.status, escape(receipt.note or "")))))
    if receipt.status != "undone":
        errors.print(f"[red]Not undone:[/red] {escape(str(receipt.note))}")
        raise typer.Exit(2)


def _undo_all(
    user: str | None, source: str | None, namespace: str | None, store: str, *, as_json: bool
) -> None:
    with existing_store(store) as opened:
        receipts = Outside(opened).undoing.undo_all(user, source, namespace)
    left = [receipt for receipt in receipts if receipt.status != "undone"]
    if as_json:
        typer.echo(json.dumps([receipt._asdict() for receipt in receipts]))
    else:
        out.print(f"{len(receipts) - len(left)} undone")
    for receipt in left:
        told = escape(f"{receipt.feedback_id}: {receipt.note}")
        errors.print(f"[red]Not undone:[/red] {told}")
    if left:
        raise typer.Exit(2)


@handled
def snapshot(
    name: Annotated[str | None, typer.Argument(help="To find it again by.")] = None,
    *,
    namespace: Whose = "default",
    delete: Annotated[str | None, typer.Option(help="Delete this one instead.")] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Keep all that a namespace has learned as it is now."""
    with existing_store(store) as opened:
        undoing = Outside(opened).undoing
        if delete is None:
            identity = undoing.snapshot(namespace, name)
        else:
            identity = undoing.delete(delete, namespace)
    if as_json:
        typer.echo(json.dumps({"snapshot": identity, "deleted": delete is not None}))
    else:
        out.print(identity if delete is None else f"{identity} deleted")


@handled
def snapshots(
    namespace: Within = None, store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """The snapshots of a namespace, or of all."""
    scope = None if namespace is None else namespace_of(namespace)
    with existing_store(store) as opened:
        found = opened.history.snapshots(scope)
    if as_json:
        typer.echo(json.dumps([kept._asdict() for kept in found]))
        return
    table = Table("id", "namespace", "name", "taken", "lessons", "bytes", box=None, pad_edge=False)
    for kept in found:
        taken = datetime.fromtimestamp(kept.created, tz=timezone.utc).astimezone()
        table.add_row(
            kept.id,
            escape(kept.namespace),
            escape(kept.name or ""),
            f"{taken:%Y-%m-%d %H:%M}",
            str(kept.learned),
            str(kept.size),
        )
    out.print(table)


@handled
def restore(
    kept: Kept, namespace: Within = None, store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Let a namespace know what it knew when a snapshot was taken, and nothing else."""
    with existing_store(store) as opened:
        found = Outside(opened).undoing.restore(kept, namespace)
    if as_json:
        typer.echo(json.dumps(found._asdict()))
    else:
        out.print(f"{escape(found.namespace)} knows what it knew after {found.learned} lessons")


@handled
def freeze(
    namespace: Whose = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Let a namespace learn nothing more; answers go on using what it knows."""
    _switch(store, namespace, frozen=True, as_json=as_json)


@handled
def unfreeze(
    namespace: Whose = "default", store: Store = DEFAULT_STORE, as_json: AsJson = False
) -> None:
    """Let a frozen namespace learn again."""
    _switch(store, namespace, frozen=False, as_json=as_json)


def _switch(store: str, namespace: str, *, frozen: bool, as_json: bool) -> None:
    space = namespace_of(namespace)
    with existing_store(store) as opened:
        opened.apply([Freeze(space, frozen=frozen)])
    if as_json:
        typer.echo(json.dumps({"namespace": space, "frozen": frozen}))
    else:
        out.print(f"{escape(space)} {'learns nothing more' if frozen else 'learns again'}")
