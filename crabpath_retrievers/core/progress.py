"""Progress bars for work that takes longer than two seconds.

Logging under ``crabpath_retrievers``.

INFO: opening, ingest, learning and maintenance, with counts and milliseconds. DEBUG: every turn.
WARNING: something that was requested and not done.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

_PATIENCE = 2.0  # seconds before a bar appears


@contextmanager
def bar(total: int, *, description: str = "indexing") -> Iterator[Callable[[int], None]]:
    """Show progress on a terminal; nothing is progress for quick work or other outputs.

    Args:
        total: Units of work.
        description: The kind of work, written beside the bar.

    Yields:
        A function to call with the number of units just done.
    """
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=Console(file=sys.stderr), transient=True)
    task = progress.add_task(description, total=total)
    start = time.monotonic()

    def advance(units: int) -> None:
        progress.advance(task, units)
        if sys.stderr.isatty() and time.monotonic() - start > _PATIENCE:
            progress.start()

    try:
        yield advance
    finally:
        if progress.live.is_started:
            progress.stop()


_NOISY = ("filelock", "markdown_it")  # one line per lock, ten lines per document


def elapsed_ms(start: float) -> float:
    """Milliseconds since ``start`` on the clock of :func:`time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def quiet_foreign_loggers() -> None:
    """Silence the DEBUG messages of noisy libraries, unless the application has set a level."""
    for name in _NOISY:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
