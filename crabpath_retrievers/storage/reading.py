"""What readers need of the store, so that they need not know it."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

_log = logging.getLogger(__name__)
T = TypeVar("T")


class Readable(Protocol):
    """Something to read from."""

    def reading(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads; each statement sees the latest commit."""

    def settle(self) -> None:
        """Wait until all turn records that were handed over are written."""


class Standpoint(Protocol):
    """Where a namespace stands: its key, its turns, and how much it has faded."""

    @property
    def key(self) -> int:
        """Key of the namespace; 0 for one that was never used."""

    @property
    def turn(self) -> int:
        """How many turns it had."""

    @property
    def exponent(self) -> float:
        """Its accumulated decay exponent."""


def readable(what: str, rows: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """What rows hold. One that is damaged is passed over with a warning: it must stop no other.

    Args:
        what: A row, for the warning.
        rows: As they are stored.
        read: Makes something of one.
    """
    for row in rows:
        try:
            yield read(row)
        except Exception as error:  # JSON, numbers or texts that are no longer what they were
            _log.warning("%s in the store is damaged and passed over: %r", what, error)
