"""Reads the nodes and vectors of a ``VectorStoreIndex``."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from llama_index.core import VectorStoreIndex
from llama_index.core.schema import BaseNode, MetadataMode

from crabpath_retrievers import ConfigurationError, InvalidInputError

_PAGE = 1000


class SourceIndex:
    """The index that nodes of a memory were copied from."""

    def __init__(self, index: VectorStoreIndex, taken: Iterable[str]) -> None:
        """Remember the ids of the nodes ``taken`` from ``index``."""
        self.index, self.taken = index, set(taken)

    def filter_held(self, ids: Sequence[str]) -> set[str] | None:
        """Return the ids without those deleted from the index; None if it cannot tell."""
        taken = [name for name in ids if name in self.taken]
        there = _find_held(self.index.vector_store, taken)
        return None if there is None else set(ids) - (set(taken) - there)


def read_nodes(index: VectorStoreIndex) -> list[BaseNode]:
    """Read every node with text, from the document store, else from the vector store.

    Raises:
        InvalidInputError: ``index`` is not a ``VectorStoreIndex``.
        ConfigurationError: Neither can list its nodes.
    """
    if not isinstance(index, VectorStoreIndex):
        msg = (
            f"from_index reads a VectorStoreIndex, not {type(index).__name__}: "
            "pass its nodes to CrabPathRetriever.from_nodes"
        )
        raise InvalidInputError(msg)
    names = index.index_struct.nodes_dict.values()
    held = index.docstore.docs
    nodes = [held[name] for name in names if name in held] or _list_nodes(index.vector_store)
    # The document store keeps nodes that were deleted from the index only.
    there = _find_held(index.vector_store, [node.node_id for node in nodes])
    return [
        node
        for node in nodes
        if (there is None or node.node_id in there)
        and node.get_content(metadata_mode=MetadataMode.NONE).strip()
    ]


def read_vectors(index: VectorStoreIndex, nodes: Sequence[BaseNode]) -> dict[str, list[float]]:
    """Read vectors by node id; those that cannot be read must be computed again."""
    found = {node.node_id: node.embedding for node in nodes if node.embedding is not None}
    missing = [node.node_id for node in nodes if node.node_id not in found]
    return found | _read_vectors(index.vector_store, missing)


def _find_held(store: Any, names: Sequence[str]) -> set[str] | None:
    """Return the nodes that a vector store holds; None if it cannot tell."""
    held = getattr(getattr(store, "data", None), "embedding_dict", None)
    if isinstance(held, Mapping):  # SimpleVectorStore
        return {name for name in names if name in held}
    collection: Any = getattr(store, "client", None)
    try:
        if type(collection).__module__.startswith("chromadb"):
            found: set[str] = set()
            for start in range(0, len(names), _PAGE):
                part = list(names[start : start + _PAGE])
                found |= set(collection.get(ids=part, include=[])["ids"])
            return found
        nodes = store.get_nodes(list(names), None) if names else []
    except Exception:  # few stores can look up ids
        return None
    return {node.node_id for node in nodes} & set(names)


def _list_nodes(store: Any) -> Sequence[BaseNode]:
    try:
        nodes: Sequence[BaseNode] = store.get_nodes(None, None)
    except NotImplementedError as error:
        msg = (
            f"{type(store).__name__} cannot list its nodes: "
            "pass them to CrabPathRetriever.from_nodes"
        )
        raise ConfigurationError(msg) from error
    return nodes


def _read_vectors(store: Any, names: Sequence[str]) -> dict[str, list[float]]:
    held = getattr(getattr(store, "data", None), "embedding_dict", None)
    if isinstance(held, Mapping):  # SimpleVectorStore
        return {name: held[name] for name in names if name in held}
    collection = getattr(store, "client", None)
    if type(collection).__module__.startswith("chromadb"):
        return _read_chroma_vectors(collection, names)
    return {}


def _read_chroma_vectors(collection: Any, names: Sequence[str]) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for start in range(0, len(names), _PAGE):
        page = collection.get(ids=list(names[start : start + _PAGE]), include=["embeddings"])
        found |= zip(page["ids"], page["embeddings"], strict=True)
    return found
