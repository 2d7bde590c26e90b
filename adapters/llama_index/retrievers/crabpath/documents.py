"""Documents and nodes of LlamaIndex, as a memory takes them."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from langchain_core.documents import Document
from langchain_text_splitters import TextSplitter
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import BaseNode, MetadataMode, TextNode
from llama_index.core.schema import Document as LlamaDocument
from typing_extensions import TypedDict

from crabpath_retrievers import InvalidInputError
from crabpath_retrievers.integration import own_metadata
from llama_index.retrievers.crabpath.splitting import NodeParserSplitter

BLOCK = "llama_index"
"""Metadata key of what a node has beside its text and metadata, so that it comes back whole."""

_ELSEWHERE = {"id_", "embedding", "metadata", "text"}
_FIELDS = set(TextNode.model_fields) - _ELSEWHERE
_SHARED = _FIELDS - {"relationships", "start_char_idx", "end_char_idx"}
_SOURCES = ("source", "file_path")


class Given(TypedDict, total=False):
    """Arguments of the memory's ``add_documents``."""

    documents: list[Document]
    splitter: TextSplitter | None
    split: bool
    vectors: Mapping[str, Sequence[float]]


def wholes(documents: Iterable[LlamaDocument], parser: NodeParser | None) -> Given:
    """Documents that the memory cuts into chunks, where the parser cuts them if there is one."""
    splitter = None if parser is None else NodeParserSplitter(parser)
    return {"documents": [from_document(item) for item in documents], "splitter": splitter}


def chunks(nodes: Sequence[BaseNode], embeddings: Mapping[str, Sequence[float]]) -> Given:
    """Nodes that are chunks already, with the embeddings that are known of them."""
    carried = {node.node_id: node.embedding for node in nodes if node.embedding is not None}
    return {
        "documents": [from_node(node) for node in nodes],
        "split": False,
        "vectors": {**carried, **embeddings},
    }


def from_document(document: LlamaDocument) -> Document:
    """A document that the memory will cut into chunks.

    An id that LlamaIndex made up differs at every load, so it names nothing: such a document is
    told apart by source, text and metadata.
    """
    given = None if _is_generated(document.id_) else document.id_
    return _make_document(document, given, None, _SHARED)


def from_node(node: BaseNode) -> Document:
    """A chunk under the id of the node; nodes of one document become siblings."""
    return _make_document(node, node.node_id, node.ref_doc_id, _FIELDS)


def checked(given: Iterable[Any], kind: type[Any]) -> list[Any]:
    """What was given, if all of it is of one kind of node.

    Raises:
        InvalidInputError: Something else is among it.
    """
    found = list(given)
    for item in found:
        if not isinstance(item, kind):
            msg = f"expected a LlamaIndex {kind.__name__}, got {type(item).__name__}"
            raise InvalidInputError(msg)
    return found


def _make_document(
    node: BaseNode, name: str | None, source: str | None, fields: set[str]
) -> Document:
    # Of a node that CrabPath found once, the turn is no part.
    metadata = own_metadata(node.metadata)
    dumped = node.model_dump(
        mode="json",
        exclude={"embedding": True, "relationships": {"__all__": {"metadata"}}},
        exclude_defaults=True,
    )
    block = {name: value for name, value in dumped.items() if name in fields}
    source = next((str(metadata[key]) for key in _SOURCES if metadata.get(key)), source)
    if source and "source" not in metadata:
        metadata["source"] = source
        block["added"] = ["source"]
    if block:
        metadata[BLOCK] = block
    return Document(
        id=name, page_content=node.get_content(metadata_mode=MetadataMode.NONE), metadata=metadata
    )


def _is_generated(name: str) -> bool:
    try:
        return uuid.UUID(name).version == 4  # noqa: PLR2004  random ones
    except ValueError:
        return False
