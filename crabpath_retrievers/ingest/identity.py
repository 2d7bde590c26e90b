"""Under which ids the store knows given nodes.

The id of a chunk is read off its document and text when it first comes, and off its metadata where
its document has the same text with others; a sync lets it keep that id when the text is edited or
moved. So a text is known by its fingerprint, not by its id alone.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from crabpath_retrievers.graph import Node
from crabpath_retrievers.ingest.chunking import id_with_metadata
from crabpath_retrievers.storage.catalog import Known


def is_given(node: Node | Known) -> bool:
    """Whether the id is the caller's own, that of a whole document, and so not ours to choose."""
    return node.id == node.document


def unsettled(nodes: Sequence[Node], known: Mapping[str, Known]) -> list[Node]:
    """The nodes that are not in the store as they are, but another one with their id is.

    Args:
        nodes: As they were cut, with ids from document and text.
        known: By id, what the store holds with these ids, and of their documents.
    """
    held = {(node.document, node.digest) for node in known.values()}
    return [
        node
        for node in nodes
        if node.id in known and not is_given(node) and (node.document, node.digest) not in held
    ]


def settled(
    nodes: Sequence[Node], known: Mapping[str, Known], kept: Mapping[str, Node]
) -> list[Node]:
    """The nodes under the ids that the store has for them.

    Args:
        nodes: As they were cut, with ids from document and text.
        known: By id, what the store holds with the ids that the nodes have or may get, and of
            their documents.
        kept: Of these, by id, those that stay as they are: with other text or metadata they are
            other chunks.

    Returns:
        In the same order: an unchanged chunk has the id of its text in the store, a new one whose
        id another text has in the meantime has a new id.
    """
    held = {(node.document, node.digest): node.id for node in known.values()}
    own = [node.id if is_given(node) else held.get((node.document, node.digest)) for node in nodes]
    taken = set(own)

    def is_free(name: str, node: Node) -> bool:
        if name not in known:
            return True
        if known[name].document != node.document or name in taken:
            return False
        return name not in kept or id_with_metadata(kept[name]) == id_with_metadata(node)

    def choose_id(node: Node) -> str:
        names = (node.id, id_with_metadata(node))
        return next((name for name in names if is_free(name, node)), uuid4().hex)

    found = [(node, own_id or choose_id(node)) for node, own_id in zip(nodes, own, strict=True)]
    return [node if node.id == name else replace(node, id=name) for node, name in found]


def unused(nodes: Sequence[Node], taken: Collection[str]) -> list[Node]:
    """The nodes with new ids where another text has theirs; ids that the caller gave stay."""
    return [
        replace(node, id=uuid4().hex) if node.id in taken and not is_given(node) else node
        for node in nodes
    ]
