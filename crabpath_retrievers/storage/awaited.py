"""Reads of the journal and of waiting feedback that writers need, too."""

import json

import sqlalchemy as sa

from crabpath_retrievers.storage.schema import feedback, journal, turns


def find_awaited_turns(connection: sa.Connection) -> list[str]:
    """Ids of the turns that waiting feedback refers to, by turn id or by the run id of the host."""
    query = sa.select(feedback.c.payload).where(feedback.c.status == "waiting")
    referenced = (json.loads(payload).get("turn_id") for payload in connection.scalars(query))
    turn_or_run_ids = [name for name in referenced if name]
    by_run = sa.select(turns.c.id).where(turns.c.run_id.in_(turn_or_run_ids))
    return [*turn_or_run_ids, *connection.scalars(by_run)]


def build_run_condition(run: str) -> sa.ColumnElement[bool]:
    """Condition: a row of the journal was written by the maintenance run with this id."""
    return journal.c.payload.contains(json.dumps({"run": run})[1:-1], autoescape=True)
