"""Protocols that the query classes depend on instead of the store, and decoding of rows."""

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar

import sqlalchemy as sa

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ReadableStore(Protocol):
    """A store that query classes read from."""

    def open_reader(self) -> AbstractContextManager[sa.Connection]:
        """A connection for reads; each statement sees the latest commit."""

    def flush(self) -> None:
        """Wait until all queued turn records are written."""


class NamespacePosition(Protocol):
    """Position of a namespace: its key, its last turn, and its decay exponent."""

    @property
    def key(self) -> int:
        """Key of the namespace; 0 for one that does not exist."""

    @property
    def turn(self) -> int:
        """Number of its last turn."""

    @property
    def exponent(self) -> float:
        """Accumulated decay exponent, ≥ 0."""


def decode_rows(what: str, rows: Iterable[Any], read: Callable[[Any], T]) -> Iterator[T]:
    """Yield what rows decode to; skips damaged rows with a warning.

    Args:
        what: Name of a row for the warning, with its article.
        rows: Rows as stored.
        read: Decodes one row.
    """
    for row in rows:
        try:
            yield read(row)
        except Exception as error:  # whatever decoding of damaged values raises
            _log.warning("%s in the store is damaged and passed over: %r", what, error)
