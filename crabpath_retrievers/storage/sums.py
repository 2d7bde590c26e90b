"""Counter tables: values start at 0, never fall below it, and rows of zeros are deleted."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage.hot import CompiledWrite, build_insert

ROUNDING = 1e-9
"""Counts at or below this are 0: subtraction leaves rounding errors."""


class CounterTable:
    """Adds to the counters of one table."""

    def __init__(self, table: sa.Table, *names: str) -> None:
        """Columns ``names`` are the counters of ``table``; its other columns are the key."""
        self._names = names
        self._add = CompiledWrite(lambda insert: _build_add(insert, table, names))
        self._drop = CompiledWrite(lambda _: _build_drop(table, names))

    def add(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add to the counters; a missing row starts with what is added, but at least 0."""
        self._add.run_all(connection, [self._upsert_parameters(row) for row in rows])
        reduced = [row for row in rows if any(row[name] < 0 for name in self._names)]
        key = [{k: v for k, v in row.items() if k not in self._names} for row in reduced]
        self._drop.run_all(connection, key)

    def _upsert_parameters(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """Parameters of the upsert: initial values, and what to add to an existing row."""
        initial = {name: max(0.0, row[name]) for name in self._names}
        return {**row, **initial, **{f"more_{name}": row[name] for name in self._names}}


def _build_add(insert: Callable[..., Any], table: sa.Table, names: Sequence[str]) -> Any:
    more = {name: sa.bindparam(f"more_{name}", type_=sa.Float()) for name in names}
    return build_insert(insert, table).on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: _at_least_zero(table.c[name] + more[name]) for name in names},
    )


def _at_least_zero(value: Any) -> Any:
    epsilon: Any = sa.literal_column(str(ROUNDING))
    return sa.case((value <= epsilon, sa.literal_column("0.0", sa.Float)), else_=value)


def _build_drop(table: sa.Table, names: Sequence[str]) -> Any:
    epsilon: Any = sa.literal_column(str(ROUNDING))
    conditions = [column == sa.bindparam(column.name) for column in table.primary_key.columns]
    return table.delete().where(*conditions, *(table.c[name] <= epsilon for name in names))
