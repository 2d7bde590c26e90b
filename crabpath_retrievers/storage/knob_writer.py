"""How knobs of a namespace are set, and put back by what the journal keeps."""

import sqlalchemy as sa

from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage.journal import write_down
from crabpath_retrievers.storage.schema import namespaces


def set_knobs(connection: sa.Connection, change: SetKnobs) -> None:
    """Set the knobs of a namespace, and what is known of turning them.

    Args:
        connection: An open transaction.
        change: Both, and what they were.

    Raises:
        ConflictError: They are not any more what they were.
    """
    own = namespaces.c.name == change.namespace
    query = sa.select(namespaces.c.knobs, namespaces.c.tuning).where(own).with_for_update()
    if tuple(connection.execute(query).one()) != change.before:
        msg = f"the knobs of {change.namespace!r} met another change: read again and repeat it"
        raise ConflictError(msg)
    values = {"knobs": change.knobs, "tuning": change.tuning}
    connection.execute(namespaces.update().where(own).values(values))
    if change.knobs != change.before[0]:
        payload = {"run": change.run, "knobs": change.knobs, "why": list(change.why)}
        inverse = {"before": change.before[0], "after": change.knobs}
        write_down(connection, "set_knobs", payload, change.namespace, inverse)


def put_back(
    connection: sa.Connection, namespace: str, before: str | None, now: str | None
) -> None:
    """Give a namespace its former knobs, unless they were turned again since.

    Args:
        connection: An open transaction.
        namespace: Whose.
        before: Its former knobs, as JSON.
        now: What they were set to then.
    """
    own = sa.and_(namespaces.c.name == namespace, namespaces.c.knobs.is_not_distinct_from(now))
    connection.execute(namespaces.update().where(own).values(knobs=before))
