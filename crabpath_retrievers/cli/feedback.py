"""Commands that teach: ``feedback``, ``teach``, ``correct``, ``undo``, ``learn``."""

from contextlib import suppress
from datetime import datetime
from typing import Annotated, Any, cast

import typer
from rich.markup import escape
from typing_extensions import Unpack

from crabpath_retrievers.cli.commands import (
    DEFAULT_STORE,
    OpenFlags,
    Output,
    Store,
    Within,
    catch_signals,
    errors,
    existing_store,
    leave_receipts_to_command,
    list_counts,
    namespace_option,
    parse_time,
)
from crabpath_retrievers.config.outcome_policy import OutcomePolicy
from crabpath_retrievers.core.extras import load_part
from crabpath_retrievers.core.feedback import Feedback, Receipt
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.learning.outcomes import Outcome, parse_outcome
from crabpath_retrievers.learning.standalone import StandaloneLearner
from crabpath_retrievers.memory.services import make_lesson_hook

_LONGEST_POLL = 3600  # seconds

Authority = Annotated[
    str | None,
    typer.Option(
        help="overlay, canonical or constitutional: how slowly weights that lead to it decay."
    ),
]
Related = Annotated[list[str] | None, typer.Option(help="A document that it leads to.")]
Title = Annotated[str, typer.Option(help="Title of the note.")]
NoteId = Annotated[str | None, typer.Option("--id", help="Its id; the same one replaces it.")]


