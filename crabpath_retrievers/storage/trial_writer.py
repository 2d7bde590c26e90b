"""Writer of the state of A/B trials, with optimistic locking."""

from collections.abc import Callable
from typing import Any

import sqlalchemy as sa

from crabpath_retrievers.changes.ab import KeepTrial
from crabpath_retrievers.errors import ConflictError
from crabpath_retrievers.storage.schema import meta
from crabpath_retrievers.storage.trial_names import build_trial_key


def keep_trial(connection: sa.Connection, change: KeepTrial, insert: Callable[..., Any]) -> None:
    """Replace the state of a trial, or insert that of a new one.

    Raises:
        ConflictError: The stored state is not the expected one.
    """
    name = build_trial_key(change.name)
    if change.before is None:
        new = insert(meta).values(name=name, value=change.after)
        statement = new.on_conflict_do_nothing().returning(meta.c.name)
    else:
        read = (meta.c.name == name) & (meta.c.value == change.before)
        statement = meta.update().where(read).values(value=change.after).returning(meta.c.name)
    if connection.execute(statement).one_or_none() is None:
        msg = f"trial {change.name!r} was changed by somebody else meanwhile: try again"
        raise ConflictError(msg)
