"""Writer of imports, and of requests to fill the vector index.

Ids in an archive that already exist in other namespaces of this store.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import singledispatchmethod
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.core import changes as c
from crabpath_retrievers.core.changes import archive as a
from crabpath_retrievers.core.changes.history import AddTransitions, TransitionCount
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.aliases import SOURCE_OWNERS
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.portable import (
    NodeNames,
    find_nodes_in,
    rename_ids,
    translate_rows,
)
from crabpath_retrievers.storage.read.whole_store import list_tables
from crabpath_retrievers.storage.sql_tools import split_batches
from crabpath_retrievers.storage.write.journal import write_journal
from crabpath_retrievers.storage.write.nodes import get_indexed_tokens

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
