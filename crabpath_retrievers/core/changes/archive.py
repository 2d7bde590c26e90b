"""Change records of imports: rows of an archive, and vectors to be indexed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from crabpath_retrievers.core.changes.corpus import Change

Row = Mapping[str, Any]
"""A row: values by column name; vectors and other binary values as bytes."""

Block = tuple[str, list[Row]]
"""Name of a table, and some of its rows."""


@dataclass(frozen=True, slots=True)
class FillStore(Change):
    """Write all rows of another store, with their keys; vectors are queued for the index.

    Raises ``InvalidInputError`` when this store is not empty.

    Attributes:
        blocks: Rows of all tables; read once, within the transaction.
        last: Highest key that each table with generated keys has assigned, by table name.
        origin: Identifies the copied store, so that a repeated import is recognised.
    """

    blocks: Iterable[Block]
    last: Mapping[str, int]
    origin: str


@dataclass(frozen=True, slots=True)
class IdRenames:
    """New names of an imported namespace and of its records.

    Attributes:
        namespace: Name of the namespace in this store.
        former: Its name in the archive.
        turns, feedback, notes, episodes: New id by id in the archive, for ids that change.
    """

    namespace: str
    former: str
    turns: Mapping[str, str] = field(default_factory=dict)
    feedback: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    episodes: Mapping[str, str] = field(default_factory=dict)

    @property
    def any(self) -> bool:
        """Whether any name or id changes."""
        ids = (self.turns, self.feedback, self.notes, self.episodes)
        return self.namespace != self.former or any(ids)


@dataclass(frozen=True, slots=True)
class FillNamespace(Change):
    """Write the learned state of one namespace of another store; rows refer to nodes by id.

    Rows that refer to a node which does not exist here are left out. Raises ``InvalidInputError``
    when the namespace exists already.

    Attributes:
        blocks: Rows of the tables of a namespace; read once, within the transaction.
        renames: Names and ids that change.
    """

    blocks: Iterable[Block]
    renames: IdRenames


@dataclass(frozen=True, slots=True)
class QueueReindex(Change):
    """Queue vectors for the index, which is new or has lost them.

    All episodes and notes are queued.

    Attributes:
        ids: Document chunks to queue; None for all.
    """

    ids: tuple[str, ...] | None = None
