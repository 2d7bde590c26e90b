"""Short forms of SQL: compiled statements, long lists of values, reads, vectors, counters, repeats.

Execution through SQLAlchemy adds 0.1 ms to every statement, more than many a statement takes: those
of every query and feedback are compiled once and run on the cursor of the driver.
"""

import logging
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from itertools import chain, islice
from time import sleep
from typing import Any, Protocol, TypeVar

import numpy as np
import sqlalchemy as sa
from pydantic_core import to_json
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql import operators
from sqlalchemy.sql.visitors import replacement_traverse

from crabpath_retrievers.core.processes import raise_interruption
from crabpath_retrievers.core.records import Vector
from crabpath_retrievers.errors import StoreError


@contextmanager
def open_driver_cursor(connection: sa.Connection) -> Iterator[Any]:
    """Open a cursor of the driver; raises its errors as SQLAlchemy's.

    An error that says that the connection is dead invalidates it.
    """
    dialect = connection.dialect
    # psycopg decodes binary answers twice as fast as text.
    options = {"binary": True} if dialect.driver == "psycopg" else {}
    cursor = connection.connection.cursor(**options)
    try:
        yield cursor
    except dialect.loaded_dbapi.Error as error:
        dead = dialect.is_disconnect(error, connection.connection, cursor)
        if dead:
            connection.invalidate(error)
        raise sa.exc.DBAPIError.instance(
            None, None, error, dialect.loaded_dbapi.Error, connection_invalidated=dead
        ) from error
    finally:
        cursor.close()


