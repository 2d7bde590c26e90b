"""CrabPath in LlamaIndex: a retriever, a node post-processor, a memory block and outcome events."""

from crabpath_retrievers import MissingExtraError

try:
    import llama_index.core  # noqa: F401  only to say which extra is missing
except ImportError as error:
    msg = "LlamaIndex is not installed: pip install 'crabpath-retrievers[llama-index]'"
    raise MissingExtraError(msg) from error

from llama_index.retrievers.crabpath.chat_model import LlamaIndexChatModel
from llama_index.retrievers.crabpath.embeddings import LlamaIndexEmbeddings
from llama_index.retrievers.crabpath.events import CrabPathEventHandler
from llama_index.retrievers.crabpath.memory_block import CrabPathMemoryBlock
from llama_index.retrievers.crabpath.reranker import CrabPathReranker
from llama_index.retrievers.crabpath.responses import record, turns_of
from llama_index.retrievers.crabpath.retriever import CrabPathRetriever

__all__ = [
    "CrabPathEventHandler",
    "CrabPathMemoryBlock",
    "CrabPathReranker",
    "CrabPathRetriever",
    "LlamaIndexChatModel",
    "LlamaIndexEmbeddings",
    "record",
    "turns_of",
]
