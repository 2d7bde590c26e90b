"""An open transaction, with short forms of the statements that writers need; the journal."""

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Concatenate, ParamSpec

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite

from crabpath_retrievers.core.calls import find_token
from crabpath_retrievers.core.changes import Change
from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.fulltext import FullText
from crabpath_retrievers.storage.sql_tools import (
    CompiledSelect,
    delete_in,
    open_driver_cursor,
    select_in,
)

_SELECT_NAMESPACE = sa.select(s.namespaces.c.key, s.namespaces.c.exponent).where(
    s.namespaces.c.name == sa.bindparam("name")
)
_MANY = 64  # rows
# Whoever writes rows of a namespace or a node holds its row, which the one who deletes it takes
# first: no row comes in between. SQLite has one writer at a time.
_NAMESPACE = CompiledSelect(_SELECT_NAMESPACE.with_for_update(read=True, key_share=True))
_NAMESPACE_LOCKED = CompiledSelect(_SELECT_NAMESPACE.with_for_update(key_share=True))
_HELD_NODES = CompiledSelect(
    sa.select(s.nodes.c.key)
    .where(s.nodes.c.key.in_(sa.bindparam("keys", expanding=True)))
    .order_by(s.nodes.c.key)
    .with_for_update(read=True, key_share=True)
)


P = ParamSpec("P")


class Write(Change):
    """A call of a function that writes within a transaction; it cannot be stored."""

    __slots__ = ("_options", "args", "work")

    def __init__(
        self,
        work: "Callable[Concatenate[Transaction, P], Any]",
        *args: P.args,
        **options: P.kwargs,
    ) -> None:
        """Keep a function and its arguments; ``carry_out`` calls it with the transaction first."""
        self.work, self.args, self._options = work, args, options

    def carry_out(self, tx: "Transaction") -> Any:
        """Call the function with the transaction; return its result."""
        return self.work(tx, *self.args, **self._options)


