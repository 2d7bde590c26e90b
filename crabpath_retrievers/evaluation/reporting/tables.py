"""Markdown tables of the figures of a run."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

Figures = Mapping[str, Any]
"""What :func:`crabpath_retrievers.evaluation.evaluate.evaluate` returns."""

STREAM_NOTE = """\
Each question was answered and scored, and only then did learners get feedback; the frozen twin
answered the same questions in the same order and learned nothing. Milliseconds are those of
learning from one answer."""


def format_interval(value: float, interval: Sequence[float] | None, sign: str = "") -> str:
    """A mean with its 95 % interval, where there is one; ``sign`` may be ``+``."""
    shown = f"{value:{sign}.3f}"
    if interval is None:
        return shown
    low, high = interval
    return f"{shown} ({low:{sign}.3f} to {high:{sign}.3f})"


def render_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def metric_names(figures: Figures) -> list[str]:
    """Names of the measures in a run, in the order of computation."""
    first = next(iter(figures["methods"].values()))
    return [name.removesuffix("_ci95") for name in first if name.endswith("_ci95")]


def stream_figures(figures: Figures) -> dict[str, Mapping[str, Any]]:
    """The streams of a run by learner; none when nothing was streamed."""
    methods: Mapping[str, Mapping[str, Any]] = figures["methods"]
    return {name: of["stream"] for name, of in methods.items() if "stream" in of}


def render_streams(figures: Figures) -> str:
    """Means per pass and of the second half of the first one, with paired differences."""
    rows = [
        row
        for name, stream in stream_figures(figures).items()
        for row in _stream_rows(name, stream)
    ]
    return render_table(
        ["learner", "part", "measure", "learner", "frozen", "difference", "p", "ms"], rows
    )


def _stream_rows(name: str, stream: Mapping[str, Any]) -> Iterator[list[object]]:
    for found in stream["differences"]:
        part, metric = found["part"], found["metric"]
        if metric.startswith("full@"):
            own, frozen = _stream_means(stream, part)
            yield [
                name,
                part,
                metric,
                f"{own[metric]:.3f}",
                f"{frozen[metric]:.3f}",
                format_interval(found["difference"], found["ci95"], sign="+"),
                "–" if found["p"] is None else f"{found['p']:.4f}",
                stream["learn_ms"]["p50"],
            ]


def _stream_means(
    stream: Mapping[str, Any], part: str
) -> tuple[Mapping[str, float], Mapping[str, float]]:
    if part == "second half":
        return stream["second_half"], stream["frozen_second_half"]
    place = int(part.removeprefix("epoch ")) - 1
    return stream["epochs"][place], stream["frozen_epochs"][place]
