"""Change records of health: what was found, kept beside what it was found of."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RecordHealth:
    """Keep a report on a namespace; one that was never used is not made by it.

    Attributes:
        clock: Turns of the namespace when it was measured.
        created: When, in seconds since the epoch.
        report: JSON-safe.
        keep: Latest reports of the namespace that stay; older ones go.
    """

    namespace: str
    clock: int
    created: float
    report: Mapping[str, Any]
    keep: int