class Transaction:
    """An open transaction that writes; the caller commits.

    ``touches_corpus`` is set where nodes of documents, their edges or words may have changed;
    ``insert`` is the insert function of the dialect, with ON CONFLICT.
    """

    def __init__(self, connection: sa.Connection, fulltext: FullText) -> None:
        """Keep the connection to write on, and the full-text index of its database."""
        self.connection, self.fulltext = connection, fulltext
        self.touches_corpus = False
        self.insert: Any = (sqlite if connection.dialect.name == "sqlite" else postgresql).insert
        self._copies = True
        self._keys: dict[str, int] = {}
        self._locked: dict[str, tuple[int, float]] = {}
        self._held: dict[int, bool] = {0: True}  # whether a node exists, by key

    @property
    def language(self) -> str | None:
        """Language of all texts of the store; None to detect that of each."""
        found: str | None = self.scalar(
            sa.select(s.meta.c.value).where(s.meta.c.name == "language")
        )
        return found

    def run(self, statement: Any, rows: Any = None) -> Any:
        """Execute a statement."""
        return self.connection.execute(statement, rows)

    def scalar(self, query: Any) -> Any:
        """Return the first column of the first row; None without rows."""
        return self.connection.scalar(query)

    def dicts(self, query: Any) -> list[dict[str, Any]]:
        """Return all rows, as values by column name."""
        return [dict(row) for row in self.run(query).mappings()]

    def select_in(self, query: sa.Select[Any], column: Any, values: Iterable[Any]) -> list[Any]:
        """Select rows of a query with one of many values in a column."""
        return select_in(self.connection, query, column, values)

    def delete_in(self, column: sa.Column[Any], values: Iterable[Any]) -> None:
        """Delete the rows with one of many values in a column."""
        delete_in(self.connection, column, values)

    def delete(self, table: sa.Table, *where: Any) -> int:
        """Delete rows; returns how many."""
        return int(self.run(table.delete().where(*where)).rowcount)

    def update(self, table: sa.Table, *where: Any, **values: Any) -> int:
        """Update rows; returns how many."""
        return int(self.run(table.update().where(*where).values(values)).rowcount)

    def add(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert rows, if there are any; many at once by COPY on PostgreSQL."""
        if self._is_many(table, rows):
            self._insert_many(table, rows)
        elif rows:
            self.run(table.insert(), rows)

    def add_nodes(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, int]:
        """Insert nodes, whose keys are in the order of the rows; returns their keys by id."""
        if not rows:
            return {}
        if self._is_many(s.nodes, rows):
            self._insert_many(s.nodes, rows)
            return self.get_node_keys([row["id"] for row in rows])
        added = self.run(s.nodes.insert().returning(s.nodes.c.id, s.nodes.c.key), rows)
        return {node: key for node, key in added}

    @contextmanager
    def send_together(self, rows: int) -> Iterator[None]:
        """Send the writes within the block without waiting for each, if they have few rows.

        Within the block nothing can be read, and changed rows cannot be counted.
        """
        if rows >= _MANY or self.connection.dialect.name == "sqlite":
            yield
            return
        driver: Any = self.connection.connection.driver_connection
        # The cursor translates errors of statements that were sent before.
        with open_driver_cursor(self.connection), driver.pipeline():
            self._copies = False
            try:
                yield
            finally:
                self._copies = True

    def add_missing(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Insert those rows into a table that conflict with no other row."""
        if self._is_many(table, rows):
            self._insert_many(table, rows, "ON CONFLICT DO NOTHING")
        elif rows:
            self.run(self.insert(table).on_conflict_do_nothing(), rows)

    def upsert(
        self,
        table: sa.Table,
        rows: Sequence[Mapping[str, Any]],
        columns: Iterable[str] | None = None,
    ) -> None:
        """Insert rows; of existing rows, by primary key, ``columns`` are replaced, None for all."""
        if not rows:
            return
        key = [column.name for column in table.primary_key.columns]
        names = columns or [column.name for column in table.c if column.name not in key]
        if self._is_many(table, rows):
            replaced = ", ".join(f"{self._quote(n)} = excluded.{self._quote(n)}" for n in names)
            of_key = ", ".join(map(self._quote, key))
            # PostgreSQL refuses to change a row twice in one statement: the last of equals counts.
            distinct = {tuple(row[name] for name in key): row for row in rows}
            rows = list(distinct.values())
            self._insert_many(table, rows, f"ON CONFLICT ({of_key}) DO UPDATE SET {replaced}")
            return
        new = self.insert(table)
        values = {name: new.excluded[name] for name in names}
        self.run(new.on_conflict_do_update(index_elements=key, set_=values), rows)

    def _quote(self, name: str) -> str:
        return self.connection.dialect.identifier_preparer.quote(name)

    def _is_many(self, table: sa.Table, rows: Sequence[Mapping[str, Any]]) -> bool:
        """Whether the rows are many and plain enough to be inserted by the driver itself."""
        if not self._copies or len(rows) < _MANY:
            return False
        converted = any(isinstance(column.type, sa.TypeDecorator) for column in table.c)
        defaults = {column.name for column in table.c if column.default is not None}
        return not converted and defaults <= rows[0].keys()

    def _insert_many(
        self, table: sa.Table, rows: Sequence[Mapping[str, Any]], conflicts: str = ""
    ) -> None:
        """Insert rows of the same columns; ``conflicts`` is the SQL clause for existing rows."""
        names = list(rows[0])
        values = [tuple(row[name] for name in names) for row in rows]
        columns = ", ".join(map(self._quote, names))
        into = f"{self._quote(table.name)} ({columns})"
        with open_driver_cursor(self.connection) as cursor:
            if self.connection.dialect.name == "sqlite":
                places = ", ".join("?" * len(names))
                cursor.executemany(f"INSERT INTO {into} VALUES ({places}) {conflicts}", values)
            elif not conflicts:
                with cursor.copy(f"COPY {into} FROM STDIN") as copy:
                    for row in values:
                        copy.write_row(row)
            else:
                dialect = self.connection.dialect
                types = (table.c[name].type.compile(dialect) for name in names)
                given = ", ".join(f"%s::{kind}[]" for kind in types)
                query = f"INSERT INTO {into} SELECT * FROM unnest({given}) {conflicts}"
                cursor.execute(query, [list(column) for column in zip(*values, strict=True)])

    def get_namespace(self, name: str, *, lock: bool = False) -> tuple[int, float]:
        """Return key and decay exponent of a namespace, which is created if it is new.

        If ``lock``, its row is locked until the transaction ends.
        """
        if name in self._locked:
            return self._locked[name]
        select = _NAMESPACE_LOCKED if lock else _NAMESPACE
        while not (rows := select.rows(self.connection, {"name": name})):  # or just forgotten
            self.add_missing(s.namespaces, [{"name": name, "turn": 0, "exponent": 0.0}])
        ((key, exponent),) = rows
        return key, exponent

    def get_key(self, name: str) -> int:
        """Return the key of a namespace, which is created if it is new; read once a transaction."""
        if name not in self._keys:
            self._keys[name] = self.get_namespace(name)[0]
        return self._keys[name]

    def keep_lock(self, name: str, key: int, exponent: float) -> None:
        """Remember that a statement has just updated a namespace, with this key and exponent."""
        self._keys[name], self._locked[name] = key, (key, exponent)

    def find_key(self, name: str) -> int | None:
        """Lock a namespace until the transaction ends, and return its key; None without one."""
        query = sa.select(s.namespaces.c.key).where(s.namespaces.c.name == name)
        found: int | None = self.scalar(query.with_for_update())
        return found

    def forget_key(self, name: str) -> None:
        """Forget the row of a namespace, which was changed or deleted."""
        self._keys.pop(name, None)
        self._locked.pop(name, None)

    def increment_versions(self, *keys: int) -> None:
        """Invalidate caches of some namespaces, or of all, so that concurrent learning restarts."""
        own = [s.namespaces.c.key.in_(keys)] if keys else []
        self.update(s.namespaces, *own, version=s.namespaces.c.version + 1)

    def hold_nodes(self, keys: Iterable[int]) -> set[int]:
        """Lock nodes against deletion until the transaction ends; returns existing keys, and 0."""
        wanted = {*keys, 0}
        if new := sorted(wanted - self._held.keys()):
            self._held |= dict.fromkeys(new, False)
            found = _HELD_NODES.rows(self.connection, {"keys": new})
            self._held |= {key: True for (key,) in found}
        return {key for key in wanted if self._held[key]}

    def get_node_keys(self, ids: Iterable[str], namespace: int | None = None) -> dict[str, int]:
        """Map ids of documents, visible or not, or of a namespace's notes to keys."""
        owner = s.nodes.c.owner
        own = owner <= 0 if namespace is None else owner == namespace
        query = sa.select(s.nodes.c.id, s.nodes.c.key).where(own)
        rows = self.select_in(query, s.nodes.c.id, ids)
        return {node: key for node, key in rows}


def write_journal(
    tx: Transaction,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Add a row to the journal, without texts, names or ids: the journal could not forget them.

    The id of the token that asked for it is added.

    Args:
        payload: What was changed, JSON-safe.
        namespace: Name of the one namespace that is concerned; None for several or none.
        inverse: What undoes the change, JSON-safe; None if nothing does.
    """
    token = find_token()
    if token is not None:
        payload = {**payload, "token": token}
    row = {
        "created": time.time(),
        "namespace": namespace,
        "change": change,
        "payload": json.dumps(payload),
        "inverse": None if inverse is None else json.dumps(inverse),
    }
    tx.run(s.journal.insert().values(row))
