"""What a ``QueryBundle`` asks for beside its text."""

import numpy as np
from llama_index.core.schema import QueryBundle

from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.embedder import Embedder


def strings_to_embed(bundle: QueryBundle) -> list[str]:
    """Texts that are embedded in place of the query, as HyDE gives them; empty for itself."""
    given = bundle.custom_embedding_strs or []
    return [] if bundle.embedding is not None or given == [bundle.query_str] else list(given)


def mean_embedding(texts: list[str], embedder: Embedder) -> Vector:
    """Mean of the unit vectors of texts, shape ``[d]``: LlamaIndex's own way to join them."""
    mean: Vector = np.mean([embedder.query(text) for text in texts], axis=0)
    return mean
