"""How rows that come from another store are written."""

import json
from collections.abc import Callable, Iterable, Mapping
from functools import singledispatchmethod
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers import changes as c
from crabpath_retrievers.changes import archive as a
from crabpath_retrievers.changes.regions import CountSteps, Step
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.dump import tables
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.journal import write_down
from crabpath_retrievers.storage.node_writer import indexed_tokens
from crabpath_retrievers.storage.portable import Naming, nodes_in, translated
from crabpath_retrievers.storage.renaming import renamed
from crabpath_retrievers.storage.replaced import WHOLES

INDEX = "index"
"""The staged operation of nodes that stand in the store, and not yet in the index."""

_AT_ONCE = 500  # texts that are cut into words at once


class ArchiveWriter:
    """Writes rows of archives on one open transaction."""

    def __init__(
        self, connection: sa.Connection, fulltext: FullText, then: Callable[[c.Change], None]
    ) -> None:
        """Write on ``connection``; ``then`` applies the changes that follow from one."""
        self._connection, self._fulltext, self._then = connection, fulltext, then

    @singledispatchmethod
    def apply(self, change: object) -> None:
        """Carry out one change."""
        msg = f"unknown change {type(change).__name__}"
        raise TypeError(msg)

    @apply.register
    def _(self, change: a.FillStore) -> None:
        self._require_empty()
        known = tables()
        for name, rows in change.blocks:
            if name == "meta":
                self._then(c.PutMeta(tuple((row["name"], row["value"]) for row in rows)))
            else:
                self._connection.execute(known[name].insert(), [_given(name, r) for r in rows])
        for name, last in change.last.items():
            self._go_on_after(known[name], last)
        self._index_texts()
        self._then(a.IndexAgain())
        self._then(c.PutMeta((("origin", change.origin),)))
        self._journal("import", None, {"origin": change.origin})

    def _require_empty(self) -> None:
        for table in (s.nodes, s.namespaces, s.feedback, s.staging):
            if self._connection.scalar(sa.select(sa.exists(sa.select(table)))):
                msg = "this store holds a memory already: choose an empty place for another one"
                raise InvalidInputError(msg)

    def _go_on_after(self, table: sa.Table, last: int) -> None:
        """Let no key be given a second time, also of rows that are gone."""
        if last == 0:
            return
        if self._connection.dialect.name == "postgresql":
            column = table.autoincrement_column
            assert column is not None  # noqa: S101  only such tables have a last key
            sequence = sa.func.pg_get_serial_sequence(table.name, column.name)
            self._connection.execute(sa.select(sa.func.setval(sequence, last)))
        elif table.dialect_options["sqlite"]["autoincrement"]:
            values = {"name": table.name, "last": last}
            text = "DELETE FROM sqlite_sequence WHERE name = :name"
            self._connection.execute(sa.text(text), {"name": table.name})
            text = "INSERT INTO sqlite_sequence(name, seq) VALUES (:name, :last)"
            self._connection.execute(sa.text(text), values)

    def _index_texts(self) -> None:
        """Full text of all documents; notes are found by similarity alone."""
        query = (
            sa.select(s.nodes.c.key, s.nodes.c.title, s.contents.c.content)
            .join(s.contents, s.contents.c.node == s.nodes.c.key)
            .where(s.nodes.c.owner == 0)
            .order_by(s.nodes.c.key)
            .limit(_AT_ONCE)
        )
        last = 0
        while rows := self._connection.execute(query.where(s.nodes.c.key > last)).all():
            texts = [(row.key, indexed_tokens(row.title, row.content)) for row in rows]
            self._fulltext.add(self._connection, texts)
            last = rows[-1].key

    @apply.register
    def _(self, change: a.IndexAgain) -> None:
        waiting = sa.select(s.nodes.c.id, sa.literal(INDEX)).where(
            s.nodes.c.owner == 0, s.nodes.c.id.not_in(sa.select(s.staging.c.id))
        )
        some = [None] if change.ids is None else parts(change.ids)
        for part in some:
            chosen = waiting if part is None else waiting.where(s.nodes.c.id.in_(part))
            self._connection.execute(s.staging.insert().from_select(["id", "operation"], chosen))
        for table in (s.episodes, s.notes):
            self._connection.execute(table.update().values(indexed=0))

    @apply.register
    def _(self, change: a.NodesIndexed) -> None:
        for part in parts(change.ids):
            own = s.staging.c.id.in_(part)
            again = s.staging.update().where(own, s.staging.c.operation == "return")
            self._connection.execute(s.staging.delete().where(own, s.staging.c.operation == INDEX))
            self._connection.execute(again.values(operation="link"))

    @apply.register
    def _(self, change: a.FillNamespace) -> None:
        blocks, to = iter(change.blocks), change.renames
        table, own = next(blocks, ("", []))
        if table != "namespaces" or len(own) != 1:
            msg = f"the archive does not say what namespace {to.former!r} is: export again"
            raise InvalidInputError(msg)
        (first,) = own
        key = self._begin(first, to)
        for name, rows in blocks:
            self._put(name, self._arrived(name, rows, key, to), to.namespace)
        if first["note_count"]:
            self._then(c.PutMeta((("notes", "1"),)))
        self._journal("import_namespace", to.namespace, {"former": to.former})

    def _put(self, table: str, rows: list[dict[str, Any]], namespace: str) -> None:
        if table == "transitions":  # two that led to regions missing here may have the same key now
            steps = (Step(*(row[field] for field in Step._fields)) for row in rows)
            self._then(CountSteps(namespace, tuple(steps)))
        elif rows:
            self._connection.execute(tables()[table].insert(), rows)

    def _begin(self, row: a.Row, to: a.Renames) -> int:
        """Key of the namespace, which is new here."""
        name = s.namespaces.c.name == to.namespace
        if self._connection.scalar(sa.select(sa.exists(sa.select(s.namespaces).where(name)))):
            msg = (
                f"namespace {to.namespace!r} has asked, learned or been taught here already: "
                "replace it, or import it under another name"
            )
            raise InvalidInputError(msg)
        values = renamed("namespaces", {k: v for k, v in row.items() if k != "key"}, to)
        made = s.namespaces.insert().values(values).returning(s.namespaces.c.key)
        return int(self._connection.execute(made).scalar_one())

    def _arrived(
        self, table: str, rows: Iterable[a.Row], namespace: int, to: a.Renames
    ) -> list[dict[str, Any]]:
        """Rows as they stand here; those of nodes that do not exist here are left out."""
        block = (table, list(rows))
        naming = Naming.coming(self._keys(nodes_in(block, str), namespace, to.notes))
        here = _local(table, namespace, to.namespace)
        arrived = translated(block, naming)
        return [{**_given(table, renamed(table, row, to)), **here} for row in arrived]

    def _keys(self, ids: Iterable[str], namespace: int, notes: Mapping[str, str]) -> dict[str, int]:
        """Keys by former id of the nodes that exist here, for this namespace to see."""
        former = {notes.get(node, node): node for node in ids}
        seen = s.nodes.c.owner.in_((*WHOLES, namespace))  # what is replaced is handed on later
        found: dict[str, int] = {}
        for part in parts(former):
            query = sa.select(s.nodes.c.id, s.nodes.c.key).where(s.nodes.c.id.in_(part), seen)
            found |= {former[node]: key for node, key in self._connection.execute(query)}
        return found

    def _journal(self, change: str, namespace: str | None, payload: Mapping[str, Any]) -> None:
        write_down(self._connection, change, payload, namespace)


def _given(table: str, row: a.Row) -> dict[str, Any]:
    """A row as it is written; user and source of feedback are those of its payload."""
    if table != "feedback":
        return dict(row)
    said = json.loads(row["payload"])
    return {**row, "user": said.get("user"), "source": said.get("source")}


def _local(table: str, key: int, name: str) -> dict[str, Any]:
    """The columns that say whose a row is, and that no index knows it yet."""
    if table == "feedback":
        return {"namespace": name}
    columns = tables()[table].c
    given = {"namespace": key, "owner": key, "indexed": 0}
    return {column: value for column, value in given.items() if column in columns}
