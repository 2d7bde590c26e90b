"""Assigns chunks the ids under which the store holds them already.

A new chunk gets an id derived from its document and text, or also from its metadata where the
document repeats the text. A sync keeps that id when the text is edited or moved, so an unchanged
text is recognised by document and digest, not by its id alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from uuid import uuid4

from crabpath_retrievers.core.graph import Node
from crabpath_retrievers.ingest.chunking import make_metadata_id
from crabpath_retrievers.storage.read.catalog import StoredChunk


def has_caller_id(node: Node | StoredChunk) -> bool:
    """Whether the caller chose the id: then a whole document is one node with the document's id."""
    return node.id == node.document


def find_id_conflicts(nodes: Sequence[Node], known: Mapping[str, StoredChunk]) -> list[Node]:
    """Find nodes whose derived id belongs to a different text in the store.

    Args:
        nodes: Chunks with ids derived from document and text.
        known: Stored nodes with these ids or of the same documents, by id.

    Returns:
        Nodes that are not stored unchanged, and whose id is taken.
    """
    held = {(node.document, node.digest) for node in known.values()}
    return [
        node
        for node in nodes
        if node.id in known and not has_caller_id(node) and (node.document, node.digest) not in held
    ]


def assign_stored_ids(
    nodes: Sequence[Node], known: Mapping[str, StoredChunk], kept: Mapping[str, Node]
) -> list[Node]:
    """Return the nodes with their final ids.

    Args:
        nodes: Chunks with ids derived from document and text.
        known: Stored nodes with the ids that the chunks have or may get, or of the same
            documents, by id.
        kept: Those of ``known`` that this ingest does not replace, by id.

    Returns:
        The nodes in the same order. An unchanged chunk has its stored id; a new chunk whose id
        is taken by another text has a new id.
    """
    held = {(node.document, node.digest): node.id for node in known.values()}
    own = [
        node.id if has_caller_id(node) else held.get((node.document, node.digest)) for node in nodes
    ]
    taken = set(own)

    def is_free(name: str, node: Node) -> bool:
        if name not in known:
            return True
        if known[name].document != node.document or name in taken:
            return False
        return name not in kept or make_metadata_id(kept[name]) == make_metadata_id(node)

    def choose_id(node: Node) -> str:
        names = (node.id, make_metadata_id(node))
        return next((name for name in names if is_free(name, node)), uuid4().hex)

    found = [(node, own_id or choose_id(node)) for node, own_id in zip(nodes, own, strict=True)]
    return [node if node.id == name else replace(node, id=name) for node, name in found]
