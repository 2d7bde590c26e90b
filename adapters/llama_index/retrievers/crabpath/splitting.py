"""Adapts a node parser of LlamaIndex to a text splitter."""

from langchain_text_splitters import TextSplitter
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import MetadataMode


class NodeParserSplitter(TextSplitter):
    """Splits texts with a node parser.

    Chunks get ids derived from their text, so that documents can be updated. Ids and metadata of
    the parser's nodes are dropped; ``from_nodes`` keeps both.
    """

    def __init__(self, parser: NodeParser) -> None:
        """Split with ``parser``."""
        super().__init__()
        self._parser = parser

    def split_text(self, text: str) -> list[str]:
        """Return the texts of the parser's nodes."""
        nodes = self._parser.get_nodes_from_documents([LlamaDocument(text=text)])
        found = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        return [piece for piece in found if piece.strip()]
