"""What readers need of the store, so that they need not know it."""

from contextlib import AbstractContextManager
from typing import Protocol

import sqlalchemy as sa


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
