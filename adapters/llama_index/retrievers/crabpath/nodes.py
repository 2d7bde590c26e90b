"""Converts answers of a memory to nodes of LlamaIndex."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from llama_index.core.node_parser.text.sentence_window import (
    DEFAULT_OG_TEXT_METADATA_KEY,
    DEFAULT_WINDOW_METADATA_KEY,
)
from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from crabpath_retrievers.integration import (
    METADATA_KEY,
    Answer,
    RetrievedDocument,
    remove_answer_metadata,
    to_documents,
)
from llama_index.retrievers.crabpath.documents import BLOCK

_WINDOWS = (DEFAULT_WINDOW_METADATA_KEY, DEFAULT_OG_TEXT_METADATA_KEY)
_LEAST = 1e-6  # LlamaIndex treats a score of 0 as missing


class CrabPathNode(TextNode):
    """A node that equals every node with its id and text, whichever turn returned it."""

    @property
    def hash(self) -> str:
        """Hash of text and metadata without the turn, by which LlamaIndex identifies nodes."""
        identity = f"{self.text}{remove_answer_metadata(self.metadata)}"
        return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()

    def __eq__(self, other: object) -> bool:
        """Whether the other one is a node of this id and text."""
        if not isinstance(other, TextNode):
            return NotImplemented
        return (self.node_id, self.text) == (other.node_id, other.text)

    def __hash__(self) -> int:
        """By id and text."""
        return hash((self.node_id, self.text))


def to_nodes(answer: Answer) -> list[NodeWithScore]:
    """Convert the documents of an answer, best first, with scores in (0, 1]."""
    blocks = make_blocks(answer)
    return [
        NodeWithScore(node=_make_node(item, blocks[item.node.id]), score=get_score(item))
        for item in answer.documents
    ]


def make_blocks(answer: Answer) -> dict[str, dict[str, Any]]:
    """Return the ``crabpath`` metadata of each document by node id, as for LangChain."""
    documents = to_documents(answer)
    return {str(document.id): document.metadata[METADATA_KEY] for document in documents}


def get_score(item: RetrievedDocument) -> float:
    """Return the probability of relevance, in (0, 1]."""
    return max(item.score, _LEAST)


def hide_block(keys: list[str]) -> list[str]:
    """Add the ``crabpath`` key to metadata keys that are hidden from models."""
    return keys if METADATA_KEY in keys else [*keys, METADATA_KEY]


def _make_node(item: RetrievedDocument, block: dict[str, Any]) -> CrabPathNode:
    metadata = dict(item.node.metadata)
    fields = dict(metadata.pop(BLOCK, None) or {})
    for key in fields.pop("added", ()):
        metadata.pop(key, None)
    blank: list[str] = []
    if not item.node.document:
        # MetadataReplacementPostProcessor would replace the text of a note by nothing.
        metadata |= {key: item.node.content for key in _WINDOWS if metadata.get(key) == ""}
        blank = [key for key, value in metadata.items() if value == ""]
    metadata[METADATA_KEY] = block
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = hide_block([*fields.get(name, []), *blank])
    fields.setdefault("relationships", _make_source(item))
    return CrabPathNode(id_=item.node.id, text=item.node.content, metadata=metadata, **fields)


def _make_source(item: RetrievedDocument) -> Mapping[NodeRelationship, RelatedNodeInfo]:
    return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=item.node.document)}
