"""Writers of imports; rows between node keys, in a store, and node ids, in a namespace's archive.

Key 0, which means STOP, all regions or unknown, is None in an archive.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.core.changes import archive as a
from crabpath_retrievers.core.changes.archive import Block, IdRenames, Row
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.registry import (
    EXPORTED,
    LOCAL_COLUMNS,
    OPTIONAL_NODE,
    REFERENCES,
)
from crabpath_retrievers.storage.retired import replace_node_ids
from crabpath_retrievers.storage.sql_tools import select_in
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.learned import add_transitions
from crabpath_retrievers.storage.write.nodes import get_indexed_tokens, put_meta, queue_reindex
from crabpath_retrievers.storage.write.transaction import Transaction

# Lists in the record of ``feedback_effects``: positions of node keys in their items.
_NODES_IN_EFFECTS = {"usage": (0,), "pair_counts": (0, 1), "transitions": (1, 4)}
_NEXT_POSITION = 4  # of the region that a transition led to
# Prefix of the ids of episodes of notes; the key or id of the note follows.
_NOTE_EPISODE_PREFIX = "note-"
_AT_ONCE = 500  # texts that are tokenised at once


class _UnknownNodeError(LookupError):
    """The node does not exist on the other side."""


class NodeNames:
    """Names of nodes on the other side of a translation."""

    def __init__(self, names: Mapping[Any, Any], read: type) -> None:
        """Translate between keys and ids.

        Args:
            names: Id by key, or key by id, of the nodes that exist there.
            read: ``int`` for rows with keys, ``str`` for rows with ids.
        """
        self._names, self.read = names, read
        self._nothing: Any = 0 if read is int else None
        self._nothing_there: Any = None if read is int else 0

    def of(self, node: Any, *, optional: bool = False) -> Any:
        """Name of a node there; raises if it does not exist and is not optional."""
        if node == self._nothing or (optional and node not in self._names):
            return self._nothing_there
        if node not in self._names:
            raise _UnknownNodeError
        return self._names[node]


class _NodeRecorder(NodeNames):
    """Collects the nodes that are asked for."""

    def __init__(self, read: type) -> None:
        super().__init__({}, read)
        self.nodes: set[Any] = set()

    def of(self, node: Any, *, optional: bool = False) -> Any:  # noqa: ARG002  as the base does
        self.nodes.add(node)
        return node


def find_nodes_in(block: Block, read: type) -> set[Any]:
    """All nodes that rows refer to.

    Args:
        block: Rows of one table.
        read: ``int`` for rows with keys, ``str`` for rows with ids.
    """
    recorder = _NodeRecorder(read)
    translate_rows(block, recorder)
    return recorder.nodes - {0, None}


def find_required_nodes(table: str, row: Row) -> set[str]:
    """Ids of the nodes that must exist for a row of an archive to be imported."""
    columns = (c for c in REFERENCES.get(table, ()) if (table, c) != OPTIONAL_NODE)
    return {row[column] for column in columns} - {None}


def translate_rows(block: Block, naming: NodeNames) -> list[dict[str, Any]]:
    """Translate the nodes of rows.

    Rows that refer to a node that does not exist there are left out; effects of feedback lose it.
    """
    table, rows = block
    return _translate_known(rows, lambda row: _translate_row(table, row, naming))


def _translate_known(items: Iterable[Any], translate: Callable[[Any], Any]) -> list[Any]:
    """The translations of those items whose nodes exist there."""
    found = []
    for item in items:
        try:
            found.append(translate(item))
        except _UnknownNodeError:
            continue
    return found


def _translate_row(table: str, row: Row, naming: NodeNames) -> dict[str, Any]:
    new = {column: value for column, value in row.items() if column not in LOCAL_COLUMNS}
    for column in REFERENCES.get(table, ()):
        new[column] = naming.of(row[column], optional=(table, column) == OPTIONAL_NODE)
    if table == "feedback_effects":
        new["record"] = to_json(_translate_effects(json.loads(row["record"]), naming)).decode()
    if table == "episodes":
        new["id"] = _translate_episode_id(row["id"], naming)
    return new


def _translate_effects(record: Mapping[str, Any], naming: NodeNames) -> dict[str, Any]:
    new = dict(record)

    def translate(item: Sequence[Any], places: tuple[int, ...]) -> list[Any]:
        return [
            naming.of(value, optional=place == _NEXT_POSITION) if place in places else value
            for place, value in enumerate(item)
        ]

    for name, places in _NODES_IN_EFFECTS.items():
        new[name] = _translate_known(record[name], partial(translate, places=places))
    new["episodes"] = _translate_known(
        record["episodes"], lambda item: [_translate_episode_id(item[0], naming), *item[1:]]
    )
    return new


def _translate_episode_id(episode: str, naming: NodeNames) -> str:
    """The id of an episode; that of a note's episode names the note."""
    note, _, digest = episode.removeprefix(_NOTE_EPISODE_PREFIX).rpartition("-")
    if not (note and episode.startswith(_NOTE_EPISODE_PREFIX)):
        return episode
    return f"{_NOTE_EPISODE_PREFIX}{naming.of(naming.read(note))}-{digest}"


