"""Change records of imports: rows of an archive, and vectors to be indexed."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from crabpath_retrievers.core.changes.corpus import Change

Row = Mapping[str, Any]
"""A row: values by column name; vectors and other binary values as bytes."""

Block = tuple[str, list[Row]]
"""Name of a table, and some of its rows."""


class ImportResult(NamedTuple):
    """Result of an import.

    Attributes:
        namespace: Name of the namespace in this store; None for a whole store.
        rows: Number of rows written, by table.
        left_out: Number of rows not written, by table: they refer to documents that do not exist
            in this store.
        missing: Number of these documents.
        before: True if the archive had been imported before, so that only its vectors remained.
    """

    namespace: str | None
    rows: dict[str, int]
    left_out: Mapping[str, int] = {}
    missing: int = 0
    before: bool = False


@dataclass(frozen=True, slots=True)
class FillStore(Change):
    """Write all rows of another store, with their keys; vectors are queued for the index.

    Returns an :class:`ImportResult`. Raises ``InvalidInputError`` when this store is not empty.

    Attributes:
        blocks: Rows of all tables; read once, within the transaction.
        last: Highest key that each table with generated keys has assigned, by table name.
        origin: Identifies the copied store, so that a repeated import is recognised.
    """

    blocks: Iterable[Block]
    last: Mapping[str, int]
    origin: str


@dataclass(frozen=True, slots=True)
class FillNamespace(Change):
    """Write the learned state of one namespace of another store, whose keys the rows have.

    Rows that refer to a document which does not exist here are left out. Returns an
    :class:`ImportResult`. Raises ``InvalidInputError`` when the namespace exists already.

    Attributes:
        namespace: Its name in this store.
        former: Its name in the other store.
        documents: Ids of the documents of the other store, by their keys there.
        blocks: Rows of the tables of a namespace, each after those that it refers to; read once,
            within the transaction.
    """

    namespace: str
    former: str
    documents: Mapping[int, str]
    blocks: Iterable[Block]


@dataclass(frozen=True, slots=True)
class QueueReindex(Change):
    """Queue vectors for the index, which is new or has lost them.

    All episodes and notes are queued.

    Attributes:
        ids: Document chunks to queue; None for all.
    """

    ids: tuple[str, ...] | None = None
