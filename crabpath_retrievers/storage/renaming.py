"""Rename the namespace and the ids in rows of an imported namespace. Pure functions."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from pydantic_core import to_json

from crabpath_retrievers.changes.archive import IdRenames

Row = dict[str, Any]
_NODE_FIELDS = frozenset(
    {"node", "source", "target"}
)  # fields of a turn record with the id of a node
_NODE_LIST_FIELDS = frozenset({"chosen", "reflexes", "visited"})


def rename_ids(table: str, row: Row, to: IdRenames) -> Row:
    """A row with the new names.

    Args:
        table: Short name of its table.
        row: The row of the archive; it may be modified.
        to: New names.
    """
    return _RENAMERS[table](row, to) if to.any and table in _RENAMERS else row


def _node(row: Row, to: IdRenames) -> Row:
    return {**row, "id": to.notes.get(row["id"], row["id"])}


def _note(row: Row, to: IdRenames) -> Row:
    turn, feedback = (row[column] for column in ("turn", "feedback"))
    return {
        **row,
        "turn": to.turns.get(turn, turn),
        "feedback": to.feedback.get(feedback, feedback),
    }


def _weight_change(row: Row, to: IdRenames) -> Row:
    cause = row["cause"]  # id of feedback or of a note
    return {**row, "cause": to.feedback.get(cause, to.notes.get(cause, cause))}


def _episode(row: Row, to: IdRenames) -> Row:
    new = {**row, "id": _episode_id(row["id"], to)}
    new["documents"] = json.dumps(_credit(json.loads(row["documents"]), to))
    if row["credit_by_user"]:
        users = json.loads(row["credit_by_user"]).items()
        new["credit_by_user"] = json.dumps({user: _credit(credit, to) for user, credit in users})
    return new


def _credit(documents: Mapping[str, float], to: IdRenames) -> Row:
    return {to.notes.get(node, node): credit for node, credit in documents.items()}


def _episode_id(episode: str, to: IdRenames) -> str:
    return to.episodes.get(episode, episode)


def _turn(row: Row, to: IdRenames) -> Row:
    record = (
        replace_node_ids(json.loads(row["record"]), to.notes)
        if to.notes
        else json.loads(row["record"])
    )
    identity = to.turns.get(row["id"], row["id"])
    # Only a turn that keeps its id keeps the run id of its host.
    run = row["run_id"] if identity == row["id"] else None
    record |= {"id": identity, "namespace": to.namespace, "run_id": run}
    return {**row, "id": identity, "run_id": run, "record": to_json(record).decode()}


def replace_node_ids(value: Any, notes: Mapping[str, str]) -> Any:
    """A turn record, or a part of it, with other ids of nodes."""
    if isinstance(value, list):
        return [replace_node_ids(item, notes) for item in value]
    if not isinstance(value, dict):
        return value
    new: dict[str, Any] = {}
    for name, item in value.items():
        if name in _NODE_FIELDS and isinstance(item, str):
            new[name] = notes.get(item, item)
        elif name in _NODE_LIST_FIELDS:
            new[name] = [notes.get(node, node) for node in item]
        else:
            new[name] = replace_node_ids(item, notes)
    return new


def _feedback(row: Row, to: IdRenames) -> Row:
    payload = json.loads(row["payload"])
    identity = to.feedback.get(row["id"], row["id"])
    for name in ("used", "unused"):
        if payload[name] is not None:
            payload[name] = [to.notes.get(node, node) for node in payload[name]]
    turn = to.turns.get(payload["turn_id"], payload["turn_id"])
    payload |= {"feedback_id": identity, "turn_id": turn, "namespace": to.namespace}
    text = json.dumps(payload, ensure_ascii=False)
    return {**row, "id": identity, "namespace": to.namespace, "payload": text}


def _consumed_turn(row: Row, to: IdRenames) -> Row:
    turn, feedback = row["turn"], row["feedback"]
    return {"turn": to.turns.get(turn, turn), "feedback": to.feedback.get(feedback, feedback)}


def _feedback_effects(row: Row, to: IdRenames) -> Row:
    record = json.loads(row["record"])
    for note in record["notes"]:
        note["note"] = to.notes.get(note["note"], note["note"])
    for episode in record["episodes"]:
        episode[0] = _episode_id(episode[0], to)
    record["used"] = [to.notes.get(node, node) for node in record["used"]]
    feedback = to.feedback.get(row["feedback"], row["feedback"])
    return {**row, "feedback": feedback, "record": to_json(record).decode()}


def _namespace(row: Row, to: IdRenames) -> Row:
    return {**row, "name": to.namespace}


_RENAMERS: Mapping[str, Callable[[Row, IdRenames], Row]] = {
    "namespaces": _namespace,
    "nodes": _node,
    "notes": _note,
    "weight_changes": _weight_change,
    "episodes": _episode,
    "turns": _turn,
    "feedback": _feedback,
    "consumed_turns": _consumed_turn,
    "feedback_effects": _feedback_effects,
}
