"""Look up which nodes still exist."""

from collections.abc import Iterable

import sqlalchemy as sa

from crabpath_retrievers.storage import schema as s
from crabpath_retrievers.storage.batching import split_batches


def find_existing_keys(connection: sa.Connection, keys: Iterable[int]) -> set[int]:
    """Those of the keys that belong to an existing node."""
    found: set[int] = set()
    for part in split_batches(keys):
        found |= set(connection.scalars(sa.select(s.nodes.c.key).where(s.nodes.c.key.in_(part))))
    return found
