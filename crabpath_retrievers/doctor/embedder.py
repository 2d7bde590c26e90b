"""Checks of the embedder that a store was built with."""

import base64
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.doctor.finding import Finding
from crabpath_retrievers.errors import CrabPathError, EmbeddingMismatchError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.seeds.embedder import DEFAULT_MODEL, Embedder, require_same_embedder
from crabpath_retrievers.storage.readonly import ReadOnlyStore

_REBUILD = "add the documents again to a new directory, with one embedder"


class _StoredIdentity(NamedTuple):
    model: str
    probe: Vector


def check_embedder(store: ReadOnlyStore, embeddings: Any = None) -> Iterator[Finding]:
    """Check that the stored fingerprint fits the stored vectors and the embedder in use.

    Args:
        store: The store, opened for reading.
        embeddings: The embedder to use with it; None for the default one of the commands.
    """
    meta = store.checks.meta()
    if not {"nodes", "notes"} & set(meta):  # nothing was ever embedded
        return
    try:
        identity = _parse_identity(meta["embedder"])
    except (KeyError, TypeError, ValueError):
        message = "the store does not record which embedder it was built with"
        yield Finding("embedder", "error", message, _REBUILD)
        return
    if other := store.checks.count_other_dimensions(identity.probe.size):
        message = (
            f"the dimension of {other} vectors is not {identity.probe.size}, that of "
            f"{identity.model!r}"
        )
        yield Finding("embedder", "error", message, _REBUILD)
    if embeddings is None and identity.model != DEFAULT_MODEL:
        yield Finding(
            "embedder",
            "warning",
            f"the store was built with {identity.model!r}; `crabpath add` and `crabpath query` "
            f"use {DEFAULT_MODEL!r} and refuse this store",
            "open it from Python: CrabPath.open(path, embeddings=...)",
        )
        return
    yield from _compare(identity, Embedder(embeddings))


def _parse_identity(text: str) -> _StoredIdentity:
    data = json.loads(text)
    probe = np.frombuffer(base64.b64decode(data["probe"]), dtype="<f4")
    return _StoredIdentity(str(data["model"]), probe)


def _compare(identity: _StoredIdentity, at_hand: Embedder) -> Iterator[Finding]:
    try:
        require_same_embedder(
            identity.probe,
            at_hand.fingerprint(),
            stored_model=identity.model,
            model=at_hand.model,
        )
    except EmbeddingMismatchError as error:
        fix = "open the store with the embedder that it was built with"
        yield Finding("embedder", "error", str(error), fix)
    except CrabPathError as error:
        yield Finding(
            "embedder", "info", f"the embedder was not checked: {error}", "see the message"
        )
    except Exception as error:
        message = f"the embedder does not answer ({type(error).__name__}: {error!s:.200})"
        yield Finding("embedder", "warning", message, "check its service and its key")
