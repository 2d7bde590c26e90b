"""The commands that learn. They need the graph store alone, so they run beside any server."""

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Annotated, Any

import typer
from rich.markup import escape

from crabpath_retrievers.cli.options import (
    DEFAULT_STORE,
    AsJson,
    Store,
    errors,
    existing_store,
    handled,
    out,
)
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.feedback.outside import Outside
from crabpath_retrievers.outcome import Feedback


@handled
def feedback(  # noqa: PLR0913  each is an option of the command
    turn: Annotated[
        str | None,
        typer.Argument(help="Turn id or run id; without one, the last turns of the namespace."),
    ] = None,
    *,
    outcome: Annotated[float, typer.Option(help="From -1 (failure) to 1 (success).")],
    used: Annotated[list[str] | None, typer.Option(help="A document the answer rests on.")] = None,
    unused: Annotated[list[str] | None, typer.Option(help="One it does not rest on.")] = None,
    answer: Annotated[str | None, typer.Option(help="What was answered.")] = None,
    correction: Annotated[str | None, typer.Option(help="What would have been right.")] = None,
    source: Annotated[str, typer.Option(help="human, self, harvested or teacher.")] = "human",
    feedback_id: Annotated[
        str | None, typer.Option("--id", help="The same id again changes nothing.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Who gave it.")] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Whose turn it must be.")
    ] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Tell what became of a turn, and learn from it."""
    fields: dict[str, Any] = {"source": source, "answer": answer, "correction": correction}
    fields["user"] = user
    if feedback_id is not None:
        fields["feedback_id"] = feedback_id
    given = Feedback(
        turn, outcome, used=used or None, unused=unused or None, namespace=namespace, **fields
    )
    with existing_store(store) as opened:
        receipt = Outside(opened).record(given)
    if as_json:
        typer.echo(json.dumps(receipt._asdict()))
    elif receipt.status != "refused":
        out.print(": ".join(filter(None, (receipt.status, escape(receipt.note or "")))))
    if receipt.status == "refused":
        errors.print(f"[red]Refused:[/red] {escape(str(receipt.note))}")
        raise typer.Exit(2)


@handled
def learn(
    worker: Annotated[
        bool, typer.Option("--worker", help="Go on with what comes, until SIGTERM or Ctrl-C.")
    ] = False,
    poll: Annotated[float, typer.Option(help="Seconds between looks of a worker.")] = 1.0,
    from_langsmith: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="Pull the feedback of a LangSmith project first."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only what was said in LangSmith since this ISO 8601 time.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A key of LangSmith feedback that counts.")
    ] = None,
    namespace: Annotated[
        str | None, typer.Option("--namespace", "-n", help="Whose turns LangSmith may teach.")
    ] = None,
    store: Store = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Learn from the feedback that waits, beside whatever serves the memory."""
    if not 0 < poll <= _LONGEST_POLL:
        msg = f"--poll must be above 0 and at most {_LONGEST_POLL} seconds, not {poll:g}"
        raise InvalidInputError(msg)
    if from_langsmith is None and (since or key or namespace):
        msg = "--since, --key and --namespace are about LangSmith: give --from-langsmith PROJECT"
        raise InvalidInputError(msg)
    pulled = None
    with existing_store(store) as opened, _ending() as end:
        outside = Outside(opened)
        if from_langsmith is not None:
            pulled = _pulled(outside, from_langsmith, _time(since), key, namespace)
        if worker:
            errors.print(f"Learning for {escape(opened.name)}; Ctrl-C ends it", style="dim")
            tally = outside.serve(poll, end.is_asked)
        else:
            tally = outside.inbox.learn_waiting(ended=end.is_asked)
        waiting = opened.learned.tally()["waiting"]
    if as_json:
        given = {} if pulled is None else {"langsmith": pulled}
        typer.echo(json.dumps({**tally._asdict(), "waiting": waiting, **given}))
    else:
        if pulled is not None:
            told = ", ".join(f"{number} {name}" for name, number in pulled.items())
            out.print(f"LangSmith: {told}")
        out.print(f"{tally.applied} applied, {tally.refused} refused, {waiting} waiting")
    if tally.failed:
        errors.print(f"[red]Error:[/red] {tally.failed} could not be learned from; they wait")
        raise typer.Exit(1)


_LONGEST_POLL = 3600


def _pulled(
    outside: Outside,
    project: str,
    since: datetime | None,
    keys: list[str] | None,
    namespace: str | None,
) -> dict[str, int]:
    """What became of the feedback of a LangSmith project."""
    from crabpath_retrievers.callbacks.langsmith_pull import connected, pull
    from crabpath_retrievers.outcome_policy import OutcomePolicy

    policy = OutcomePolicy(feedback_keys=tuple(keys)) if keys else OutcomePolicy()
    client = connected()
    pulled = pull(client, outside, project, since=since, policy=policy, namespace=namespace)
    return pulled._asdict()


def _time(since: str | None) -> datetime | None:
    if since is None:
        return None
    try:
        return datetime.fromisoformat(since.replace("Z", "+00:00"))
    except ValueError as error:
        msg = f"--since must be a time such as 2026-11-01 or 2026-11-01T08:00, not {since!r}"
        raise InvalidInputError(msg) from error


class _End:
    """Whether the process was asked to end."""

    asked = False

    def is_asked(self) -> bool:
        """Whether it is time."""
        return self.asked


@contextmanager
def _ending() -> Iterator[_End]:
    """The first SIGTERM or SIGINT asks to end, a second one ends at once."""
    end = _End()
    former: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def ask(number: int, _frame: object) -> None:
        end.asked = True
        signal.signal(number, former[number])

    for number in former:
        signal.signal(number, ask)
    try:
        yield end
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)
