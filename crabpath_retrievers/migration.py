"""Moving a whole memory to another database, or its vectors to another index."""

import json
from contextlib import closing
from hashlib import sha256
from pathlib import Path
from typing import Any

from crabpath_retrievers.archive.importing import Imported
from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.opening import place_of, require_existing
from crabpath_retrievers.storage import GraphStore


def migrate(
    source: str | Path,
    destination: str | Path,
    *,
    vectors: Any = None,
) -> Imported:
    """Copy a memory to another place; the source stays as it is.

    The graph store is copied in one transaction, as it is at this moment, and its vectors are
    indexed after that. Interrupted before the transaction ends, nothing has come; interrupted
    later, the next open of the destination goes on, or this call again. With the same place twice
    only the vectors move: to another directory, or from an embedded Chroma to a server.

    Args:
        source: Directory or database URL.
        destination: Directory or database URL where there is no memory yet; or ``source`` again.
        vectors: Where vectors are searched from now on, see :meth:`CrabPath.open`.

    Raises:
        NotFoundError: There is no memory at ``source``.
        InvalidInputError: The destination holds another memory already, or other vectors.
        StoreError: Documents are half added to the source, or a store failed.
    """
    place, goal = place_of(source), place_of(destination)
    require_existing(place)
    if _same(place, goal):
        return _reindexed(goal, vectors)
    with closing(GraphStore(place)) as store, store.dumping() as dump:
        known = [store.name, dump.counts(dump.everything()), dump.last()]
        origin = sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()
        with CrabPath.open(goal, vectors=vectors) as memory:
            return memory.transfer.copy_from(dump, origin)


def _same(place: str, goal: str) -> bool:
    if "://" in place or "://" in goal:
        return place == goal
    return Path(place).resolve() == Path(goal).resolve()


def _reindexed(place: str, vectors: Any) -> Imported:
    if vectors is None:
        msg = "source and destination are the same: say with vectors where the vectors go"
        raise InvalidInputError(msg)
    with CrabPath.open(place, vectors=vectors, create=False, reindex=True) as memory:
        return Imported(None, {"vectors": memory.index.count()})
