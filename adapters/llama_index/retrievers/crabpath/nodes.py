"""Converts answers of a memory to nodes of LlamaIndex."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from llama_index.core.node_parser.text.sentence_window import (
    DEFAULT_OG_TEXT_METADATA_KEY,
    DEFAULT_WINDOW_METADATA_KEY,
)
from llama_index.core.schema import (
    BaseNode,
    ImageNode,
    IndexNode,
    MetadataMode,
    NodeRelationship,
    NodeWithScore,
    RelatedNodeInfo,
    TextNode,
)
from llama_index.core.storage.docstore.utils import json_to_doc

from crabpath_retrievers.integration import (
    METADATA_KEY,
    Answer,
    RetrievedDocument,
    remove_answer_metadata,
    to_documents,
)
from llama_index.retrievers.crabpath.documents import BLOCK, OF_INDEX, find_class

_WINDOWS = (DEFAULT_WINDOW_METADATA_KEY, DEFAULT_OG_TEXT_METADATA_KEY)
_LEAST = 1e-6  # LlamaIndex treats a score of 0 as missing


class ReturnedNode(BaseNode):
    """A node that equals every node with its id and text, whichever turn returned it."""

    @property
    def hash(self) -> str:
        """Hash of the node without the turn, by which LlamaIndex identifies nodes."""
        own = remove_answer_metadata(self.metadata)
        hashed: str = super(ReturnedNode, self.model_copy(update={"metadata": own})).hash  # type: ignore[safe-super]
        return hashed

    def __eq__(self, other: object) -> bool:
        """Whether the other one is a node of this id and text."""
        if not isinstance(other, BaseNode):
            return NotImplemented
        return _identify(self) == _identify(other)

    def __hash__(self) -> int:
        """Hash id and text."""
        return hash(_identify(self))


class CrabPathNode(ReturnedNode, TextNode):
    """A returned text."""


class CrabPathIndexNode(ReturnedNode, IndexNode):
    """A returned node that leads to an index, a retriever or another node."""


class CrabPathImageNode(ReturnedNode, ImageNode):
    """A returned picture."""


def _identify(node: BaseNode) -> tuple[str, str]:
    return node.node_id, node.get_content(metadata_mode=MetadataMode.NONE)


@cache
def _make_class(kind: type[BaseNode]) -> type[BaseNode]:
    """Make the class of returned nodes for a class of nodes."""
    for known in (CrabPathNode, CrabPathIndexNode, CrabPathImageNode):
        if known.__mro__[2] is kind:
            return known
    return type(f"CrabPath{kind.__name__}", (ReturnedNode, kind), {"__module__": __name__})


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


def _make_node(item: RetrievedDocument, block: dict[str, Any]) -> BaseNode:
    metadata = dict(item.node.metadata)
    # What another host's documents have under this key is theirs.
    fields = dict(metadata.pop(BLOCK)) if isinstance(metadata.get(BLOCK), dict) else {}
    for key in fields.pop("added", ()):
        metadata.pop(key, None)
    fields.pop(OF_INDEX, None)
    blank: list[str] = []
    if not item.node.document:
        # MetadataReplacementPostProcessor would replace the text of a note by nothing.
        metadata |= {key: item.node.content for key in _WINDOWS if metadata.get(key) == ""}
        blank = [key for key, value in metadata.items() if value == ""]
    metadata[METADATA_KEY] = block
    for name in ("excluded_llm_metadata_keys", "excluded_embed_metadata_keys"):
        fields[name] = hide_block([*fields.get(name, []), *blank])
    fields.setdefault("relationships", _make_source(item))
    made = _restore(find_class(fields.pop("class", None)), item.node.id, metadata, fields)
    made.set_content(item.node.content)
    return made


def _restore(
    kind: type[BaseNode], node_id: str, metadata: dict[str, Any], fields: dict[str, Any]
) -> BaseNode:
    if fields.get("obj") is not None:
        fields["obj"] = json_to_doc(fields["obj"])
    try:
        return _make_class(kind)(id_=node_id, metadata=metadata, **fields)
    except (TypeError, ValueError):  # the class has changed since
        kept = {name: value for name, value in fields.items() if name in TextNode.model_fields}
        return CrabPathNode(id_=node_id, metadata=metadata, **kept)


def _make_source(item: RetrievedDocument) -> Mapping[NodeRelationship, RelatedNodeInfo]:
    return {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=item.node.document)}
