"""The log of a server: one line for each request and event, for programs or people."""

import json
import logging
import re
import traceback
from collections.abc import Callable
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from crabpath_retrievers.core.text import to_printable
from crabpath_retrievers.errors import InvalidInputError

_OURS = ("crabpath_retrievers", "crabpath_server")
_PLAIN = re.compile(r"[^\s\"=\\\x00-\x1f\x7f]+")


class LogFormat(str, Enum):
    """The form of a line."""

    json = "json"
    logfmt = "logfmt"
    text = "text"


class LogLevel(str, Enum):
    """The least important lines that are written."""

    debug = "debug"
    info = "info"
    warning = "warning"
    error = "error"


class LineFormatter(logging.Formatter):
    """Writes each record as one line, with the facts of its request."""

    def __init__(
        self, form: LogFormat, find_facts: Callable[[], dict[str, Any]], *, is_open: bool = False
    ) -> None:
        """Write lines of a form; ``is_open`` shows messages of errors, which may quote texts."""
        super().__init__()
        self._form, self._find_facts, self._is_open = form, find_facts, is_open

    def format(self, record: logging.LogRecord) -> str:
        """Write one record."""
        when = datetime.fromtimestamp(record.created, timezone.utc)
        head = {
            "time": when.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
        }
        facts = {"logger": record.name, **self._find_facts(), **getattr(record, "facts", {})}
        if record.exc_info and record.exc_info[0] is not None:
            facts["exception"] = self._describe(record.exc_info)
        facts = {name: value for name, value in facts.items() if value is not None}
        if self._form is LogFormat.json:
            return json.dumps({**head, **facts}, default=str)
        if self._form is LogFormat.logfmt:
            return _join({**head, **facts})
        facts.pop("logger")
        line = f"{head['time']} {record.levelname} {head['event']} {_join(facts)}"
        return to_printable(" ".join(line.split())).rstrip()

    def _describe(self, failed: Any) -> str:
        """Describe an exception by where it happened; its message may hold what nobody may read."""
        if self._is_open:
            return "".join(traceback.format_exception(*failed))
        frames = traceback.extract_tb(failed[2])
        where = " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames))
        return f"{failed[0].__qualname__} at {where}"


def _join(facts: dict[str, Any]) -> str:
    """Join facts as logfmt: a value with spaces, quotes or control characters is a JSON string."""
    return " ".join(f"{name}={_quote(value)}" for name, value in facts.items())


def _quote(value: Any) -> str:
    text = str(value)
    return text if _PLAIN.fullmatch(text) else json.dumps(text)


def start_logging(
    form: LogFormat | str = LogFormat.text,
    level: LogLevel | str = LogLevel.info,
    *,
    has_requests: bool = False,
) -> None:
    """Write the log of this process to standard error.

    Args:
        form: The form of a line: ``text``, ``json`` or ``logfmt``.
        level: The least important lines of ours, such as ``info``; of other libraries there are
            warnings.
        has_requests: Whether answered requests have a line, too; refused and failed ones have.

    Raises:
        InvalidInputError: There is no such form or level.

    Example::

        start_logging("json", has_requests=True)
    """
    try:
        form, level = LogFormat(form), LogLevel(level)
    except ValueError as error:
        forms, levels = (", ".join(kind) for kind in (LogFormat, LogLevel))
        msg = f"{error}: the form is one of {forms}, the level one of {levels}"
        raise InvalidInputError(msg) from None
    from crabpath_server.journal import find_facts  # with the extra of the server

    handler = logging.StreamHandler()
    handler.setFormatter(LineFormatter(form, find_facts, is_open=level is LogLevel.debug))
    root, least = logging.getLogger(), int(getattr(logging, level.name.upper()))
    root.handlers[:] = [handler]
    root.setLevel(max(least, logging.WARNING))
    for name in _OURS:
        logging.getLogger(name).setLevel(least)
    lines = logging.INFO if has_requests else max(least, logging.WARNING)
    logging.getLogger("crabpath_server.requests").setLevel(lines)
