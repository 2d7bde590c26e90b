"""Under which ids the store knows given nodes.

The id of a chunk is read off its document and text when it first comes; a sync lets it keep that
id when the text is edited or moved. So a text is known by its fingerprint, not by its id alone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from crabpath_retrievers.graph import Node
from crabpath_retrievers.storage.catalog import Known


def is_given(node: Node | Known) -> bool:
    """Whether the id is the caller's own, that of a whole document, and so not ours to choose."""
    return node.id == node.document


def settled(nodes: Sequence[Node], known: Mapping[str, Known]) -> list[Node]:
    """The nodes under the ids that the store has for them.

    Args:
        nodes: As they were cut, with ids from document and text.
        known: By id, all nodes with the ids of ``nodes`` and all of their documents.

    Returns:
        In the same order: an unchanged chunk has the id of its text in the store, a new one whose
        id another text has in the meantime has a new id.
    """
    held = {(node.document, node.digest): node.id for node in known.values()}
    own = [node.id if is_given(node) else held.get((node.document, node.digest)) for node in nodes]
    taken = set(own)

    def chosen(node: Node) -> str:
        other = known.get(node.id)
        elsewhere = other is not None and other.document != node.document
        return uuid4().hex if elsewhere or node.id in taken else node.id

    found = [(node, own_id or chosen(node)) for node, own_id in zip(nodes, own, strict=True)]
    return [node if node.id == name else replace(node, id=name) for node, name in found]


def unused(nodes: Sequence[Node], taken: Collection[str]) -> list[Node]:
    """The nodes with new ids where another text has theirs; ids that the caller gave stay."""
    return [
        replace(node, id=uuid4().hex) if node.id in taken and not is_given(node) else node
        for node in nodes
    ]
