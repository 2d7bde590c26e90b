"""What models expect before a text: the prefixes and instructions that their makers document.

Without them such a model finds less. Each is quoted from the card of the model on the Hugging Face
hub: ``intfloat/e5-base-v2``, ``intfloat/multilingual-e5-large-instruct``,
``BAAI/bge-base-en-v1.5``, ``BAAI/bge-base-zh-v1.5``, ``mixedbread-ai/mxbai-embed-large-v1``,
``WhereIsAI/UAE-Large-V1``, ``Snowflake/snowflake-arctic-embed-m``,
``Snowflake/snowflake-arctic-embed-m-v2.0``, ``nomic-ai/nomic-embed-text-v1.5``,
``Qwen/Qwen3-Embedding-0.6B``, ``Alibaba-NLP/gte-Qwen2-1.5B-instruct`` and
``google/embeddinggemma-300m``. ``gte-base``, ``bge-m3``, ``all-MiniLM`` and others have none.
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from langchain_core.embeddings import Embeddings


class Prefixes(NamedTuple):
    """Texts written before a question and before a text of a document."""

    query: str = ""
    document: str = ""


LOCAL_CLASS = "HuggingFaceEmbeddings"
"""LangChain's class of models that compute in this process."""

_SEARCH = "Represent this sentence for searching relevant passages: "
_TASK = "Instruct: Given a web search query, retrieve relevant passages that answer the query\n"
_KNOWN = (  # the first that fits the name in lower case counts
    (r"e5-.*instruct", Prefixes(f"{_TASK}Query: ")),
    (r"(?<![a-z0-9])e5-", Prefixes("query: ", "passage: ")),
    (r"gte-qwen", Prefixes(f"{_TASK}Query: ")),
    (r"qwen3-embedding", Prefixes(f"{_TASK}Query:")),
    (r"bge-(small|base|large)-zh", Prefixes("为这个句子生成表示以用于检索相关文章：")),
    (r"bge-(small|base|large)|mxbai-embed-large|uae-large", Prefixes(_SEARCH)),
    (r"arctic-embed2|arctic-embed.*v2", Prefixes("query: ")),
    (r"arctic-embed", Prefixes(_SEARCH)),
    (r"nomic-embed-text", Prefixes("search_query: ", "search_document: ")),
    (r"embeddinggemma", Prefixes("task: search result | query: ", "title: none | text: ")),
)
# Classes that pass texts on as they are; others, such as NomicEmbeddings, add what is needed.
_PLAIN = frozenset(
    {
        LOCAL_CLASS,
        "HuggingFaceEndpointEmbeddings",
        "InfinityEmbeddings",
        "LlamaCppEmbeddings",
        "OllamaEmbeddings",
        "OpenAIEmbeddings",
        "XinferenceEmbeddings",
    }
)
_OWN = ("prompt", "prompt_name")  # arguments by which sentence-transformers writes one itself


def is_of_class(embeddings: Embeddings, names: frozenset[str]) -> bool:
    """Whether an embedder is of one of the classes with these names, or of a subclass."""
    return any(base.__name__ in names for base in type(embeddings).__mro__)


def find_prefixes(embeddings: Embeddings, model: str) -> Prefixes:
    """Prefixes that an embedder must be given: none if it adds them itself.

    Args:
        embeddings: The embedder.
        model: Name of its model.
    """
    if not is_of_class(embeddings, _PLAIN):
        return Prefixes()
    name = model.lower()
    known = next((found for sign, found in _KNOWN if re.search(sign, name)), Prefixes())
    return _leave_own(embeddings, known)


def _leave_own(embeddings: Any, known: Prefixes) -> Prefixes:
    """The prefixes that sentence-transformers does not write itself.

    A model may bring its own as ``prompts``, which are used only where an argument names them.
    """
    client = getattr(embeddings, "_client", None)
    prompts = getattr(client, "prompts", None)
    if isinstance(prompts, Mapping) and any(prompts.values()):
        named = prompts.get("document") or prompts.get("passage") or ""
        known = Prefixes(prompts.get("query") or "", named)
    if getattr(client, "default_prompt_name", None):
        return Prefixes()
    of_documents = getattr(embeddings, "encode_kwargs", None) or {}
    of_queries = getattr(embeddings, "query_encode_kwargs", None) or of_documents
    return Prefixes(
        "" if any(name in of_queries for name in _OWN) else known.query,
        "" if any(name in of_documents for name in _OWN) else known.document,
    )