def run_feedback(  # noqa: PLR0913  each is an option of the command
    turn: Annotated[
        str | None,
        typer.Argument(help="Turn id or run id; without one, the last turn of the namespace."),
    ] = None,
    *,
    outcome: Annotated[
        str, typer.Option(help="up, down, or a number from -1 (failure) to 1 (success).")
    ],
    used: Annotated[
        list[str] | None, typer.Option(help="Id of a document that the answer used.")
    ] = None,
    unused: Annotated[list[str] | None, typer.Option(help="Id of one that it did not use.")] = None,
    relevant: Annotated[
        list[str] | None, typer.Option(help="Id of one that answers the question, returned or not.")
    ] = None,
    irrelevant: Annotated[list[str] | None, typer.Option(help="Id of one that does not.")] = None,
    answer: Annotated[str | None, typer.Option(help="What was answered.")] = None,
    correction: Annotated[str | None, typer.Option(help="What would have been right.")] = None,
    source: Annotated[str, typer.Option(help="human, self, harvested or teacher.")] = "human",
    feedback_id: Annotated[
        str | None, typer.Option("--id", help="The same id again replaces what it said.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Who gave it.")] = None,
    session: Annotated[
        str | None, typer.Option(help="The conversation: its last turn, where none is given.")
    ] = None,
    namespace: Annotated[str | None, namespace_option(help="The namespace of the turn.")] = None,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Record the outcome of a turn, and learn from it."""
    fields: dict[str, Any] = {"source": source, "answer": answer, "correction": correction}
    fields |= {"user": user, "session": session}
    if feedback_id is not None:
        fields["feedback_id"] = feedback_id
    named = {"used": used, "unused": unused, "relevant": relevant, "irrelevant": irrelevant}
    fields |= {name: ids or None for name, ids in named.items()}
    said: Outcome = outcome
    with suppress(ValueError):
        said = float(outcome)
    feedback = Feedback(turn, parse_outcome(said), namespace=namespace, **fields)
    leave_receipts_to_command()
    with existing_store(store) as opened:
        receipt = StandaloneLearner(opened, make_lesson_hook).record(feedback)
    return _show_receipt(receipt, "Refused" if receipt.status == "refused" else None)


def _show_receipt(receipt: Receipt, failure: str | None) -> Output:
    """Show the status of feedback; or, for a failure, the reason as an error."""
    if failure is not None:
        reason = f"[red]{failure}:[/red] {escape(str(receipt.note))}"
        return Output(receipt._asdict(), errors=[reason], code=2)
    text = ": ".join(filter(None, (receipt.status, escape(receipt.note or ""))))
    return Output(receipt._asdict(), [text])


def run_teach(  # noqa: PLR0913, PLR0917  each is an option of the command
    text: Annotated[str, typer.Argument(help="The note: something that the documents do not say.")],
    query: Annotated[str | None, typer.Option(help="A question that it answers.")] = None,
    related: Related = None,
    kind: Annotated[str, typer.Option(help="teaching or directive.")] = "teaching",
    authority: Authority = None,
    title: Title = "",
    note_id: NoteId = None,
    namespace: Annotated[str, namespace_option(help="The namespace of the note.")] = "default",
    store: Store = DEFAULT_STORE,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Add a note to a namespace; its queries find it as they find documents."""
    if kind not in {"teaching", "directive"}:
        msg = f"--kind must be teaching or directive, not {kind!r}: for corrections use correct"
        raise InvalidInputError(msg)
    fields = _note_fields(related, title, note_id, authority)
    with CrabPath.open(store, **opening, create=False) as memory:
        note = memory.teach(
            text, kind=cast("Any", kind), query=query, namespace=namespace, **fields
        )
    return _show_note(note)


def run_correct(  # noqa: PLR0913, PLR0917  each is an option of the command
    text: Annotated[str, typer.Argument(help="What is right.")],
    more: Annotated[str | None, typer.Argument(hidden=True, metavar="--turn TURN")] = None,
    turn: Annotated[str | None, typer.Option(help="Turn id, or run id, that was wrong.")] = None,
    wrong: Annotated[
        list[str] | None,
        typer.Option(
            help="A document that is wrong; none: what --turn found and TEXT contradicts."
        ),
    ] = None,
    query: Annotated[str | None, typer.Option(help="A question that it answers.")] = None,
    related: Related = None,
    authority: Authority = None,
    title: Title = "",
    note_id: NoteId = None,
    namespace: Annotated[
        str | None, namespace_option(help="The namespace of the note; none: that of the turn.")
    ] = None,
    store: Store = DEFAULT_STORE,
    **opening: Unpack[OpenFlags],
) -> Output:
    """Add a note with the right answer, and rank the wrong documents lower."""
    if more is not None:
        msg = "give the text alone, and the turn with --turn: crabpath correct TEXT --turn TURN"
        raise InvalidInputError(msg)
    fields = _note_fields(related, title, note_id, authority)
    with CrabPath.open(store, **opening, create=False) as memory:
        note = memory.correct(
            text, turn_id=turn, wrong=wrong or None, query=query, namespace=namespace, **fields
        )
    return _show_note(note)


def _note_fields(
    related: list[str] | None, title: str, note_id: str | None, authority: str | None
) -> dict[str, Any]:
    fields: dict[str, Any] = {"related": related or (), "title": title, "id": note_id}
    return fields if authority is None else {**fields, "authority": authority}


def _show_note(note: str) -> Output:
    return Output({"id": note}, [f"Kept as {escape(note)}"])


def run_undo(
    feedback_id: Annotated[
        str | None,
        typer.Argument(help="Id of feedback or a note; or as --turn.", metavar="FEEDBACK_OR_TURN"),
    ] = None,
    *,
    turn: Annotated[
        str | None, typer.Option(help="Instead: turn or run id; all that was said about it.")
    ] = None,
    user: Annotated[str | None, typer.Option(help="Instead: all feedback of this user.")] = None,
    source: Annotated[
        str | None, typer.Option(help="Instead, or with --user: human, self, harvested, teacher.")
    ] = None,
    token: Annotated[
        str | None, typer.Option(help="Instead: id of a token; its notes, too. Or with them.")
    ] = None,
    namespace: Within = None,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Undo all that was learned from feedback, a note or a turn, or from a user or token."""
    is_of_giver = any(given is not None for given in (user, source, token))
    if (feedback_id is not None) + (turn is not None) + is_of_giver != 1:
        msg = "give a feedback id, --turn, or --user, --source and --token: one of the three"
        raise InvalidInputError(msg)
    if is_of_giver:
        return _undo_all(user, source, token, namespace, store)
    with existing_store(store) as opened:
        if feedback_id is not None and opened.turns.find(feedback_id) is not None:
            feedback_id, turn = None, feedback_id
        receipt = StandaloneLearner(opened).recorder.history.undo(feedback_id, turn, namespace)
    return _show_receipt(receipt, None if receipt.status == "undone" else "Not undone")


def _undo_all(
    user: str | None, source: str | None, token: str | None, namespace: str | None, store: str
) -> Output:
    with existing_store(store) as opened:
        history = StandaloneLearner(opened).recorder.history
        receipts = history.undo_all(user, source, token, namespace)
    reasons = [
        f"[red]Not undone:[/red] {escape(f'{receipt.feedback_id}: {receipt.note}')}"
        for receipt in receipts
        if receipt.status != "undone"
    ]
    text = f"{len(receipts) - len(reasons)} undone"
    data = [receipt._asdict() for receipt in receipts]
    return Output(data, [text], errors=reasons, code=2 if reasons else 0)


def run_learn(
    worker: Annotated[
        bool, typer.Option("--worker", help="Go on with new feedback, until SIGTERM or Ctrl-C.")
    ] = False,
    poll: Annotated[float, typer.Option(help="Seconds between checks of a worker.")] = 1.0,
    from_langsmith: Annotated[
        str | None,
        typer.Option(metavar="PROJECT", help="Pull the feedback of a LangSmith project first."),
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only feedback given in LangSmith since this ISO 8601 time.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option(help="A key of LangSmith feedback that counts.")
    ] = None,
    namespace: Annotated[
        str | None, namespace_option(help="Only turns of this namespace learn from LangSmith.")
    ] = None,
    store: Store = DEFAULT_STORE,
) -> Output:
    """Learn from the feedback that waits, while another process serves the memory."""
    if not 0 < poll <= _LONGEST_POLL:
        msg = f"--poll must be above 0 and at most {_LONGEST_POLL} seconds, not {poll:g}"
        raise InvalidInputError(msg)
    if from_langsmith is None and (since or key or namespace):
        msg = "--since, --key and --namespace are about LangSmith: give --from-langsmith PROJECT"
        raise InvalidInputError(msg)
    langsmith = None
    with existing_store(store) as opened, catch_signals() as ended:
        outside = StandaloneLearner(opened, make_lesson_hook)
        if from_langsmith is not None:
            langsmith = _pull_langsmith(
                outside, from_langsmith, parse_time("--since", since), key, namespace
            )
        if worker:
            errors.print(f"Learning for {escape(opened.name)}; Ctrl-C ends it", style="dim")
            tally = outside.serve(poll, ended.is_set)
        else:
            tally = outside.recorder.learn_waiting(ended.is_set)
        waiting = opened.learned.count_feedback()["waiting"]
    data: dict[str, Any] = {**tally._asdict(), "waiting": waiting}
    text = [f"{tally.applied} applied, {tally.refused} refused, {waiting} waiting"]
    if langsmith is not None:
        data["langsmith"] = langsmith
        text.insert(0, f"LangSmith: {list_counts(langsmith)}")
    failed = f"[red]Error:[/red] {tally.failed} could not be learned from; they wait"
    return Output(data, text, errors=[failed] if tally.failed else (), code=int(tally.failed > 0))


def _pull_langsmith(
    outside: StandaloneLearner,
    project: str,
    since: datetime | None,
    keys: list[str] | None,
    namespace: str | None,
) -> dict[str, int]:
    """Record the feedback of a LangSmith project by the learner ``outside``; return counts."""
    langsmith = load_part("crabpath_retrievers.parts.langsmith.pull")
    policy = OutcomePolicy(feedback_keys=tuple(keys)) if keys else OutcomePolicy()
    options = {"since": since, "policy": policy, "namespace": namespace}
    pulled = langsmith.pull(langsmith.make_client(), outside, project, **options)
    counts: dict[str, int] = pulled._asdict()
    return counts
