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
