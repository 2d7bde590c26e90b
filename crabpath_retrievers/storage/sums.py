"""Tables of sums: rows begin at 0, never fall below it, and go when nothing is left."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage.hot import HotWrite, inserted

NOTHING = 1e-9  # what rounding leaves of a sum of which all was taken back


class Sums:
    """Adds to the rows of one table."""

    def __init__(self, table: sa.Table, *names: str) -> None:
        """Sum up the columns with these names; the others are the key."""
        self._names = names
        self._add = HotWrite(lambda insert: _adding(insert, table, names))
        self._drop = HotWrite(lambda _: _dropping(table, names))

    def add(self, connection: sa.Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add to every row; one that is new begins with what is added, or with 0."""
        self._add.run_all(connection, [self._begun(row) for row in rows])
        lessened = [row for row in rows if any(row[name] < 0 for name in self._names)]
        key = [{k: v for k, v in row.items() if k not in self._names} for row in lessened]
        self._drop.run_all(connection, key)

    def _begun(self, row: Mapping[str, Any]) -> dict[str, Any]:
        """A row as it begins, and what is added to one that stands."""
        begins = {name: max(0.0, row[name]) for name in self._names}
        return {**row, **begins, **{f"more_{name}": row[name] for name in self._names}}


def _adding(insert: Callable[..., Any], table: sa.Table, names: Sequence[str]) -> Any:
    more = {name: sa.bindparam(f"more_{name}", type_=sa.Float()) for name in names}
    return inserted(insert, table).on_conflict_do_update(
        index_elements=list(table.primary_key.columns),
        set_={name: _at_least_zero(table.c[name] + more[name]) for name in names},
    )


def _at_least_zero(value: Any) -> Any:
    nothing: Any = sa.literal_column(str(NOTHING))
    return sa.case((value <= nothing, sa.literal_column("0.0", sa.Float)), else_=value)


def _dropping(table: sa.Table, names: Sequence[str]) -> Any:
    nothing: Any = sa.literal_column(str(NOTHING))
    own = [column == sa.bindparam(column.name) for column in table.primary_key.columns]
    return table.delete().where(*own, *(table.c[name] <= nothing for name in names))
