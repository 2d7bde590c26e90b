"""A node parser of LlamaIndex as the splitter of a memory."""

from langchain_text_splitters import TextSplitter
from llama_index.core.node_parser import NodeParser
from llama_index.core.schema import Document as LlamaDocument
from llama_index.core.schema import MetadataMode


class NodeParserSplitter(TextSplitter):
    """Cuts texts where a node parser cuts them.

    Chunks get ids from their text, so that documents can be updated: the made-up ids of the
    parser's nodes, and metadata that it writes, are not kept. ``from_nodes`` keeps both.
    """

    def __init__(self, parser: NodeParser) -> None:
        """Cut with ``parser``."""
        super().__init__()
        self._parser = parser

    def split_text(self, text: str) -> list[str]:
        """The texts of the nodes."""
        nodes = self._parser.get_nodes_from_documents([LlamaDocument(text=text)])
        found = [node.get_content(metadata_mode=MetadataMode.NONE) for node in nodes]
        return [piece for piece in found if piece.strip()]
