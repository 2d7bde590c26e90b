"""Write the knobs of a namespace, and undo that from the journal."""

import sqlalchemy as sa

from crabpath_retrievers.changes.autotune import SetKnobs
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage.journal import write_journal
from crabpath_retrievers.storage.schema import namespaces


def set_knobs(connection: sa.Connection, change: SetKnobs) -> None:
    """Set the knobs and the tuning state of a namespace.

    Args:
        connection: An open transaction.
        change: New values, and the values that are expected in the store.

    Raises:
        ConflictError: The stored values are not the expected ones.
    """
    is_namespace = namespaces.c.name == change.namespace
    query = sa.select(namespaces.c.knobs, namespaces.c.tuning).where(is_namespace).with_for_update()
    if tuple(connection.execute(query).one()) != change.before:
        msg = f"the knobs of {change.namespace!r} met another change: read again and repeat it"
        raise ConflictError(msg)
    values = {"knobs": change.knobs, "tuning": change.tuning}
    connection.execute(namespaces.update().where(is_namespace).values(values))
    if change.knobs != change.before[0]:
        payload = {"run": change.run, "knobs": change.knobs, "why": list(change.why)}
        inverse = {"before": change.before[0], "after": change.knobs}
        write_journal(connection, "set_knobs", payload, change.namespace, inverse)


def restore_knobs(
    connection: sa.Connection, namespace: str, before: str | None, now: str | None
) -> None:
    """Restore the knobs of a namespace, unless they were changed again since.

    Args:
        connection: An open transaction.
        namespace: Name of the namespace.
        before: Knobs to restore, as JSON.
        now: Knobs that the change to undo had set.
    """
    is_namespace = sa.and_(
        namespaces.c.name == namespace, namespaces.c.knobs.is_not_distinct_from(now)
    )
    connection.execute(namespaces.update().where(is_namespace).values(knobs=before))
