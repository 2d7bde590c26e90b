"""The journal of changes: how rows are written, and which belong to one maintenance."""

import json
import time
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import journal


def write_down(
    connection: sa.Connection,
    change: str,
    payload: Mapping[str, Any],
    namespace: str | None = None,
    inverse: object = None,
) -> None:
    """Write down what was done; texts never enter: what is forgotten must be gone.

    Args:
        connection: An open transaction.
        change: What kind of change.
        payload: What it did, JSON-safe.
        namespace: By name, where it is about one.
        inverse: What takes it back, JSON-safe; None where nothing does.
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


def of_run(run: str) -> sa.ColumnElement[bool]:
    """Whether a row tells of the maintenance with this id."""
    return journal.c.payload.contains(json.dumps({"run": run})[1:-1], autoescape=True)
