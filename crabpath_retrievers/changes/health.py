"""Change record of health reports."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordHealth:
    """Store a health report of a namespace; does nothing for a namespace that does not exist.

    Attributes:
        clock: Last turn of the namespace when it was measured.
        created: Time, in seconds since the epoch.
        report: The report, JSON-safe.
        keep: How many of the latest reports of the namespace are kept.
    """

    namespace: str
    clock: int
    created: float
    report: Mapping[str, Any]
    keep: int
