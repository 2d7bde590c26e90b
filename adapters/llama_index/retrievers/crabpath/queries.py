"""Retrieves for a ``QueryBundle``."""

from contextlib import suppress
from typing import Any

import numpy as np
from llama_index.core.schema import QueryBundle

from crabpath_retrievers import CrabPath, InvalidInputError
from crabpath_retrievers.integration import (
    Answer,
    Embedder,
    Operations,
    QueryOptions,
    Vector,
    perform,
    perform_sync_or_async,
)


def retrieve_bundle(
    memory: CrabPath, bundle: QueryBundle, options: QueryOptions
) -> Operations[Answer]:
    """Retrieve for a bundle, with its embedding or the mean of its embedding strings."""
    vector: Any = bundle.embedding
    if texts := _strings_to_embed(bundle):
        vector = yield from perform(_mean_embedding, texts, memory.embedder)
    given: QueryOptions = {**options, "vector": vector}
    answer = yield from perform_sync_or_async(
        lambda: memory.retrieve(bundle.query_str, **given),
        lambda: memory.aio.retrieve(bundle.query_str, **given),
    )
    return answer


def _strings_to_embed(bundle: QueryBundle) -> list[str]:
    """Return texts to embed instead of the query, such as those of HyDE; empty for none."""
    given = bundle.custom_embedding_strs or []
    return [] if bundle.embedding is not None or given == [bundle.query_str] else list(given)


def _mean_embedding(texts: list[str], embedder: Embedder) -> Vector | None:
    """Average the unit vectors of texts, shape ``[d]``, as LlamaIndex does.

    Texts without a usable vector do not count; None where all are.
    """
    vectors = []
    for text in texts:
        with suppress(InvalidInputError):
            vectors.append(embedder.query(text))
    return np.mean(vectors, axis=0) if vectors else None
