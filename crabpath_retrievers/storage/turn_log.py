"""Turn records and the change journal."""

import json
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.errors import NotFoundError
from crabpath_retrievers.graph import Vector
from crabpath_retrievers.storage.packing import unpack
from crabpath_retrievers.storage.reading import Readable
from crabpath_retrievers.storage.schema import journal, namespaces, turns
from crabpath_retrievers.trajectory import Turn


class TurnLog:
    """Reads of what happened."""

    def __init__(self, store: Readable) -> None:
        """Read from ``store``."""
        self._store = store

    def get(self, turn_id: str, *, namespace: str | None = None) -> Turn:
        """The record of a turn, by its id or by the run id of the host that asked.

        Args:
            turn_id: Turn id, or LangChain run id.
            namespace: Only turns of this namespace are found; None looks in all.

        Raises:
            NotFoundError: There is no such turn in that namespace.
        """
        query = (
            sa.select(turns.c.record)
            .join(namespaces, namespaces.c.key == turns.c.namespace)
            .where(sa.or_(turns.c.id == turn_id, turns.c.run_id == turn_id))
            .order_by(turns.c.clock.desc())
            .limit(1)
        )
        if namespace is not None:
            query = query.where(namespaces.c.name == namespace)
        self._store.settle()
        with self._store.reading() as connection:
            record = connection.scalar(query)
        if record is None:
            msg = f"no turn {turn_id!r} is recorded here: check the id and the namespace"
            raise NotFoundError(msg)
        return Turn.from_dict(json.loads(record))

    def vector(self, turn_id: str) -> Vector | None:
        """The unit query vector of a turn, shape ``[d]``; None when it is not kept."""
        with self._store.reading() as connection:
            data = connection.scalar(sa.select(turns.c.embedding).where(turns.c.id == turn_id))
        return None if data is None else unpack(data)

    def latest(self, namespace: str) -> str | None:
        """Id of the namespace's last turn."""
        self._store.settle()
        with self._store.reading() as connection:
            return connection.scalar(
                sa.select(turns.c.id)
                .join(namespaces, namespaces.c.key == turns.c.namespace)
                .where(namespaces.c.name == namespace)
                .order_by(turns.c.clock.desc())
                .limit(1)
            )

    def journal(self, limit: int = 100) -> list[dict[str, Any]]:
        """The last changes, newest first, each with its inverse where it has one."""
        self._store.settle()
        with self._store.reading() as connection:
            rows = connection.execute(
                sa.select(journal).order_by(journal.c.sequence.desc()).limit(limit)
            ).mappings()
            return [
                {
                    **row,
                    "payload": json.loads(row["payload"]),
                    "inverse": None if row["inverse"] is None else json.loads(row["inverse"]),
                }
                for row in rows
            ]
