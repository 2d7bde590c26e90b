"""Reads of the server alone: its audit, who gave what, and where documents lie."""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import contents, feedback, journal
from crabpath_retrievers.storage.sql_tools import Queries


class AuditRecord(NamedTuple):
    """A change of the store, without texts, names and ids of what was changed.

    Attributes:
        number: Number of the change, from 1.
        created: Seconds since the epoch.
        change: Kind of change, such as ``remove`` (documents), ``remove_notes`` or ``publish``.
        namespace: The namespace; None if it concerns several, or documents.
        token: Id of the token of the server that asked for it; None without one.
        detail: How much was changed.
    """

    number: int
    created: float
    change: str
    namespace: str | None
    token: str | None
    detail: dict[str, Any]


class ServerQueries(Queries):
    """Reads of the journal, of tokens and of sources."""

    def find_tokens(self, namespace: str, ids: Sequence[str]) -> set[str | None]:
        """Find the tokens by which feedback of a namespace was given; None for that of none."""
        query = sa.select(feedback.c.token).where(feedback.c.namespace == namespace)
        return {token for (token,) in self._rows_in(query, feedback.c.id, ids)}

    def list_audit(self, limit: int, *, before: int | None = None) -> list[AuditRecord]:
        """List the changes in the journal, newest first, after the one of number ``before``."""
        query = sa.select(journal).order_by(journal.c.sequence.desc()).limit(limit)
        if before is not None:
            query = query.where(journal.c.sequence < before)
        records = list[AuditRecord]()
        for row in self._rows(query):
            detail = json.loads(row.payload)
            place = (row.sequence, row.created, row.change, row.namespace)
            records.append(AuditRecord(*place, detail.pop("token", None), detail))
        return records

    def find_outer_sources(self) -> list[str]:
        """Find the first and the last source that are absolute paths; empty without any."""
        bounds = (contents.c.source >= "/", contents.c.source < "0")  # "0" follows "/"
        ends = [
            self._scalar(sa.select(end(contents.c.source)).where(*bounds))
            for end in (sa.func.min, sa.func.max)
        ]
        return [source for source in ends if source is not None]
