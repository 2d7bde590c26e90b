"""Logging under ``crabpath_retrievers``.

INFO: opening, ingest, learning and maintenance, with counts and milliseconds. DEBUG: every turn.
WARNING: something that was requested and not done.
"""

import logging
import time

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
