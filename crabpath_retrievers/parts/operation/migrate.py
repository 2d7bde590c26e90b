"""Copies a whole memory to another database, or its vectors to another index."""

import json
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from crabpath_retrievers.core.query import is_url
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.parts.operation.transfer.export import open_dump
from crabpath_retrievers.parts.operation.transfer.fill import ImportResult
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.storage.database import parse_url
from crabpath_retrievers.vectors.opening import place_of, require_existing


def migrate(
    source: str | Path,
    destination: str | Path,
    *,
    vectors: Any = None,
) -> ImportResult:
    """Copy a memory to another location; the source is not changed.

    A snapshot of the graph store is copied in one transaction; then its vectors are indexed. If
    the copy is interrupted before the transaction ends, nothing was copied; later, the next open
    of the destination or a repeated call finishes it. With the same location twice only the
    vectors are copied: to another directory, or from an embedded Chroma to a server.

    Args:
        source: Directory or database URL.
        destination: Directory or database URL without a memory; or ``source`` again.
        vectors: New location of the vectors, see :meth:`CrabPath.open`.

    Raises:
        NotFoundError: There is no memory at ``source``.
        InvalidInputError: The destination holds another memory, or other vectors.
        StoreError: An ingest of the source is unfinished, or a store failed.
    """
    place, goal = place_of(source), place_of(destination)
    require_existing(place)
    if _is_same_place(place, goal):
        return _reindex(goal, vectors)
    with closing(GraphStore(place)) as store, open_dump(store) as dump:
        known = [store.name, dump.counts(), dump.get_last_keys()]
        origin = sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        with CrabPath.open(goal, vectors=vectors) as memory:
            return memory.transfer.copy_from(dump, origin)


def _is_same_place(place: str, goal: str) -> bool:
    if is_url(place) or is_url(goal):
        return is_url(place) and is_url(goal) and parse_url(place) == parse_url(goal)
    return Path(place).resolve() == Path(goal).resolve()


def _reindex(place: str, vectors: Any) -> ImportResult:
    if vectors is None:
        msg = "source and destination are the same: pass vectors, the new location of the vectors"
        raise InvalidInputError(msg)
    with CrabPath.open(place, vectors=vectors, create=False, reindex=True) as memory:
        return ImportResult(None, {"vectors": memory.index.count()})
