"""Aliases: nodes hidden from queries because others replace them after a merge.

A near-duplicate is replaced by the node that was kept. The hidden node still
belongs to its source, so that the same text is not added again. It has neither full text nor an
indexed vector, and what was learned about it has moved to its target.

Retired nodes: hidden from queries, while what was learned about them is kept.

They have neither structural edges nor full text nor an indexed vector. When the same text is added
again, it is found by an address that is a hash of the text, and the node becomes visible.
"""

import hashlib
from collections.abc import Iterable, Mapping
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import aliases, nodes
from crabpath_retrievers.storage.sql_tools import CompiledSelect, split_batches

REPLACED = -2
"""Owner of nodes that others replace; see the column ``owner`` of ``nodes``."""

SOURCE_OWNERS = (0, REPLACED)
"""Owners of the nodes that belong to sources, whether visible or replaced."""


def resolve_alias_keys(connection: sa.Connection, keys: Iterable[int]) -> dict[int, int]:
    """Keys of the nodes that answer for replaced ones, by key; other keys are left out."""
    query = sa.select(aliases.c.node, aliases.c.target)
    found: dict[int, int] = {}
    for part in split_batches(keys):
        rows = connection.execute(query.where(aliases.c.node.in_(part)))
        found |= {node: target for node, target in rows}
    return found


def resolve_alias_ids(connection: sa.Connection, ids: Iterable[str]) -> dict[str, str]:
    """Ids of the nodes that answer for replaced ones, by id; other ids are left out."""
    found: dict[str, str] = {}
    for part in split_batches(ids):
        found |= {node: target for node, target in _TARGET_IDS.rows(connection, {"ids": part})}
    return found


_HIDDEN = nodes.alias()
_TARGET_IDS = CompiledSelect(
    sa.select(_HIDDEN.c.id, nodes.c.id)
    .select_from(_HIDDEN)
    .join(aliases, aliases.c.node == _HIDDEN.c.key)
    .join(nodes, nodes.c.key == aliases.c.target)
    .where(_HIDDEN.c.id.in_(sa.bindparam("ids", expanding=True)))
)


RETIRED = -1
"""Owner of retired nodes; see the column ``owner`` of ``nodes``."""


def build_retired_address(content: str) -> str:
    """Address of a retired node with this text; not the target of any link."""
    return f"retired:{hashlib.sha256(content.encode()).hexdigest()[:32]}"


# Fields of a turn record with the id of a node, and with several.
_NODE_FIELDS = frozenset({"node", "source", "target"})
_NODE_LIST_FIELDS = frozenset({"chosen", "reflexes", "visited"})


def replace_node_ids(value: Any, notes: Mapping[str, str]) -> Any:
    """A turn record, or a part of it, with other ids of nodes."""
    if isinstance(value, list):
        return [replace_node_ids(item, notes) for item in value]
    if not isinstance(value, dict):
        return value
    new: dict[str, Any] = {}
    for name, item in value.items():
        if name in _NODE_FIELDS and isinstance(item, str):
            new[name] = notes.get(item, item)
        elif name in _NODE_LIST_FIELDS:
            new[name] = [notes.get(node, node) for node in item]
        else:
            new[name] = replace_node_ids(item, notes)
    return new
