"""Answers of a memory as nodes of LlamaIndex."""

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from llama_index.core.schema import NodeRelationship, NodeWithScore, RelatedNodeInfo, TextNode

from crabpath_retrievers.retrieval import Answer, RetrievedDocument
from crabpath_retrievers.retriever import to_documents
from llama_index.retrievers.crabpath.documents import BLOCK, CRABPATH

_LEAST = 1e-6  # LlamaIndex takes a score of 0 for none


class CrabPathNode(TextNode):
    """A node that equals the one that was indexed, whichever turn found it."""

    @property
    def hash(self) -> str:
        """Fingerprint of text and metadata without the turn: by it LlamaIndex tells nodes apart."""
        own = {key: value for key, value in self.metadata.items() if key != CRABPATH}
        identity = f"{self.text}{own}"
        return sha256(identity.encode("utf-8", "surrogatepass")).hexdigest()


def to_nodes(answer: Answer) -> list[NodeWithScore]:
    """The documents of an answer, best first, with scores in (0, 1]."""
    blocks = blocks_of(answer)
    return [
        NodeWithScore(node=_node(item, blocks[item.node.id]), score=score_of(item))
        for item in answer.documents
    ]


def blocks_of(answer: Answer) -> dict[str, dict[str, Any]]:
    """How each document of an answer was found, by node id: what LangChain users see, too."""
    documents = to_documents(answer)
    return {str(document.id): document.metadata[CRABPATH] for document in documents}


def score_of(item: RetrievedDocument) -> float:
    """Probability of relevance, in (0, 1]."""
    return max(item.score, _LEAST)


def hidden(keys: list[str]) -> list[str]:
    """Metadata keys that no model reads, the turn among them."""
    return keys if CRABPATH in keys else [*keys, CRABPATH]


def _node(item: RetrievedDocument, block: dict[str, Any]) -> CrabPathNode:
    metadata = dict(item.node.metadata)
    fields = dict(metadata.pop(BLOCK, {}))
    for key in fields.pop("added", ()):
        metadata.pop(key, None)
    metadata[CRABPATH] = block
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = hidden(fields.get(name, []))
    fields.setdefault("relationships", _source(item))
    return CrabPathNode(id_=item.node.id, text=item.node.content, metadata=metadata, **fields)


def _source(item: RetrievedDocument) -> Mapping[NodeRelationship, RelatedNodeInfo]:
    return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=item.node.document)}
