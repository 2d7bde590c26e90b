"""Memories that exist for the length of one measurement."""

from collections.abc import Iterator
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import Any

from crabpath_retrievers.crabpath import CrabPath


@contextmanager
def open_scratch(**opening: Any) -> Iterator[CrabPath]:
    """Open a memory that is deleted at the end, without the warning about that."""
    with (
        TemporaryDirectory(prefix="crabpath-", ignore_cleanup_errors=True) as folder,
        CrabPath.open(folder, **opening) as memory,
    ):
        yield memory
