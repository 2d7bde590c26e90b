"""Writer of imports, and of requests to fill the vector index.

Ids in an archive that already exist in other namespaces of this store.

Translation of rows between node keys, in a store, and node ids, in the archive of a namespace.

Pure functions. Key 0, which means STOP, all regions or unknown, is None in an archive.

Rename the namespace and the ids in rows of an imported namespace. Pure functions.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import singledispatchmethod
from typing import Any, NamedTuple

import sqlalchemy as sa
from pydantic_core import to_json

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import archive as a
from crabpath_retrievers.core.changes.archive import Block, IdRenames, Row
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import SOURCE_OWNERS, replace_node_ids
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.read.whole_store import list_tables
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.nodes import get_indexed_tokens

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
        nothing, nothing_there: The value for no node on this side, and there.
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
        """Name of a node there, or the value for no node."""
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


INDEX = "index"
"""Staging operation of published nodes that the vector index does not hold yet."""

_AT_ONCE = 500  # texts that are tokenised at once


class ArchiveWriter:
    """Applies the changes of ``changes.archive`` on one open transaction."""

    def __init__(
        self, connection: sa.Connection, fulltext: FullText, then: Callable[[c.Change], None]
    ) -> None:
        """Write on ``connection``; ``then`` applies the changes that follow from one."""
        self._connection, self._fulltext, self._then = connection, fulltext, then

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Apply one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: a.FillStore) -> None:
        self._require_empty()
        known = list_tables()
        for name, rows in change.blocks:
            if name == "meta":
                self._then(c.PutMeta(tuple((row["name"], row["value"]) for row in rows)))
            else:
                self._connection.execute(
                    known[name].insert(), [_complete_row(name, r) for r in rows]
                )
        for name, last in change.last.items():
            self._set_last_key(known[name], last)
        self._index_texts()
        self._then(a.QueueReindex())
        self._then(c.PutMeta((("origin", change.origin),)))
        self._write_journal("import", None, {"origin": change.origin})

    def _require_empty(self) -> None:
        for table in (s.nodes, s.namespaces, s.feedback, s.staging):
            if self._connection.scalar(sa.select(sa.exists(sa.select(table)))):
                msg = "this store holds a memory already: choose an empty place for another one"
                raise InvalidInputError(msg)

    def _set_last_key(self, table: sa.Table, last: int) -> None:
        """Continue the sequence of a table, so that keys of deleted rows are not reused either."""
        if last == 0:
            return
        if self._connection.dialect.name == "postgresql":
            column = table.autoincrement_column
            assert column is not None  # noqa: S101  only tables with generated keys have a last key
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            self._connection.execute(sa.select(sa.func.setval(sequence, last)))
        elif table.dialect_options["sqlite"]["autoincrement"]:
            values = {"name": table.name, "last": last}
            text = "DELETE FROM sqlite_sequence WHERE name = :name"
            self._connection.execute(sa.text(text), {"name": table.name})
            text = "INSERT INTO sqlite_sequence(name, seq) VALUES (:name, :last)"
            self._connection.execute(sa.text(text), values)

    def _index_texts(self) -> None:
        """Fill the full-text index with all visible documents; notes are not in it."""
        query = (
            sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
            .join(s.contents, s.contents.c.node == s.nodes.c.key)
            .where(s.nodes.c.owner == 0)
            .order_by(s.nodes.c.key)
            .limit(_AT_ONCE)
        )
        last = 0
        while rows := self._connection.execute(query.where(s.nodes.c.key > last)).all():
            texts = [(row.key, get_indexed_tokens(row.title, row.content)) for row in rows]
            self._fulltext.add(self._connection, texts)
            last = rows[-1].key

    @apply.register
    def _(self, change: a.QueueReindex) -> None:
        waiting = sa.select(s.nodes.c.id, sa.literal(INDEX)).where(
            s.nodes.c.owner == 0, s.nodes.c.id.not_in(sa.select(s.staging.c.id))
        )
        some = [None] if change.ids is None else split_batches(change.ids)
        for part in some:
            chosen = waiting if part is None else waiting.where(s.nodes.c.id.in_(part))
            self._connection.execute(s.staging.insert().from_select(["id", "operation"], chosen))
        for table in (s.episodes, s.notes):
            self._connection.execute(table.update().values(indexed=0))

    @apply.register
    def _(self, change: a.MarkNodesIndexed) -> None:
        for part in split_batches(change.ids):
            own = s.staging.c.id.in_(part)
            again = s.staging.update().where(own, s.staging.c.operation == "return")
            self._connection.execute(s.staging.delete().where(own, s.staging.c.operation == INDEX))
            self._connection.execute(again.values(operation="link"))

    @apply.register
    def _(self, change: a.FillNamespace) -> None:
        blocks, to = iter(change.blocks), change.renames
        table, own = next(blocks, ("", []))
        if table != "namespaces" or len(own) != 1:
            msg = f"the archive lacks the row of namespace {to.former!r}: export again"
            raise InvalidInputError(msg)
        (first,) = own
        key = self._create_namespace(first, to)
        for name, rows in blocks:
            self._insert_rows(name, self._translate_rows(name, rows, key, to), to.namespace)
        if first["note_count"]:
            self._then(c.PutMeta((("notes", "1"),)))
        self._write_journal("import_namespace", to.namespace, {"former": to.former})

    def _insert_rows(self, table: str, rows: list[dict[str, Any]], namespace: str) -> None:
        if table == "transitions":  # keys may coincide where regions are missing here
            steps = (
                TransitionCount(*(row[field] for field in TransitionCount._fields)) for row in rows
            )
            self._then(AddTransitions(namespace, tuple(steps)))
        elif rows:
            self._connection.execute(list_tables()[table].insert(), rows)

    def _create_namespace(self, row: a.Row, to: a.IdRenames) -> int:
        """Create the namespace; returns its key."""
        name = s.namespaces.c.name == to.namespace
        if self._connection.scalar(sa.select(sa.exists(sa.select(s.namespaces).where(name)))):
            msg = (
                f"namespace {to.namespace!r} has asked, learned or been taught here already: "
                "replace it, or import it under another name"
            )
            raise InvalidInputError(msg)
        values = rename_ids("namespaces", {k: v for k, v in row.items() if k != "key"}, to)
        made = s.namespaces.insert().values(values).returning(s.namespaces.c.key)
        return int(self._connection.execute(made).scalar_one())

    def _translate_rows(
        self, table: str, rows: Iterable[a.Row], namespace: int, to: a.IdRenames
    ) -> list[dict[str, Any]]:
        """Translate rows to this store; rows of nodes that do not exist here are left out."""
        block = (table, list(rows))
        naming = NodeNames.for_import(
            self._find_keys(find_nodes_in(block, str), namespace, to.notes)
        )
        local = _get_local_columns(table, namespace, to.namespace)
        rows_here = translate_rows(block, naming)
        return [{**_complete_row(table, rename_ids(table, row, to)), **local} for row in rows_here]

    def _find_keys(
        self, ids: Iterable[str], namespace: int, notes: Mapping[str, str]
    ) -> dict[str, int]:
        """Keys, by id in the archive, of the existing nodes that the namespace can see."""
        former = {notes.get(node, node): node for node in ids}
        # Rows of replaced nodes are moved to their targets afterwards.
        seen = s.nodes.c.owner.in_((*SOURCE_OWNERS, namespace))
        found: dict[str, int] = {}
        for part in split_batches(former):
            query = sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.id.in_(part), seen)
            found |= {former[node]: key for node, key in self._connection.execute(query)}
        return found

    def _write_journal(
        self, change: str, namespace: str | None, payload: Mapping[str, Any]
    ) -> None:
        write_journal(self._connection, change, payload, namespace)


def _complete_row(table: str, row: a.Row) -> dict[str, Any]:
    """A row to insert; user and source of feedback are taken from its payload."""
    if table != "feedback":
        return dict(row)
    said = json.loads(row["payload"])
    return {**row, "user": said.get("user"), "source": said.get("source")}


def _get_local_columns(table: str, key: int, name: str) -> dict[str, Any]:
    """Values of the columns that are not in an archive: namespace, owner, indexed."""
    if table == "feedback":
        return {"namespace": name}
    columns = list_tables()[table].c
    given = {"namespace": key, "owner": key, "indexed": 0}
    return {column: value for column, value in given.items() if column in columns}


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
        if table not in self._others:
            return set()
        column, others = self._others[table]
        return self._find_ids(ids, lambda part: sa.select(column).where(column.in_(part), others))

    def documents(self, ids: Iterable[str]) -> set[str]:
        """Those of the ids that belong to documents."""
        nodes, shared = s.nodes.c.id, s.nodes.c.owner == 0
        return self._find_ids(ids, lambda part: sa.select(nodes).where(nodes.in_(part), shared))

    def _find_ids(
        self, ids: Iterable[str], query: Callable[[list[str]], sa.Select[tuple[str]]]
    ) -> set[str]:
        found: set[str] = set()
        for part in split_batches(ids):
            found |= set(self._connection.scalars(query(part)))
        return found
