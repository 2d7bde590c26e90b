"""What a check reports, and how long it may go on."""

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from typing import Any

COLUMNS = ("lost", "unopenable", "leaks", "foreign", "other")
"""What must be 0 in every row."""

_HEADS = (
    "check",
    "runs",
    "acknowledged",
    "lost",
    "unopenable",
    "leaks",
    "foreign exceptions",
    "other faults",
    "seconds",
    "remarks",
)


class Skipped(Exception):  # noqa: N818  it is no error
    """This machine lacks what the check needs; the message says what."""


@dataclass
class Row:
    """One line of the table.

    Attributes:
        check: Name of the check.
        runs: How often it was tried: kills, inputs, archives, operations, questions.
        acknowledged: Documents, feedback and turns of which the memory said that it keeps them.
        lost: Those of them that were not there afterwards.
        unopenable: Memories that could not be opened again.
        leaks: Answers that held what belongs to another namespace.
        foreign: Exceptions that are none of CrabPath's own.
        other: Everything else that must not be: doubled, empty, late, too large.
        seconds: How long the check took.
        remark: Figures beside the table, or why the check was left out.
        skipped: Whether it was left out.
    """

    check: str
    runs: int = 0
    acknowledged: int = 0
    lost: int = 0
    unopenable: int = 0
    leaks: int = 0
    foreign: int = 0
    other: int = 0
    seconds: float = 0.0
    remark: str = ""
    skipped: bool = False
    _seen: set[str] = field(default_factory=set, repr=False)

    @property
    def broken(self) -> bool:
        """Whether a figure that must be 0 is not."""
        return any(getattr(self, name) for name in COLUMNS)

    def blame(self, column: str, what: str, number: int = 1, *, kind: str = "") -> None:
        """Count a fault, and say so the first time that one of its kind is seen."""
        setattr(self, column, getattr(self, column) + number)
        shown = " ".join(what.encode("ascii", "backslashreplace").decode().split())
        if (kind or shown[:90]) not in self._seen:
            self._seen.add(kind or shown[:90])
            sys.stderr.write(f"  {self.check}, run {self.runs}: {column}: {shown[:600]}\n")
            sys.stderr.flush()

    def to_dict(self) -> dict[str, Any]:
        """The row as plain data."""
        found = asdict(self)
        del found["_seen"]
        return found


class Budget:
    """Numbers runs from 0, until the time is over or enough were made.

    Args:
        seconds: Most seconds; None for no limit.
        runs: Most runs; None for no limit. At least one is made.
    """

    def __init__(self, seconds: float | None = None, runs: int | None = None) -> None:
        """Start the clock."""
        self.runs = runs
        self._end = None if seconds is None else time.monotonic() + seconds

    @property
    def over(self) -> bool:
        """Whether the time is."""
        return self._end is not None and time.monotonic() >= self._end

    def __iter__(self) -> Iterator[int]:
        """Numbers of the runs."""
        run = 0
        while run == 0 or not (self.over or (self.runs is not None and run >= self.runs)):
            yield run
            run += 1


def table(rows: list[Row]) -> str:
    """All rows as a table in Markdown."""
    lines = ["| " + " | ".join(_HEADS) + " |", "|" + "---|" * len(_HEADS)]
    for row in rows:
        figures: tuple[Any, ...] = ("–",) * 8
        if not row.skipped:
            counts = (row.runs, row.acknowledged, *(getattr(row, name) for name in COLUMNS))
            figures = (*(f"{count:,}" for count in counts), f"{row.seconds:.0f}")
        lines.append("| " + " | ".join((row.check, *figures, row.remark)) + " |")
    return "\n".join(lines)
