"""Retired nodes: hidden from queries, while what was learned about them is kept.

They have neither structural edges nor full text nor an indexed vector. When the same text is added
again, it is found by an address that is a hash of the text, and the node becomes visible.
"""

import hashlib
from collections.abc import Mapping
from typing import Any

RETIRED = -1
"""Owner of retired nodes; see the column ``owner`` of ``nodes``."""


def build_retired_address(content: str) -> str:
    """Address of a retired node with this text; not the target of any link."""
    return f"retired:{hashlib.sha256(content.encode()).hexdigest()[:32]}"


# Fields of a turn record with the id of a node, and with several.
_NODE_FIELDS = frozenset({"node", "source", "target"})
_NODE_LIST_FIELDS = frozenset({"chosen", "reflexes", "visited", "frozen", "learned"})


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
        elif name in _NODE_LIST_FIELDS and item is not None:
            new[name] = [notes.get(node, node) for node in item]
        else:
            new[name] = replace_node_ids(item, notes)
    return new