class CompiledSelect:
    """A select that is compiled once per dialect and length of its list parameters.

    Its constants become part of the text. A list of scalars is one parameter, on PostgreSQL an
    array, so that it plans the statement once for all lengths; on SQLite, where it is long, JSON,
    so that no list is more than it binds. Other lists are padded to the next power of two by
    repeating their last value, so that few lengths occur; an empty list becomes ``[NULL]``, which
    matches no row.
    """

    def __init__(self, statement: sa.SelectBase) -> None:
        """Prepare ``statement``; list parameters are ``bindparam(name, expanding=True)``.

        A statement with a limit needs an offset, too, or SQLite adds a parameter for it.
        """
        self._statement = statement
        self._compiled: dict[tuple[Any, ...], tuple[str, tuple[str, ...]]] = {}

    def rows(
        self, connection: sa.Connection, parameters: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        """Read all rows, as plain tuples.

        A list among ``parameters`` is for an expanding parameter. A list of tuples, by which
        several columns are compared at once, must not be empty.
        """
        dialect = connection.dialect.name
        given = {name: _bind_parameter(value, dialect) for name, value in parameters.items()}
        lengths = (len(value) if isinstance(value, list) else 0 for value in given.values())
        shape = (dialect, *lengths)
        if shape not in self._compiled:
            arrays = {
                name
                for name, value in parameters.items()
                if isinstance(value, list) and not isinstance(given[name], list)
            }
            self._compiled[shape] = self._compile(connection, given, arrays)
        text, order = self._compiled[shape]
        values: list[Any] = []
        for value in map(given.__getitem__, order):
            if not isinstance(value, list):
                values.append(value)
            elif isinstance(value[0], tuple):
                values.extend(chain.from_iterable(value))
            else:
                values.extend(value)
        with open_driver_cursor(connection) as cursor:
            cursor.execute(text, values)
            return cursor.fetchall()  # type: ignore[no-any-return]

    def _compile(
        self, connection: sa.Connection, given: Mapping[str, Any], arrays: AbstractSet[str]
    ) -> tuple[str, tuple[str, ...]]:
        statement: Any = replacement_traverse(self._statement, {}, _inline_constant)
        if arrays:
            dialect = connection.dialect.name
            compare = partial(_compare_with_array, arrays=arrays, dialect=dialect)
            statement = replacement_traverse(statement, {}, compare)
        padded = {name: value for name, value in given.items() if isinstance(value, list)}
        compiled = statement.params(**given).compile(
            dialect=_get_positional_dialect(connection),
            compile_kwargs={"render_postcompile": True},
        )
        # The values of a list stand next to each other, as ids_1, ids_2, …
        names = {name: name for name in given if name not in padded} | {
            f"{name}_1{'_1' * isinstance(values[0], tuple)}": name
            for name, values in padded.items()
        }
        return str(compiled), tuple(names[name] for name in compiled.positiontup if name in names)


def _bind_parameter(value: Any, dialect: str) -> Any:
    """Convert a parameter for the driver of a dialect; only lists are changed.

    A list becomes one array or JSON text, or is padded to a power of two; an empty one becomes
    ``[None]``.
    """
    if not isinstance(value, list):
        return value
    is_flat = not (value and isinstance(value[0], tuple))
    if is_flat and dialect == "postgresql":
        return format_array(value)
    if is_flat and len(value) > _MOST_BOUND:
        return to_json(value).decode()
    if not value:
        return [None]
    size = 1 << (len(value) - 1).bit_length()
    return value + [value[-1]] * (size - len(value))


def format_array(values: Iterable[int | str]) -> str:
    """Format a list as an array of PostgreSQL, four times faster than its driver."""
    quoted = (
        str(value)
        if isinstance(value, int)
        else '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
        for value in values
    )
    return "{" + ",".join(quoted) + "}"


def _compare_with_array(element: Any, *, arrays: AbstractSet[str], dialect: str, **_: Any) -> Any:
    """Write ``column IN (list)`` as ``column = ANY(array)``; None keeps any other element."""
    is_list = isinstance(element, sa.BinaryExpression) and element.operator is operators.in_op
    name = getattr(element.right, "key", None) if is_list else None
    if name not in arrays or element.right.unique:
        return None
    if dialect == "sqlite":
        values = sa.func.json_each(sa.bindparam(name, type_=sa.Text())).table_valued("value")
        return element.left.in_(sa.select(values.c.value))
    array = sa.bindparam(name, type_=postgresql.ARRAY(element.left.type))
    return element.left == sa.any_(array)


_MOST_BOUND = 1024  # values of a list that are bound one by one


def _get_positional_dialect(connection: sa.Connection) -> sa.Dialect:
    """Return the dialect of a connection, with parameters by position."""
    dialect: Any = connection.dialect
    if dialect.positional:
        return dialect  # type: ignore[no-any-return]
    return type(dialect)(paramstyle="format")  # type: ignore[no-any-return]


def _inline_constant(element: Any, **_: Any) -> Any:
    """Write a constant into the text of a statement; None keeps any other element."""
    is_constant = isinstance(element, sa.BindParameter) and element.unique
    return element.render_literal_execute() if is_constant else None


class CompiledWrite:
    """An insert, update or delete without list parameters, compiled once per dialect."""

    def __init__(self, build: Callable[[Callable[..., Any]], Any]) -> None:
        """Prepare a statement.

        ``build`` gets the insert function of the dialect, which supports ON CONFLICT; all values
        are named parameters.
        """
        self._build = build
        self._compiled: dict[str, tuple[str, tuple[str, ...]]] = {}

    def run(self, connection: sa.Connection, row: Mapping[str, Any]) -> int:
        """Execute the statement once with the values of ``row``; return how many rows changed."""
        text, order = self._compile(connection)
        with open_driver_cursor(connection) as cursor:
            cursor.execute(text, [row[name] for name in order])
            return int(cursor.rowcount)

    def fetch(self, connection: sa.Connection, row: Mapping[str, Any]) -> tuple[Any, ...] | None:
        """Execute a statement with RETURNING once with the values of ``row``.

        Returns:
            The row that was changed; None if there is none.
        """
        text, order = self._compile(connection)
        with open_driver_cursor(connection) as cursor:
            cursor.execute(text, [row[name] for name in order])
            rows = cursor.fetchall()
        return rows[0] if rows else None

    def run_all(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Execute the statement once for each of ``rows``."""
        if rows:
            text, order = self._compile(connection)
            with open_driver_cursor(connection) as cursor:
                cursor.executemany(text, [[row[name] for name in order] for row in rows])

    def _compile(self, connection: sa.Connection) -> tuple[str, tuple[str, ...]]:
        name = connection.dialect.name
        if name not in self._compiled:
            insert = (sqlite if name == "sqlite" else postgresql).insert
            compiled = self._build(insert).compile(dialect=_get_positional_dialect(connection))
            self._compiled[name] = (str(compiled), tuple(compiled.positiontup))
        return self._compiled[name]


def build_insert(insert: Callable[..., Any], table: sa.Table, **given: Any) -> Any:
    """Build an insert into a table, with parameters named like the columns.

    ``given`` values replace parameters. The database generates the surrogate key, if there is one.
    ``insert`` is the insert function of the dialect.
    """
    generated = table.autoincrement_column
    values = {c.name: sa.bindparam(c.name, type_=c.type) for c in table.c if c is not generated}
    return insert(table).values({**values, **given}).inline()


def build_upsert(insert: Callable[..., Any], table: sa.Table) -> Any:
    """Build an insert as :func:`build_insert`; an existing row with the same key is replaced."""
    statement = build_insert(insert, table)
    key = list(table.primary_key.columns)
    update = {
        c.name: statement.excluded[c.name] for c in table.c if c.name not in {k.name for k in key}
    }
    return statement.on_conflict_do_update(index_elements=key, set_=update)


T = TypeVar("T")
_MAX_PARAMETERS = 8192  # bound parameters: SQLite allows 32,766 a statement, PostgreSQL 65,535


def split_batches(values: Iterable[T], size: int = _MAX_PARAMETERS) -> Iterator[list[T]]:
    """Yield lists of at most ``size`` values, in order."""
    iterator = iter(values)
    while part := list(islice(iterator, size)):
        yield part


def select_in(
    connection: sa.Connection, query: sa.Select[Any], column: Any, values: Iterable[Any]
) -> list[Any]:
    """Select the rows of a query that have one of ``values`` in a column, or in several."""
    found = list[Any]()
    for part in split_batches(values):  # all at once: row by row is slow
        found += connection.execute(query.where(is_one_of(connection, column, part))).all()
    return found


def delete_in(connection: sa.Connection, column: sa.Column[Any], values: Iterable[Any]) -> None:
    """Delete the rows with one of many values in a column."""
    for part in split_batches(values):
        connection.execute(column.table.delete().where(is_one_of(connection, column, part)))


_MANY = 64  # values


def is_one_of(connection: sa.Connection, column: Any, values: Sequence[Any]) -> Any:
    """Build the condition that ``column`` has one of ``values``, with many as one parameter.

    PostgreSQL's driver parses each parameter, and SQLite's keeps the values of a statement with the
    statement, once for every length of the list: hundreds of megabytes in a process that works
    long.
    """
    if not isinstance(column, sa.Column) or len(values) < _MANY:
        return column.in_(values)
    if connection.dialect.name == "sqlite":
        text = sa.bindparam(None, to_json(values).decode(), type_=sa.Text, unique=True)
        return column.in_(sa.select(sa.func.json_each(text).table_valued("value").c.value))
    kind = postgresql.ARRAY(column.type)
    return column == sa.func.any(sa.bindparam(None, list(values), type_=kind, unique=True))


_STORED = np.dtype("<f2")  # half precision: cosines keep three decimals at half the bytes


def encode_vector(vector: Vector) -> bytes:
    """Encode a unit vector, shape ``[d]``, in half precision."""
    return np.asarray(vector, dtype=_STORED).tobytes()


def decode_vector(data: bytes) -> Vector:
    """The inverse of :func:`encode_vector`; a read-only view in half precision."""
    return np.frombuffer(data, dtype=_STORED)


def decode_vectors(packed: Sequence[bytes]) -> Vector:
    """Decode at least one vector, all of one size, into shape ``[n, d]``."""
    return decode_vector(b"".join(packed)).reshape(len(packed), -1)


_log = logging.getLogger(__name__)


class ReadableStore(Protocol):
    """A store that query classes read from."""

    def connect(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads; each statement sees the latest commit."""

    def flush(self) -> None:
        """Wait until all queued turn records are written."""


class Queries:
    """Reads of one kind of record, each within a reading transaction of a store."""

    def __init__(self, store: ReadableStore) -> None:
        """Keep the store to read from."""
        self._store = store

    @property
    def source(self) -> ReadableStore:
        """The store or reader that these reads use."""
        return self._store

    def _run(self, query: CompiledSelect, **parameters: Any) -> Sequence[tuple[Any, ...]]:
        with self._store.connect() as connection:
            return query.rows(connection, parameters)

    def _rows(self, query: sa.Select[Any]) -> Sequence[Any]:
        with self._store.connect() as connection:
            return connection.execute(query).all()

    def _rows_in(self, query: sa.Select[Any], column: Any, values: Iterable[Any]) -> list[Any]:
        with self._store.connect() as connection:
            return select_in(connection, query, column, values)

    def _scalars(self, query: sa.Select[Any]) -> list[Any]:
        with self._store.connect() as connection:
            return list(connection.scalars(query))

    def _scalar(self, query: sa.Select[Any]) -> Any:
        with self._store.connect() as connection:
            return connection.scalar(query)

    def _count(self, table: sa.Table, *where: Any) -> int:
        return self._scalar(sa.select(sa.func.count()).select_from(table).where(*where)) or 0

    def _iterate_blocks(
        self, query: sa.Select[Any], key: sa.ColumnElement[int], size: int
    ) -> Iterator[Sequence[Any]]:
        """Yield the rows of a query, the first column of which is ``key``, in blocks by key."""
        query, last = query.order_by(key).limit(size), 0
        while rows := self._rows(query.where(key > last)):
            yield rows
            last = rows[-1][0]


def decode_rows(what: str, rows: Iterable[Any], read: Callable[[Any], T]) -> list[T]:
    """Decode rows by ``read``; damaged ones are skipped with a warning."""
    found: list[T] = []
    for row in rows:
        try:
            found.append(read(row))
        except Exception as error:  # whatever decoding of damaged values raises
            raise_interruption(error)
            _log.warning("%s in the store is damaged and passed over: %r", what, error)
    return found


ROUNDING = 1e-9
"""Counts at or below this are 0: subtraction leaves rounding errors."""


class CounterTable:
    """Adds to the counters of one table."""

    def __init__(self, table: sa.Table, names: Sequence[str]) -> None:
        """Keep the table: columns ``names`` are its counters, the other ones its key."""
        self._names = names
        self._key = [column.name for column in table.primary_key.columns]
        self._add = CompiledWrite(lambda insert: _build_add(insert, table, names))
        self._add_at_once = _format_add(table, names)
        self._drop = CompiledWrite(lambda _: _build_drop(table, names))

    def add(
        self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]], *, undo: bool = False
    ) -> None:
        """Add amounts to the counters; the row of a key that does not exist is created.

        If ``undo``, or for rows with a negative amount, rows whose counters are all 0 are deleted.
        A counter may be below 0 for a while: of evidence that was raised and then lowered, the
        first part may be undone first.
        """
        reduced = [row for row in rows if undo or any(row[name] < 0 for name in self._names)]
        if not reduced and connection.dialect.name == "postgresql":
            self._raise_at_once(connection, rows)
            return
        # Initial values, and what to add to an existing row.
        added = [{**row, **{f"more_{name}": row[name] for name in self._names}} for row in rows]
        self._add.run_all(connection, added)
        key = [{k: v for k, v in row.items() if k not in self._names} for row in reduced]
        self._drop.run_all(connection, key)

    def _raise_at_once(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add to all rows in one statement of PostgreSQL, which changes each row once."""
        total: dict[tuple[Any, ...], dict[str, Any]] = {}
        for row in rows:
            key = tuple(row[name] for name in self._key)
            known = total.setdefault(key, dict.fromkeys(self._names, 0.0))
            for name in self._names:
                known[name] += row[name]
        if total:
            given = [
                {**dict(zip(self._key, key, strict=True)), **known} for key, known in total.items()
            ]
            with open_driver_cursor(connection) as cursor:
                cursor.execute(self._add_at_once, [to_json(given).decode()])


def _build_add(insert: Callable[..., Any], table: sa.Table, names: Sequence[str]) -> Any:
    zero = sa.literal_column("0.0", sa.Float)
    total = {n: table.c[n] + sa.bindparam(f"more_{n}", type_=sa.Float()) for n in names}
    return build_insert(insert, table).on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: sa.case((_is_zero(one), zero), else_=one) for name, one in total.items()},
    )


def _format_add(table: sa.Table, names: Sequence[str]) -> str:
    """Format the statement that adds to the counters ``names`` for PostgreSQL."""
    key = [column.name for column in table.primary_key.columns]
    columns = [*key, *names]
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    typed = (f"{name} {table.c[name].type.compile(dialect)}" for name in columns)
    added = (f"{name} = {table.name}.{name} + excluded.{name}" for name in names)
    return (
        f"INSERT INTO {table.name} ({', '.join(columns)}) "
        f"SELECT * FROM jsonb_to_recordset(%s::jsonb) AS given ({', '.join(typed)}) "
        f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {', '.join(added)}"
    )


def _is_zero(value: Any) -> Any:
    epsilon: Any = sa.literal_column(str(ROUNDING))
    return sa.func.abs(value) <= epsilon


def _build_drop(table: sa.Table, names: Sequence[str]) -> Any:
    conditions = [column == sa.bindparam(column.name) for column in table.primary_key.columns]
    return table.delete().where(*conditions, *(_is_zero(table.c[name]) for name in names))


# Work that PostgreSQL ended because of others, and that is repeated.

ABORTED = ("40001", "40P01")
"""SQLSTATE of work that changes of others ended, a deadlock among them: it is repeated."""

LOST = ("26000", "42P05")
"""SQLSTATE of a prepared statement that is not on the connection that a pooler chose."""

PAUSES = tuple(0.01 * 2**n for n in range(7))
"""Seconds to wait at most before work is repeated."""


def find_state(error: BaseException | None) -> str | None:
    """Find the SQLSTATE of an error of PostgreSQL; None for any other error."""
    return getattr(error, "sqlstate", None)


def repeat_transaction(work: Callable[[], T]) -> T:
    """Return the result of ``work``, one transaction, repeated while changes of others abort it."""
    for pause in PAUSES:
        try:
            return work()
        except StoreError as error:
            if find_state(getattr(error.__cause__, "orig", None)) not in (*ABORTED, *LOST):
                raise
        sleep(random.uniform(0, pause))  # noqa: S311
    return work()
