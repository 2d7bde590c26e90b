"""Adapts embedding models of LlamaIndex to LangChain's ``Embeddings``."""

from typing import Any

from langchain_core.embeddings import Embeddings
from llama_index.core import Settings
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.embeddings import resolve_embed_model

from crabpath_retrievers import ConfigurationError, InvalidInputError

EmbedModel = BaseEmbedding | Embeddings | str | None


_OWN_NAMES = ("local", "clip", "default")  # how LlamaIndex's own names of models begin


class LlamaIndexEmbeddings(Embeddings):
    """A LlamaIndex embedding model as LangChain ``Embeddings``.

    Documents go through ``get_text_embedding_batch``, queries through ``get_query_embedding``, so
    that the model's own instructions, batches, caches and rate limits apply. Async calls use the
    model's async methods: one that blocks there blocks the event loop.
    """

    def __init__(self, embed_model: BaseEmbedding) -> None:
        """Adapt ``embed_model``."""
        self.embed_model = embed_model

    @property
    def model_name(self) -> str:
        """Name of the model, or of its class if it has none."""
        name = self.embed_model.model_name
        return name if name and name != "unknown" else self.embed_model.class_name()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Embed texts; each vector has shape ``[d]``."""
        return self.embed_model.get_text_embedding_batch(texts)

    def embed_query(self, text: str) -> list[float]:
        """Embed a query, shape ``[d]``."""
        return self.embed_model.get_query_embedding(text)

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        """As :meth:`embed_documents`, by the model's own async method."""
        return await self.embed_model.aget_text_embedding_batch(texts)

    async def aembed_query(self, text: str) -> list[float]:
        """As :meth:`embed_query`, by the model's own async method."""
        return await self.embed_model.aget_query_embedding(text)


def convert_embed_model(embed_model: EmbedModel) -> Embeddings | str | None:
    """Convert the ``embed_model`` of a LlamaIndex user to LangChain embeddings.

    Args:
        embed_model: A LlamaIndex model, LangChain embeddings, or a name: ``"local:…"`` of
            LlamaIndex, else the ``"provider:model"`` of ``CrabPath.open``, which stays a text;
            None for ``Settings.embed_model`` if the program has set it, else for CrabPath's own
            default. LlamaIndex's default, which calls OpenAI, is never used unasked.
    """
    if embed_model is None:
        # Settings.embed_model would create the default model.
        embed_model = getattr(Settings, "_embed_model", None)
    if embed_model is None or isinstance(embed_model, Embeddings):
        return embed_model
    if isinstance(embed_model, str) and not embed_model.startswith(_OWN_NAMES):
        return embed_model
    resolved: Any = embed_model
    if isinstance(embed_model, str):
        try:
            resolved = resolve_embed_model(embed_model)
        except (ImportError, ValueError) as error:
            msg = (
                f"embed_model={embed_model!r} cannot be made: install "
                "llama-index-embeddings-huggingface and what it needs, give "
                "'huggingface:MODEL', or leave embed_model out for all-MiniLM-L6-v2"
            )
            raise ConfigurationError(msg) from error
    if not isinstance(resolved, BaseEmbedding):
        msg = (
            f"embed_model cannot be a {type(embed_model).__name__}: "
            "pass a LlamaIndex embedding model or LangChain embeddings"
        )
        raise InvalidInputError(msg)
    return LlamaIndexEmbeddings(resolved)
