"""Write health reports, and delete outdated ones."""

import json

import sqlalchemy as sa

from crabpath_retrievers.changes.health import RecordHealth
from crabpath_retrievers.storage.schema import health_reports, namespaces


def record_health(connection: sa.Connection, change: RecordHealth) -> None:
    """Store a report, and delete all but the latest; does nothing for an unknown namespace.

    Args:
        connection: An open transaction.
        change: The report, and how many to keep.
    """
    query = sa.select(namespaces.c.key).where(namespaces.c.name == change.namespace)
    key = connection.scalar(query)
    if key is None:
        return
    row = {
        "namespace": key,
        "clock": change.clock,
        "created": change.created,
        "report": json.dumps(dict(change.report), allow_nan=False),
    }
    connection.execute(health_reports.insert().values(row))
    own = health_reports.c.namespace == key
    latest = (
        sa.select(health_reports.c.sequence).where(own).order_by(health_reports.c.sequence.desc())
    )
    # The newest report to delete; the condition is never true while there are too few.
    last = latest.offset(change.keep).limit(1).scalar_subquery()
    connection.execute(health_reports.delete().where(own, health_reports.c.sequence <= last))
