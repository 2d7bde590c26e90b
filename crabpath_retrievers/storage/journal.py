"""The journal of changes, from which maintenance is undone."""

import json
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import journal


def write_journal(
    connection: sa.Connection,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Add a row to the journal. It must never hold texts, which could not be forgotten then.

    Args:
        connection: An open transaction.
        change: Kind of the change.
        payload: What it did, JSON-safe.
        namespace: Name of the namespace that it concerns; None for several or none.
        inverse: What undo needs, JSON-safe; None for changes that cannot be undone.
    """
    connection.execute(
        journal.insert().values(
            created=time.time(),
            namespace=namespace,
            change=change,
            payload=json.dumps(payload),
            inverse=None if inverse is None else json.dumps(inverse),
        )
    )
