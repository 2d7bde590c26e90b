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
    """Read every node with text, from the document store, else from the vector store."""
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
    return found | (_look_up(index.vector_store, missing, vectors=True) or {})


def _find_held(store: Any, names: Sequence[str]) -> set[str] | None:
    """Return the nodes that a vector store holds; None if it cannot tell."""
    try:
        found = _look_up(store, names, vectors=False)
        if found is None:
            nodes = store.get_nodes(list(names), None) if names else []
            found = {node.node_id: None for node in nodes}
    except Exception:  # few stores can look up ids
        return None
    return found.keys() & set(names)


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


def _look_up(store: Any, names: Sequence[str], *, vectors: bool) -> dict[str, Any] | None:
    """Look nodes up in a simple store or in Chroma, by id; None for any other store."""
    held = getattr(getattr(store, "data", None), "embedding_dict", None)
    if isinstance(held, Mapping):  # SimpleVectorStore
        return {name: held[name] for name in names if name in held}
    collection: Any = getattr(store, "client", None)
    if not type(collection).__module__.startswith("chromadb"):
        return None
    found: dict[str, Any] = {}
    for start in range(0, len(names), _PAGE):
        include = ["embeddings"] if vectors else []
        page = collection.get(ids=list(names[start : start + _PAGE]), include=include)
        found |= zip(page["ids"], page["embeddings"] if vectors else page["ids"], strict=True)
    return found
