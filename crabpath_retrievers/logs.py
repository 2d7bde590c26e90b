"""Logging under ``crabpath_retrievers``.

INFO tells of opening, ingest, learning and maintenance with counts and milliseconds, DEBUG of every
turn, WARNING of what was asked for and not done.
"""

import logging
import time

_FLOODING = ("filelock", "markdown_it")  # a line a lock, ten lines a document


def elapsed_ms(begun: float) -> float:
    """Milliseconds since a moment on the clock of :func:`time.perf_counter`."""
    return (time.perf_counter() - begun) * 1000


def quiet_foreign_loggers() -> None:
    """Keep libraries that work for this one from flooding a log at DEBUG.

    A level that the application has set stays.
    """
    for name in _FLOODING:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.INFO)
