"""Replaced nodes: no query sees them, because others stand for them; their text is kept.

A merged node stands for its near-duplicates, the parts of a split node for the whole. A replaced
node is known to its source, so that the same text does not come again. It has neither full text nor
a vector in the index, and what was learned about it is with those that stand for it.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from crabpath_retrievers.storage.batching import parts
from crabpath_retrievers.storage.hot import HotSelect
from crabpath_retrievers.storage.schema import aliases, nodes

REPLACED = -2
"""Their owner; 0 owns what all namespaces see, and keys of namespaces are above it."""

WHOLES = (0, REPLACED)
"""Owners of what sources hold."""

ANSWERING = aliases.c.position == 0
"""Of several that stand for a node, the one that answers to its id."""

IS_PART = sa.exists().where(aliases.c.target == nodes.c.key, aliases.c.kind == "split")
"""Whether a node was split off another one by maintenance; no source knows it."""


def standing_keys(connection: sa.Connection, keys: Iterable[int]) -> dict[int, int]:
    """Who answers for those of the nodes that are replaced, by key."""
    query = sa.select(aliases.c.node, aliases.c.target).where(ANSWERING)
    found: dict[int, int] = {}
    for part in parts(keys):
        rows = connection.execute(query.where(aliases.c.node.in_(part)))
        found |= {node: standing for node, standing in rows}
    return found


def standing_ids(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Who answers for those of the nodes that are replaced, by id."""
    found: dict[str, str] = {}
    for part in parts(ids):
        found |= {node: standing for node, standing in _NAMES.rows(connection, {"ids": part})}
    return found


_HIDDEN = nodes.alias()
_NAMES = HotSelect(
    sa.select(_HIDDEN.c.id, nodes.c.id)
    .select_from(_HIDDEN)
    .join(aliases, aliases.c.node == _HIDDEN.c.key)
    .join(nodes, nodes.c.key == aliases.c.target)
    .where(
        _HIDDEN.c.id.in_(sa.bindparam("ids", expanding=True)),
        aliases.c.position == sa.literal_column("0"),
    )
)
