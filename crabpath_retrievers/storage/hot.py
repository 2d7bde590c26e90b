"""Statements of the hot path: compiled once by SQLAlchemy, run on the driver's own cursor.

Executing through SQLAlchemy costs 0.1 ms more per statement than the statements themselves.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import sqlalchemy as sa


@contextmanager
def hot_cursor(connection: sa.Connection) -> Iterator[Any]:
    """The driver's own cursor; its errors come out as SQLAlchemy's, dead connections are dropped.

    Args:
        connection: A reading connection.
    """
    dialect = connection.dialect
    cursor = connection.connection.cursor()
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


class HotSelect:
    """A select with expanding parameters, compiled per dialect and length of its lists.

    Lists are padded to the next power of two by repeating their last value, so that few shapes
    are ever compiled; an empty list matches nothing, because NULL equals nothing.
    """

    def __init__(self, statement: sa.SelectBase) -> None:
        """Prepare ``statement``; list parameters are ``bindparam(name, expanding=True)``.

        Constants must be literal columns: only named parameters are passed on.
        """
        self._statement = statement
        self._compiled: dict[tuple[Any, ...], tuple[str, tuple[str, ...] | None]] = {}

    def rows(
        self, connection: sa.Connection, parameters: Mapping[str, Any]
    ) -> Sequence[tuple[Any, ...]]:
        """All rows, as plain tuples.

        Args:
            connection: A reading connection.
            parameters: Scalars, and lists for the expanding parameters.
        """
        padded = {k: _padded(v) if isinstance(v, list) else v for k, v in parameters.items()}
        shape = (
            connection.dialect.name,
            *(len(v) if isinstance(v, list) else 0 for v in padded.values()),
        )
        if shape not in self._compiled:
            self._compiled[shape] = self._compile(connection, padded)
        text, order = self._compiled[shape]
        flat: dict[str, Any] = {}
        for name, value in padded.items():
            if isinstance(value, list):
                flat |= {f"{name}_{i}": item for i, item in enumerate(value, 1)}
            else:
                flat[name] = value
        with hot_cursor(connection) as cursor:
            cursor.execute(text, flat if order is None else tuple(flat[name] for name in order))
            return cursor.fetchall()  # type: ignore[no-any-return]

    def _compile(
        self, connection: sa.Connection, parameters: Mapping[str, Any]
    ) -> tuple[str, tuple[str, ...] | None]:
        compiled = self._statement.params(**parameters).compile(
            dialect=connection.dialect, compile_kwargs={"render_postcompile": True}
        )
        order = compiled.positiontup
        return str(compiled), None if order is None else tuple(order)


def _padded(values: list[Any]) -> list[Any]:
    if not values:
        return [None]
    size = 1 << (len(values) - 1).bit_length()
    return values + [values[-1]] * (size - len(values))
