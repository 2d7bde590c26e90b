"""Markdown tables of figures."""

from collections.abc import Iterable, Sequence


def with_interval(value: float, interval: Sequence[float] | None, sign: str = "") -> str:
    """A mean with its 95 % interval, where there is one; ``sign`` may be ``+``."""
    shown = f"{value:{sign}.3f}"
    if interval is None:
        return shown
    low, high = interval
    return f"{shown} ({low:{sign}.3f} to {high:{sign}.3f})"


def table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows under a head."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)
