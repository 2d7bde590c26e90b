"""Bounds of what a token may say without the right ``teach``.

It judges what a question returned. A token that labels any document for any question, or writes a
note for any question, decides alone what all others of its namespace get.
"""

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Any

from crabpath_retrievers.core.query import parse_session
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.memory.notes import find_turn
from crabpath_retrievers.retrieval.pipeline import find_named_chunks
from crabpath_server.endpoints import Call
from crabpath_server.queries import ServerQueries

_TEACH = "teach"
_OWN_QUESTION = ("query", "id")  # of a correction: a note wherever its sender wants one


async def bound_feedback(call: Call, turn_id: str | None, fields: dict[str, Any]) -> str | None:
    """Refuse feedback that needs the right ``teach``, where its token does not grant it.

    Args:
        call: The request.
        turn_id: The turn, as given; None for the last one.
        fields: The other fields, with documents as they are stored.

    Returns:
        The turn that it is about, once its labels were compared with what that returned.
    """
    if _TEACH in call.grant.rights:
        return turn_id
    if fields.get("source") == "teacher":
        call.grant.require(_TEACH, "source 'teacher'")
    if await _find_others(call, fields.get("feedback_id")):
        call.grant.require(_TEACH, "the feedback_id of another token")
    return await _bound_labels(call, turn_id, fields, ("relevant", "irrelevant"))


async def bound_correction(call: Call, turn_id: str | None, fields: dict[str, Any]) -> str | None:
    """Refuse a correction that needs the right ``teach``; as :func:`bound_feedback`."""
    if _TEACH in call.grant.rights:
        return turn_id
    bound_authority(call, fields.get("authority"))
    for name in _OWN_QUESTION:
        if fields.get(name) is not None:
            call.grant.require(_TEACH, f"{name} of a correction")
    return await _bound_labels(call, turn_id, fields, ("wrong", "related"))


async def bound_undo(call: Call, feedback_id: str | None, turn_id: str | None) -> None:
    """Refuse to undo what the token did not say itself; the right ``admin`` undoes all."""
    if "admin" in call.grant.rights or call.grant.token is None:
        return
    store, space = call.memory.store, call.namespace

    def find_givers() -> set[str | None]:
        """Find the tokens of all that would be undone; None for what was said without one."""
        names = [] if feedback_id is None else [feedback_id]
        notes = [one for name in names for one in store.notes.find_said(space, name=name)]
        if turn_id is not None:
            turn = store.turns.get(turn_id, namespace=space).id
            names += [said.feedback_id for _, said in store.turns.get_verdicts([turn])]
            notes += store.notes.find_said(space, turn=turn)
        own = {note.token for note in notes if note.is_direct}
        return own | ServerQueries(store).find_tokens(space, names)

    if await asyncio.to_thread(find_givers) - {call.grant.token}:
        call.grant.require("admin", "undo of what others said")


def bound_authority(call: Call, authority: str | None) -> None:
    """Refuse an authority above ``overlay`` without the right ``teach``."""
    if authority not in {None, "overlay"}:
        call.grant.require(_TEACH, f"authority {authority!r}")


def find_last_turn(call: Call, session: str | None) -> str:
    """Find the id of the turn that feedback without a turn would be about."""
    seconds = call.memory.settings.learning.window_seconds
    name = None if session is None else parse_session(session)
    find = call.memory.store.turns.window
    if found := find(call.namespace, until=time.time(), turns=1, seconds=seconds, session=name):
        return found[0].turn.id
    where = "" if name is None else f" in conversation {name!r}"
    msg = (
        f"namespace {call.namespace!r} has no turn{where} within the last {seconds:g} seconds "
        "(the setting learning.window_seconds): give the turn_id of the answer that was wrong"
    )
    raise InvalidInputError(msg)


async def _find_others(call: Call, feedback_id: str | None) -> set[str | None]:
    """Find the other tokens by which a feedback was given."""
    if feedback_id is None:
        return set()
    find = ServerQueries(call.memory.store).find_tokens
    found = await asyncio.to_thread(find, call.namespace, [feedback_id])
    return {name for name in found if name not in {None, call.grant.token}}


async def _bound_labels(
    call: Call, turn_id: str | None, fields: Mapping[str, Any], names: Sequence[str]
) -> str | None:
    labels = {label: name for name in names for label in fields.get(name) or ()}
    if not labels:
        return turn_id

    def find_strange() -> tuple[str, str | None]:
        """Find the turn, and a label that it did not return."""
        asked = turn_id or find_last_turn(call, fields.get("session") or None)
        turn = find_turn(call.memory.store, asked, call.namespace).turn
        returned = {item.node for item in turn.returned}
        shown = {label: turn.shown.get(label, label) for label in labels}
        chunks = find_named_chunks(call.memory.store, {*shown.values()})
        strange = (x for x, node in shown.items() if returned.isdisjoint(chunks[node]))
        return turn.id, next(strange, None)

    turn, label = await asyncio.to_thread(find_strange)
    if label is not None:
        what = f"{labels[label]} with {call.names.show(label)!r}, which the turn did not return,"
        call.grant.require(_TEACH, what)
    return turn
