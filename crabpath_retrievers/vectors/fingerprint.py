"""Checking that a store is used with the embedder that it was built with."""

import base64
import json
import threading
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.core.changes import PutMeta
from crabpath_retrievers.core.graph import Vector
from crabpath_retrievers.errors import EmbeddingMismatchError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.embedder import Embedder, require_same_embedder


class _Stored(NamedTuple):
    model: str
    probe: Vector


class EmbedderFingerprint:
    """The embedder of a store: its name and its vector of one fixed sentence."""

    def __init__(self, store: GraphStore, embedder: Embedder) -> None:
        """Compare ``embedder`` with the one recorded in ``store``."""
        self._store, self._embedder = store, embedder
        self._lock = threading.Lock()
        self._stored: _Stored | None = None
        self._is_same = False

    def fits(self, vector: Vector | None) -> bool:
        """Whether the embedder is verified; or, for a query vector, whether its dimension fits."""
        if vector is None:
            return self._is_same
        return self._stored is not None and vector.shape == self._stored.probe.shape

    def verify(self, vector: Vector | None = None) -> None:
        """Compare the embedder with the recorded one, once; without one, record this one.

        Args:
            vector: Query vector used instead of the embedder, shape ``[d]``.

        Raises:
            EmbeddingMismatchError: The embedder or the dimension of the vector differs.
        """
        with self._lock:
            self._stored = self._stored or self._read_stored()
            if vector is not None:
                _require_size(self._stored, vector)
            elif not self._is_same:
                self._compare(self._stored)

    def require_size(self, vectors: Iterable[Vector]) -> None:
        """Refuse vectors ``[d]`` of other dimensions than the store's.

        Raises:
            EmbeddingMismatchError: A vector has another dimension.
        """
        size = json.loads(self._store.catalog.meta()["embedder"])["dimension"]
        for vector in vectors:
            if vector.size != size:
                msg = (
                    f"a vector given has {vector.size} dimensions, the memory {size}: "
                    "pass the embedder that made the vectors"
                )
                raise EmbeddingMismatchError(msg)

    def embed_text(self, text: str) -> Vector:
        """Unit vector of a text, shape ``[d]``, by the embedder that the store was built with.

        Raises:
            EmbeddingMismatchError: The embedder differs from the recorded one.
        """
        self.verify()
        return self._embedder.documents([text])[0]

    def _compare(self, stored: _Stored | None) -> None:
        probe, model = self._embedder.fingerprint(), self._embedder.model
        if stored:
            require_same_embedder(stored.probe, probe, stored_model=stored.model, model=model)
            self._is_same = True
        else:
            self._store.apply([PutMeta((("embedder", _encode(model, probe)),))])

    def _read_stored(self) -> _Stored | None:
        """The recorded embedder; None before the first document or note."""
        meta = self._store.catalog.meta()
        if "embedder" not in meta or not {"nodes", "notes"} & set(meta):
            return None
        data = json.loads(meta["embedder"])
        return _Stored(data["model"], np.frombuffer(base64.b64decode(data["probe"]), dtype="<f4"))


def _require_size(stored: _Stored | None, vector: Vector) -> None:
    if stored and vector.shape != stored.probe.shape:
        msg = (
            f"the query vector has {vector.size} dimensions, the memory {stored.probe.size}: "
            "use the embedder that the memory was built with"
        )
        raise EmbeddingMismatchError(msg)


def _encode(model: str, probe: Vector) -> str:
    data = base64.b64encode(probe.astype("<f4").tobytes()).decode()
    return json.dumps({"model": model, "dimension": int(probe.size), "probe": data})
