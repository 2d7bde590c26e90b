"""Learned weights as they stand now, read or written: before the speed of their decay changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage import schema as s

_NOW = (s.namespaces.c.exponent, s.nodes.c.authority)


def _fading(table: sa.Table) -> sa.Join:
    """Rows with the namespace whose exponent they fade by, and the node whose authority counts."""
    of = s.namespaces.c.key == table.c.namespace
    return table.join(s.namespaces, of).join(s.nodes, s.nodes.c.key == table.c.target)


def standing(connection: sa.Connection, namespace: int, edge: Mapping[str, int]) -> float:
    """Effective weight of an edge that no text has made; 0 where there is none.

    Args:
        connection: An open transaction.
        namespace: Key of the namespace.
        edge: Keys of ``source`` and ``target``, number of the ``kind``.
    """
    own = [s.overlay.c[name] == value for name, value in edge.items()]
    row = connection.execute(
        sa.select(s.overlay, *_NOW)
        .select_from(_fading(s.overlay))
        .where(s.overlay.c.namespace == namespace, *own)
    ).one_or_none()
    return 0.0 if row is None else _left(row, row.weight, 0.0)


def settle(connection: sa.Connection, keys: Sequence[int]) -> None:
    """Let the learned weights that lead to these nodes stand where they have decayed to.

    What is left of the moves behind them is settled alike, to be taken back from there.
    """
    o, e = s.overlay, s.edges
    same = sa.and_(o.c.source == e.c.source, o.c.target == e.c.target, o.c.kind == e.c.kind)
    query = sa.select(o, sa.func.coalesce(e.c.floor, 0.0).label("floor"), *_NOW)
    weights = connection.execute(
        query.select_from(_fading(o).outerjoin(e, same)).where(o.c.target.in_(keys))
    ).all()
    _rewrite(connection, o, "weight", [(row, _left(row, row.weight, row.floor)) for row in weights])
    query = sa.select(s.weight_changes, *_NOW).select_from(_fading(s.weight_changes))
    moves = connection.execute(query.where(s.weight_changes.c.target.in_(keys))).all()
    _rewrite(
        connection, s.weight_changes, "delta", [(row, _left(row, row.delta, 0.0)) for row in moves]
    )


def _left(row: Any, amount: float, floor: float) -> float:
    return effective_weight(amount, floor, row.decay_at, row.exponent, DECAY_RATES[row.authority])


def _rewrite(
    connection: sa.Connection, table: sa.Table, name: str, rows: Sequence[tuple[Any, float]]
) -> None:
    key = [column.name for column in table.primary_key]
    own = [table.c[column] == sa.bindparam(f"the_{column}") for column in key]
    values: dict[str, Any] = {name: sa.bindparam("to"), "decay_at": sa.bindparam("now")}
    given = [
        {
            **{f"the_{column}": getattr(row, column) for column in key},
            "to": left,
            "now": max(row.decay_at, row.exponent),
        }
        for row, left in rows
    ]
    if given:
        connection.execute(table.update().where(*own).values(values), given)
