"""How reports on health are kept: the latest of each namespace."""

import json

import sqlalchemy as sa

from crabpath_retrievers.changes.health import RecordHealth
from crabpath_retrievers.storage.schema import health_reports, namespaces


def record_health(connection: sa.Connection, change: RecordHealth) -> None:
    """Keep a report, and drop those that are too old; an unknown namespace stays unknown.

    Args:
        connection: An open transaction.
        change: The report.
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
    # The first one that is too many; nothing is older while there is none.
    last = latest.offset(change.keep).limit(1).scalar_subquery()
    connection.execute(health_reports.delete().where(own, health_reports.c.sequence <= last))
