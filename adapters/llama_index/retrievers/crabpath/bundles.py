"""Asking a memory what a ``QueryBundle`` asks for."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from llama_index.core.schema import QueryBundle

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.driver import Steps, perform, perform_either
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.retrieval import Answer
from crabpath_retrievers.seeds.embedder import Embedder


def asked(memory: CrabPath, bundle: QueryBundle, options: Mapping[str, Any]) -> Steps[Answer]:
    """Retrieve for a bundle, with the embedding that it carries or asks for.

    Args:
        memory: Answers.
        bundle: What is asked.
        options: Fields of :class:`~crabpath_retrievers.query.Query`.
    """
    vector: Any = bundle.embedding
    if texts := _strings_to_embed(bundle):
        vector = yield from perform(_mean_embedding, texts, memory.embedder)
    given = {**options, "vector": vector}
    answer = yield from perform_either(
        lambda: memory.retrieve(bundle.query_str, **given),
        lambda: memory.aio.retrieve(bundle.query_str, **given),
    )
    return answer


def _strings_to_embed(bundle: QueryBundle) -> list[str]:
    """Texts that are embedded in place of the query, as HyDE gives them; empty for itself."""
    given = bundle.custom_embedding_strs or []
    return [] if bundle.embedding is not None or given == [bundle.query_str] else list(given)


def _mean_embedding(texts: list[str], embedder: Embedder) -> Vector:
    """Mean of the unit vectors of texts, shape ``[d]``: LlamaIndex's own way to join them."""
    mean: Vector = np.mean([embedder.query(text) for text in texts], axis=0)
    return mean