# Columns with ids that an import may rename, by table, each with the kinds of ids it may hold.
_RENAMED: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "nodes": {"id": ("notes",)},
    "notes": {"turn": ("turns",), "feedback": ("feedback",)},
    "weight_changes": {"cause": ("feedback", "notes")},
    "episodes": {"id": ("episodes",)},
    "turns": {"id": ("turns",)},
    "feedback": {"id": ("feedback",)},
    "consumed_turns": {"turn": ("turns",), "feedback": ("feedback",)},
    "feedback_effects": {"feedback": ("feedback",)},
}


def rename_ids(table: str, row: Row, to: IdRenames) -> Row:
    """A row of the archive with the new names."""
    if not to.any:
        return row
    new = dict(row)
    for column, kinds in _RENAMED.get(table, {}).items():
        for kind in kinds:
            new[column] = getattr(to, kind).get(new[column], new[column])
    if table in _RECORD_RENAMERS:
        _RECORD_RENAMERS[table](new, to)
    return new


def _rename_in_namespace(row: dict[str, Any], to: IdRenames) -> None:
    row["name"] = to.namespace


def _rename_in_episode(row: dict[str, Any], to: IdRenames) -> None:
    row["documents"] = json.dumps(_rename_credit(json.loads(row["documents"]), to))
    if row["credit_by_user"]:
        users = json.loads(row["credit_by_user"]).items()
        renamed = {user: _rename_credit(credit, to) for user, credit in users}
        row["credit_by_user"] = json.dumps(renamed)


def _rename_credit(documents: Mapping[str, float], to: IdRenames) -> Row:
    return {to.notes.get(node, node): credit for node, credit in documents.items()}


def _rename_in_turn(row: dict[str, Any], to: IdRenames) -> None:
    record = json.loads(row["record"])
    # Only a turn that keeps its id keeps the run id of its host.
    row["run_id"] = row["run_id"] if row["id"] == record["id"] else None
    record = replace_node_ids(record, to.notes) if to.notes else record
    record |= {"id": row["id"], "namespace": to.namespace, "run_id": row["run_id"]}
    row["record"] = to_json(record).decode()


def _rename_in_feedback(row: dict[str, Any], to: IdRenames) -> None:
    payload = json.loads(row["payload"])
    for name in ("used", "unused"):
        if payload[name] is not None:
            payload[name] = [to.notes.get(node, node) for node in payload[name]]
    turn = to.turns.get(payload["turn_id"], payload["turn_id"])
    payload |= {"feedback_id": row["id"], "turn_id": turn, "namespace": to.namespace}
    row |= {"namespace": to.namespace, "payload": json.dumps(payload, ensure_ascii=False)}


def _rename_in_effects(row: dict[str, Any], to: IdRenames) -> None:
    record = json.loads(row["record"])
    for note in record["notes"]:
        note["note"] = to.notes.get(note["note"], note["note"])
    for episode in record["episodes"]:
        episode[0] = to.episodes.get(episode[0], episode[0])
    record["used"] = [to.notes.get(node, node) for node in record["used"]]
    row["record"] = to_json(record).decode()


_RECORD_RENAMERS: Mapping[str, Callable[[dict[str, Any], IdRenames], None]] = {
    "namespaces": _rename_in_namespace,
    "episodes": _rename_in_episode,
    "turns": _rename_in_turn,
    "feedback": _rename_in_feedback,
    "feedback_effects": _rename_in_effects,
}


def import_store(tx: Transaction, change: a.FillStore) -> None:
    """Write all rows of another store into this one, which must be empty."""
    for table in (s.nodes, s.namespaces, s.feedback, s.staging):
        if tx.scalar(sa.select(sa.exists(sa.select(table)))):
            msg = "this store holds a memory already: choose an empty place for another one"
            raise InvalidInputError(msg)
    for name, rows in change.blocks:
        if name == "meta":
            put_meta(tx, PutMeta(tuple((row["name"], row["value"]) for row in rows)))
        else:
            tx.add(EXPORTED[name], [_complete_row(name, row) for row in rows])
    for name, last in change.last.items():
        _set_last_key(tx, EXPORTED[name], last)
    _index_all_texts(tx)
    queue_reindex(tx, a.QueueReindex())
    put_meta(tx, PutMeta((("origin", change.origin),)))
    write_journal(tx, "import", {"origin": change.origin})


def _set_last_key(tx: Transaction, table: sa.Table, last: int) -> None:
    """Continue the sequence of a table, so that keys of deleted rows are not reused either."""
    if last == 0:
        return
    if tx.connection.dialect.name == "postgresql":
        column = table.autoincrement_column
        assert column is not None  # noqa: S101  only tables with generated keys have a last key
        sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
        tx.run(sa.select(sa.func.setval(sequence, last)))
    elif table.dialect_options["sqlite"]["autoincrement"]:
        values = {"name": table.name, "last": last}
        tx.run(sa.text("DELETE FROM sqlite_sequence WHERE name = :name"), {"name": table.name})
        tx.run(sa.text("INSERT INTO sqlite_sequence(name, seq) VALUES (:name, :last)"), values)


