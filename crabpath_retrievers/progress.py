"""Progress bars for work that takes longer than two seconds."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PATIENCE = 2.0  # seconds before a bar appears


@contextmanager
def bar(total: int, *, description: str = "indexing") -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal; quick work and other outputs stay silent.

    Args:
        total: Units of work.
        description: What is being done.

    Yields:
        A function that takes the number of units just done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    shown = Progress(*columns, console=Console(file=sys.stderr), transient=True)
    task = shown.add_task(description, total=total)
    begun = time.monotonic()

    def advance(units: int) -> None:
        shown.advance(task, units)
        if sys.stderr.isatty() and time.monotonic() - begun > _PATIENCE:
            shown.start()

    try:
        yield advance
    finally:
        if shown.live.is_started:
            shown.stop()
