"""Effective learned weights: read, and stored before the authority of their target changes."""

from collections.abc import Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage import schema as s

_NOW = (s.namespaces.c.exponent, s.nodes.c.authority)


def _join_decay(table: sa.Table) -> sa.Join:
    """Join rows with the namespace and the target node that determine their decay."""
    of = s.namespaces.c.key == table.c.namespace
    return table.join(s.namespaces, of).join(s.nodes, s.nodes.c.key == table.c.target)


def read_effective_weight(
    connection: sa.Connection, namespace: int, edge: Mapping[str, int]
) -> float:
    """Effective weight, in [-1, 1], of a learned edge without structural edge; 0 without weight.

    Args:
        connection: An open transaction.
        namespace: Key of the namespace.
        edge: Keys of ``source`` and ``target``, number of the ``kind``.
    """
    own = [s.overlay.c[name] == value for name, value in edge.items()]
    row = connection.execute(
        sa.select(s.overlay, *_NOW)
        .select_from(_join_decay(s.overlay))
        .where(s.overlay.c.namespace == namespace, *own)
    ).one_or_none()
    return 0.0 if row is None else _get_effective(row, row.weight, 0.0)


def materialise_decay(connection: sa.Connection, keys: Sequence[int]) -> None:
    """Replace the learned weights that lead to these nodes by their effective values now.

    The weight changes behind them are replaced alike, so that undo stays exact.
    """
    o, e = s.overlay, s.edges
    same = sa.and_(o.c.source == e.c.source, o.c.target == e.c.target, o.c.kind == e.c.kind)
    query = sa.select(o, sa.func.coalesce(e.c.floor, 0.0).label("floor"), *_NOW)
    weights = connection.execute(
        query.select_from(_join_decay(o).outerjoin(e, same)).where(o.c.target.in_(keys))
    ).all()
    _rewrite_column(
        connection,
        o,
        "weight",
        [(row, _get_effective(row, row.weight, row.floor)) for row in weights],
    )
    query = sa.select(s.weight_changes, *_NOW).select_from(_join_decay(s.weight_changes))
    moves = connection.execute(query.where(s.weight_changes.c.target.in_(keys))).all()
    _rewrite_column(
        connection,
        s.weight_changes,
        "delta",
        [(row, _get_effective(row, row.delta, 0.0)) for row in moves],
    )


def _get_effective(row: Any, amount: float, floor: float) -> float:
    return effective_weight(amount, floor, row.decay_at, row.exponent, DECAY_RATES[row.authority])


def _rewrite_column(
    connection: sa.Connection, table: sa.Table, name: str, rows: Sequence[tuple[Any, float]]
) -> None:
    key = [column.name for column in table.primary_key]
    own = [table.c[column] == sa.bindparam(f"the_{column}") for column in key]
    values: dict[str, Any] = {name: sa.bindparam("to"), "decay_at": sa.bindparam("now")}
    given = [
        {
            **{f"the_{column}": getattr(row, column) for column in key},
            "to": effective,
            "now": max(row.decay_at, row.exponent),
        }
        for row, effective in rows
    ]
    if given:
        connection.execute(table.update().where(*own).values(values), given)
