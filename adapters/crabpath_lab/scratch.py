"""Memories that exist for the length of one measurement."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from crabpath_retrievers.crabpath import CrabPath


@contextmanager
def open_scratch(**opening: Any) -> Iterator[CrabPath]:
    """A memory that is deleted afterwards, as whoever measures knows: no warning says so.

    Args:
        opening: Arguments of ``CrabPath.open`` but the path.
    """
    with (
        TemporaryDirectory(prefix="crabpath-", ignore_cleanup_errors=True) as folder,
        CrabPath.open(folder, **opening) as memory,
    ):
        yield memory