def _index_all_texts(tx: Transaction) -> None:
    """Fill the full-text index with all visible documents; notes are not in it."""
    query = (
        sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
        .join(s.contents, s.contents.c.node == s.nodes.c.key)
        .where(s.nodes.c.owner == 0)
        .order_by(s.nodes.c.key)
        .limit(_AT_ONCE)
    )
    last = 0
    while rows := tx.run(query.where(s.nodes.c.key > last)).all():
        texts = [(row.key, get_indexed_tokens(row.title, row.content)) for row in rows]
        tx.fulltext.add(tx.connection, texts)
        last = rows[-1].key


def import_rows(tx: Transaction, change: a.FillNamespace) -> None:
    """Write the learned state of one namespace of another store, which must be new here."""
    blocks, to = iter(change.blocks), change.renames
    table, own = next(blocks, ("", []))
    if table != "namespaces" or len(own) != 1:
        msg = f"the archive lacks the row of namespace {to.former!r}: export again"
        raise InvalidInputError(msg)
    (first,) = own
    key = _create_namespace(tx, first, to)
    for name, rows in blocks:
        here = _translate_to_store(tx, name, list(rows), key, to)
        if name == "transitions":  # keys may coincide where regions are missing here
            steps = (
                TransitionCount(*(r[field] for field in TransitionCount._fields)) for r in here
            )
            add_transitions(tx, AddTransitions(to.namespace, tuple(steps)))
        else:
            tx.add(EXPORTED[name], here)
    if first["note_count"]:
        put_meta(tx, PutMeta((("notes", "1"),)))
    write_journal(tx, "import_namespace", {"former": to.former}, to.namespace)


def _create_namespace(tx: Transaction, row: a.Row, to: a.IdRenames) -> int:
    """Create the namespace; returns its key."""
    if tx.find_key(to.namespace) is not None:
        msg = (
            f"namespace {to.namespace!r} has asked, learned or been taught here already: "
            "replace it, or import it under another name"
        )
        raise InvalidInputError(msg)
    values = rename_ids("namespaces", {k: v for k, v in row.items() if k != "key"}, to)
    return int(tx.scalar(s.namespaces.insert().values(values).returning(s.namespaces.c.key)))


def _translate_to_store(
    tx: Transaction, table: str, rows: list[a.Row], namespace: int, to: a.IdRenames
) -> list[dict[str, Any]]:
    """Translate rows to this store; rows of nodes that do not exist here are left out."""
    former = {to.notes.get(node, node): node for node in find_nodes_in((table, rows), str)}
    seen = s.nodes.c.owner.in_((0, namespace))
    query = sa.select(s.nodes.c.id, s.nodes.c.key).where(seen)
    keys = {former[node]: key for node, key in tx.select_in(query, s.nodes.c.id, former)}
    given: dict[str, Any] = {"namespace": namespace, "owner": namespace, "indexed": 0}
    given |= {"namespace": to.namespace} if table == "feedback" else {}
    local = {name: value for name, value in given.items() if name in EXPORTED[table].c}
    return [
        {**_complete_row(table, rename_ids(table, row, to)), **local}
        for row in translate_rows((table, rows), NodeNames(keys, str))
    ]


def _complete_row(table: str, row: a.Row) -> dict[str, Any]:
    """A row to insert; user and source of feedback are taken from its payload."""
    if table != "feedback":
        return dict(row)
    payload = json.loads(row["payload"])
    return {**row, "user": payload.get("user"), "source": payload.get("source")}


class IdConflicts:
    """Finds ids of other namespaces."""

    def __init__(self, connection: sa.Connection, namespace: str) -> None:
        """Read on ``connection``; ids of ``namespace`` itself do not conflict."""
        self._connection = connection
        key = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == namespace)
        own = connection.scalar(key) or 0
        self._others = {
            "turns": (s.turns.c.id, s.turns.c.namespace != own),
            "feedback": (
                s.feedback.c.id,
                sa.func.coalesce(s.feedback.c.namespace, "") != namespace,
            ),
            "nodes": (s.nodes.c.id, s.nodes.c.owner != own),
        }

    def find_conflicts(self, table: str, ids: Iterable[str]) -> set[str]:
        """Those of the ids that belong to turns, feedback or nodes of other namespaces."""
        column, others = self._others[table]
        return self._find(column, others, ids)

    def documents(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that belong to documents."""
        return self._find(s.nodes.c.id, s.nodes.c.owner == 0, ids)

    def _find(self, column: sa.Column[str], where: Any, ids: Iterable[str]) -> set[str]:
        query = sa.select(column).where(where)
        return {found for (found,) in select_in(self._connection, query, column, ids)}
