"""Embedders of tests that change the embedder: texts with the same words are near."""

import hashlib
from functools import lru_cache

import numpy as np
from langchain_core.embeddings import Embeddings


class WordSums(Embeddings):
    """Sums a fixed random direction per word; another seed or size is another model."""

    def __init__(self, size, *, seed=0, fails_after=None):
        """Fail after so many texts, unless that is None."""
        self.size, self.seed, self.left = size, seed, fails_after
        self.model = f"words-{size}-{seed}"
        self.meanwhile = lambda: None

    def embed_documents(self, texts):
        """Vectors of texts; calls ``meanwhile`` first."""
        self.meanwhile()
        return [self.embed_query(text) for text in texts]

    def embed_query(self, text):
        """The vector of a text."""
        if self.left is not None:
            self.left -= 1
            if self.left < 0:
                raise ConnectionError(self.model)
        words = "".join(c if c.isalnum() else " " for c in text.lower()).split()
        parts = [make_direction(self.size, self.seed, word) for word in words]
        return sum(parts, np.full(self.size, 1e-3)).tolist()


@lru_cache(maxsize=10_000)
def make_direction(size, seed, word):
    """The direction of a word."""
    digest = hashlib.sha256(f"{seed} {word}".encode()).digest()
    return np.random.default_rng(int.from_bytes(digest[:8], "big")).standard_normal(size)
