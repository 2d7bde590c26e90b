"""Split long lists of values into statements that a database accepts."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

T = TypeVar("T")
_MAX_PARAMETERS = 8192  # bound parameters: SQLite allows 32,766 a statement, PostgreSQL 65,535


def split_batches(values: Iterable[T], size: int = _MAX_PARAMETERS) -> Iterator[list[T]]:
    """Yield lists of at most ``size`` values, in order."""
    iterator = iter(values)
    while part := list(islice(iterator, size)):
        yield part
