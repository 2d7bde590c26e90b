"""Translation of rows between node keys, in a store, and node ids, in the archive of a namespace.

Pure functions. Key 0, which means STOP, all regions or unknown, is None in an archive.

Rename the namespace and the ids in rows of an imported namespace. Pure functions.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from pydantic_core import to_json

from crabpath_retrievers.core.changes.archive import Block, IdRenames, Row

NODE_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "contents": ("node",),
    "notes": ("node",),
    "overlay": ("source", "target"),
    "weight_changes": ("source", "target"),
    "pair_counts": ("source", "target"),
    "usage": ("node",),
    "transitions": ("region", "next"),
}
"""Columns that refer to nodes, by table."""

LOCAL_COLUMNS = frozenset({"namespace", "owner", "indexed", "sequence", "key"})
"""Columns that are left out of an archive because they depend on the store."""

# Lists in the record of ``feedback_effects``: positions of node keys in their items.
_NODES_IN_EFFECTS = {"usage": (0,), "pair_counts": (0, 1), "transitions": (1, 4)}
_NEXT_POSITION, _NEXT_REGION = 4, ("transitions", "next")  # the region that a transition led to
_NOTE_EPISODE_PREFIX = (
    "note-"  # prefix of the ids of episodes of notes; key or id of the note follows
)


class _UnknownNodeError(LookupError):
    """The node does not exist on the other side."""


class NodeNames(NamedTuple):
    """Names of nodes on the other side of a translation.

    Attributes:
        names: Id by key, or key by id, of the nodes that exist there.
        nothing, nothing_there: What stands for no node on this side, and there.
        read: Type of the names on this side.
    """

    names: Mapping[Any, Any]
    nothing: Any
    nothing_there: Any
    read: type

    @classmethod
    def for_export(cls, ids: Mapping[int, str]) -> "NodeNames":
        """For rows to export: ids by key."""
        return cls(ids, 0, None, int)

    @classmethod
    def for_import(cls, keys: Mapping[str, int]) -> "NodeNames":
        """For rows to import: keys by id."""
        return cls(keys, None, 0, str)

    def of(self, node: Any) -> Any:
        """Name of a node there; raises if it does not exist."""
        if node == self.nothing:
            return self.nothing_there
        if node not in self.names:
            raise _UnknownNodeError
        return self.names[node]

    def if_known(self, node: Any) -> Any:
        """Name of a node there, or what stands for no node."""
        return self.names.get(node, self.nothing_there)


def find_nodes_in(block: Block, read: type) -> set[Any]:
    """All nodes that rows refer to.

    Args:
        block: Rows of one table.
        read: ``int`` for rows with keys, ``str`` for rows with ids.
    """
    table, rows = block
    found = {row[column] for column in NODE_COLUMNS.get(table, ()) for row in rows}
    if table == "feedback_effects":
        for row in rows:
            found |= _find_nodes_in_effects(json.loads(row["record"]), read)
    if table == "episodes":
        found |= {read(note) for row in rows if (note := _get_note_of_episode(row["id"]))}
    return found - {0, None}


def find_required_nodes(table: str, row: Row) -> set[str]:
    """Ids of the nodes that must exist for a row of an archive to be imported."""
    columns = (column for column in NODE_COLUMNS.get(table, ()) if (table, column) != _NEXT_REGION)
    return {row[column] for column in columns} - {None}


def translate_rows(block: Block, naming: NodeNames) -> list[dict[str, Any]]:
    """Translate the nodes of rows.

    Rows that refer to a node that does not exist there are left out; effects of feedback lose it.
    """
    table, rows = block
    found = []
    for row in rows:
        try:
            found.append(_translate_row(table, row, naming))
        except _UnknownNodeError:
            continue
    return found


def _translate_row(table: str, row: Row, naming: NodeNames) -> dict[str, Any]:
    new = {column: value for column, value in row.items() if column not in LOCAL_COLUMNS}
    for column in NODE_COLUMNS.get(table, ()):
        # The region that a transition led to is optional.
        is_next = (table, column) == _NEXT_REGION
        new[column] = naming.if_known(row[column]) if is_next else naming.of(row[column])
    if table == "feedback_effects":
        new["record"] = to_json(_translate_effects(json.loads(row["record"]), naming)).decode()
    if table == "episodes":
        new["id"] = _translate_episode_id(row["id"], naming)
    return new


def _find_nodes_in_effects(record: Mapping[str, Any], read: type) -> set[Any]:
    found = {
        item[place]
        for name, places in _NODES_IN_EFFECTS.items()
        for item in record[name]
        for place in places
    }
    return found | {
        read(note) for episode in record["episodes"] if (note := _get_note_of_episode(episode[0]))
    }


def _translate_effects(record: Mapping[str, Any], naming: NodeNames) -> dict[str, Any]:
    new = dict(record)
    for name, places in _NODES_IN_EFFECTS.items():
        items = (list(item) for item in record[name])
        new[name] = [item for item in items if _translate_item(item, places, naming)]
    episodes = []
    for name, *rest in record["episodes"]:
        try:
            episodes.append([_translate_episode_id(name, naming), *rest])
        except _UnknownNodeError:
            continue
    return {**new, "episodes": episodes}


def _translate_item(item: list[Any], places: tuple[int, ...], naming: NodeNames) -> bool:
    """Translate the nodes of an item in place; returns whether all of them exist there."""
    try:
        for place in places:
            item[place] = (naming.if_known if place == _NEXT_POSITION else naming.of)(item[place])
    except _UnknownNodeError:
        return False
    return True


def _get_note_of_episode(episode: str) -> str:
    """Key or id of the note that an episode belongs to; empty for other episodes."""
    if not episode.startswith(_NOTE_EPISODE_PREFIX):
        return ""
    return episode.removeprefix(_NOTE_EPISODE_PREFIX).rpartition("-")[0]


def _translate_episode_id(episode: str, naming: NodeNames) -> str:
    if not (note := _get_note_of_episode(episode)):
        return episode
    return f"{_NOTE_EPISODE_PREFIX}{naming.of(naming.read(note))}-{episode.rpartition('-')[2]}"


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
