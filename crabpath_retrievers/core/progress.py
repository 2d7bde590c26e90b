"""Progress of work that takes longer than two seconds, written to standard error.

Logging under ``crabpath_retrievers``.

INFO: opening, ingest, learning and maintenance, with counts and milliseconds. DEBUG: every turn.
WARNING: something that was requested and not done.
"""

import logging
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta

_PATIENCE = 2.0  # seconds before progress is shown
_PAUSE = 10.0  # seconds between lines that stay


@contextmanager
def bar(
    total: int, *, description: str = "indexing", piped: bool = False
) -> Iterator[Callable[[int], None]]:
    """Show how much is done, the rate and the time left, such as ``indexing 16 of 638, 23/s``.

    On a terminal it is one line that is written over and erased at the end; quick work shows
    nothing.

    Args:
        total: Units of work.
        description: The kind of work, written before the numbers.
        piped: Where standard error is no terminal, write lines at least ten seconds apart,
            instead of nothing.

    Yields:
        A function to call with the number of units just done.
    """
    live = sys.stderr.isatty()
    begun, due = time.monotonic(), _PATIENCE
    done = width = 0

    def advance(units: int) -> None:
        nonlocal done, due, width
        done += units
        seconds = time.monotonic() - begun
        if seconds < due or not (live or piped):
            return
        line = f"{description} {_describe_progress(done, total, seconds)}"
        width, due = max(width, len(line)), seconds + (0.0 if live else _PAUSE)
        sys.stderr.write(f"\r{line.ljust(width)}" if live else f"{line}\n")
        sys.stderr.flush()

    try:
        yield advance
    finally:
        if live and width:
            sys.stderr.write(f"\r{' ' * width}\r")
            sys.stderr.flush()


def _describe_progress(done: int, total: int, seconds: float) -> str:
    rate = done / max(seconds, 1e-9)
    left = timedelta(seconds=round((total - done) / rate)) if rate else None
    return f"{done:,} of {total:,}, {rate:.3g}/s" + (f", {left} left" if left else "")


# One line per lock, ten lines per document, and every flaw of a file that is read all the same.
_NOISY = {
    "filelock": logging.INFO,
    "markdown_it": logging.INFO,
    "bs4": logging.ERROR,
    "pypdf": logging.ERROR,
}


def elapsed_ms(start: float) -> float:
    """Milliseconds since ``start`` on the clock of :func:`time.perf_counter`."""
    return (time.perf_counter() - start) * 1000


def quiet_foreign_loggers() -> None:
    """Silence the messages of noisy libraries, unless the application has set a level."""
    for name, level in _NOISY.items():
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(level)
