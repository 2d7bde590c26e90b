"""Work that PostgreSQL ended because of others, and that is repeated."""

import random
from collections.abc import Callable
from time import sleep
from typing import TypeVar

from crabpath_retrievers.errors import StoreError

T = TypeVar("T")
ABORTED = ("40001", "40P01")
"""SQLSTATE of work that changes of others ended, a deadlock among them: it is repeated."""

LOST = ("26000", "42P05")
"""SQLSTATE of a prepared statement that is not on the connection that a pooler chose."""

PAUSES = tuple(0.01 * 2**n for n in range(7))
"""Seconds to wait at most before work is repeated."""


def find_state(error: BaseException | None) -> str | None:
    """SQLSTATE of an error of PostgreSQL."""
    return getattr(error, "sqlstate", None)


def repeat_transaction(work: Callable[[], T]) -> T:
    """The result of ``work``, one transaction, repeated while changes of others end it."""
    for pause in PAUSES:
        try:
            return work()
        except StoreError as error:
            if find_state(getattr(error.__cause__, "orig", None)) not in (*ABORTED, *LOST):
                raise
        sleep(random.uniform(0, pause))  # noqa: S311
    return work()
