"""Markdown tables of the figures of a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]
"""What :func:`crabpath_lab.evaluation.evaluate` returns."""

STREAM_NOTE = """\
Each question was answered and scored, and only then did learners get feedback; the frozen twin
answered the same questions in the same order and learned nothing. Milliseconds are those of
learning from one answer. Resamples and permutations are drawn over questions in the order in which
they were asked, so p can differ a little from that of the same comparison under Differences."""
_FEW_DIFFER = """\
Where an interval leaves out 0 and p is above .05, p counts: only a few questions differ there, for
which a BCa interval is too narrow."""
_LEVEL = 0.05


def format_interval(value: float, interval: Sequence[float] | None, sign: str = "") -> str:
    """Format a mean with its 95 % interval, if any; ``sign`` may be ``+``."""
    shown = f"{value:{sign}.3f}"
    if interval is None:
        return shown
    low, high = interval
    return f"{shown} ({low:{sign}.3f} to {high:{sign}.3f})"


def explain_few(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """Explain comparisons whose interval leaves out 0 although their p is not small."""
    found = [row for row in rows if row["p"] is not None and row["p"] > _LEVEL]
    return [_FEW_DIFFER] if any(row["ci95"][0] > 0 or row["ci95"][1] < 0 for row in found) else []


def render_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Render a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def metric_names(figures: Figures) -> list[str]:
    """List the names of the measures in a run, in the order of computation."""
    first = next(iter(figures["methods"].values()))
    return [name.removesuffix("_ci95") for name in first if name.endswith("_ci95")]


def stream_figures(figures: Figures) -> dict[str, Mapping[str, Any]]:
    """Return the streams of a run by learner; none when nothing was streamed."""
    methods: Mapping[str, Mapping[str, Any]] = figures["methods"]
    return {name: of["stream"] for name, of in methods.items() if "stream" in of}


def render_streams(figures: Figures) -> str:
    """Render every part of the streams with paired differences, quarters, and repairs."""
    streams = stream_figures(figures)
    rows = [row for name, stream in streams.items() for row in _stream_rows(name, stream)]
    head = ["learner", "part", "measure", "learner", "frozen", "difference", "p", "ms"]
    shown = [row for stream in streams.values() for row in _list_shown(stream)]
    parts = [render_table(head, rows), *explain_few(shown)]
    parts += [_render_quarters(name, stream) for name, stream in streams.items()]
    repairs = [
        [
            *(name, row["part"], row["metric"]),
            *(f"{row[arm]:.3f}" for arm in ("clean", "wrong", "repaired")),
            "–" if row["recovery"] is None else format_interval(row["recovery"], row["ci95"]),
        ]
        for name, stream in streams.items()
        for row in stream.get("repair", ())
    ]
    if repairs:
        head = ["learner", "part", "measure", "clean", "wrong", "repaired", "net recovery"]
        parts.append(render_table(head, repairs))
    for name, stream in streams.items():
        if estimate := stream.get("off_policy"):
            parts.append(_render_off_policy(name, estimate))
    return "\n\n".join(parts)


def _stream_rows(name: str, stream: Mapping[str, Any]) -> Iterator[list[object]]:
    for row in _list_shown(stream):
        yield [
            *(name, row["part"], row["metric"]),
            *(f"{row['learner']:.3f}", f"{row['frozen']:.3f}"),
            format_interval(row["difference"], row["ci95"], sign="+"),
            "–" if row["p"] is None else f"{row['p']:.4f}",
            stream["learn_ms"]["p50"],
        ]


def _list_shown(stream: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [
        row
        for row in stream["differences"]
        if row["metric"].startswith("full@") and "quarter" not in row["part"]
    ]


def _render_off_policy(name: str, estimate: Mapping[str, Any]) -> str:
    """Render estimated uses without exploration beside the true ones."""
    ips, snips = (
        "–" if estimate[kind] is None else format_interval(estimate[kind], estimate[f"{kind}_ci95"])
        for kind in ("ips", "snips")
    )
    return (
        f"{name}: documents used per question without exploration, estimated from "
        f"{estimate['turns']} turns with it: IPS {ips}, self-normalised {snips}; "
        f"true {estimate['true']:.3f}, with exploration {estimate['explored']:.3f}. "
        f"Not covered: {estimate['uncovered']:.2f} documents per question, "
        f"{estimate['left_out']} turns."
    )


def _render_quarters(name: str, stream: Mapping[str, Any]) -> str:
    """Render means by quarter of the first pass, or of a part, with the frozen twin's."""
    quarters: dict[tuple[str, str], list[str]] = {}
    for row in stream["differences"]:
        whole, is_quarter, _ = row["part"].partition("quarter")
        if is_quarter:
            shown = f"{row['learner']:.3f} ({row['frozen']:.3f})"
            quarters.setdefault((whole, row["metric"]), []).append(shown)
    return "\n".join(
        f"{name} (frozen) by quarters: {whole}{metric} {', '.join(means)}  "
        for (whole, metric), means in quarters.items()
    )
