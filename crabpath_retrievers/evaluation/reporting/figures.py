"""What tables and plots read: the record of a run."""

from collections.abc import Mapping
from typing import Any

Figures = Mapping[str, Any]
"""What :func:`crabpath_retrievers.evaluation.evaluate.evaluate` returns."""


def metrics_of(figures: Figures) -> list[str]:
    """Names of the measures in a run, in the order of computation."""
    first = next(iter(figures["methods"].values()))
    return [name.removesuffix("_ci95") for name in first if name.endswith("_ci95")]
