"""Findings of the doctor."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One finding.

    Attributes:
        check: Name of the check.
        severity: ``error`` is broken, ``warning`` should be fixed, ``info`` is good to know.
        message: The problem, in one sentence.
        fix: What to do about it, in one sentence.
    """

    check: str
    severity: Severity
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All findings of one store.

    Attributes:
        place: Location of the store, without password.
        checked: Names of the checks that were completed.
        findings: Findings, the worst first.
    """

    place: str
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether there is a finding of severity ``error``."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """Convert the diagnosis to plain, JSON-safe data."""
        return {**asdict(self), "broken": self.broken}
