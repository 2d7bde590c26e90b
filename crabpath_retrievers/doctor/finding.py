"""What an examination finds."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Severity = Literal["error", "warning", "info"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was found.

    Attributes:
        check: Which check found it.
        severity: ``error`` is broken, ``warning`` should be mended, ``info`` is good to know.
        message: What it is, in one sentence.
        fix: What to do, in one sentence.
    """

    check: str
    severity: Severity
    message: str
    fix: str


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """All that was found of one store.

    Attributes:
        place: Where it is, without password.
        checked: Names of the checks that were made; the others could not be.
        findings: The worst first.
    """

    place: str
    checked: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def broken(self) -> bool:
        """Whether anything is."""
        return any(finding.severity == "error" for finding in self.findings)

    def to_dict(self) -> dict[str, Any]:
        """The diagnosis as plain, JSON-safe data."""
        return {**asdict(self), "broken": self.broken}
