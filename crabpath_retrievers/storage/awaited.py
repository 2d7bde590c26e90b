"""Which turns feedback speaks of that nobody has learned from yet."""

import json

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import feedback, turns


def awaited(connection: sa.Connection) -> list[str]:
    """Their ids; feedback may name a turn by the run that asked."""
    query = sa.select(feedback.c.payload).where(feedback.c.status == "waiting")
    named = (json.loads(payload).get("turn_id") for payload in connection.scalars(query))
    asked = [name for name in named if name]
    by_run = sa.select(turns.c.id).where(turns.c.run_id.in_(asked))
    return [*asked, *connection.scalars(by_run)]
