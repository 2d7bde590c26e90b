"""Contamination and regions, as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from crabpath_lab.reporting.tables import format_interval, render_table

_CONTAMINATION_NOTE = """\
The chain reads five documents and says what it followed; the outcome is wrong as often as `noise`
says, in the same turns for all. From the second pass on 20 % of the words are left out, so
passes 2 and 3 are alike and harder than pass 1. Differences are to the default; `3 − 1` and
`3 − 2` are between passes of one variant. `successes` is the share of evidence in
favour of documents that comes from true successes, at the end of each pass."""
_REGIONS_NOTE = """\
Each cell has the mean over all orders and the paired difference to `regions on`, in which
everything is as shipped. The second pass leaves out 20 % of the words."""


def render_contamination(contamination: Mapping[str, Any]) -> Iterator[str]:
    """Passes by variant, what memory consists of, and the order of the three of [CVX RFC-013]."""
    metric, rows = contamination["metric"], contamination["rows"]
    passes = range(1, 1 + max((len(row["epochs"]) for row in rows), default=0))
    yield f"{metric}:"
    head = ["data set", "noise", "orders", "variant", *(f"pass {n}" for n in passes)]
    shown = (
        [
            *_row_head(row),
            *map(_format_mean, row["epochs"]),
            _format_difference(row["change"]),
            _format_difference(row["late"]),
        ]
        for row in rows
    )
    yield render_table([*head, "3 − 1", "3 − 2"], shown)
    yield "Difference to the default, and successes in memory:"
    names = [f"{what}, pass {n}" for what in ("difference", "successes") for n in passes]
    beside = (
        [*_row_head(row), *map(_format_tested, row["epochs"]), *map(_format_share, row["epochs"])]
        for row in rows
    )
    yield render_table(["data set", "noise", "orders", "variant", *names], beside)
    for of in contamination["ordered"]:
        says = "as [CVX RFC-013] claims" if of["claimed"] else "**not** as [CVX RFC-013] claims"
        order = " < ".join(of["order"])
        yield f"{of['dataset']}, noise {of['noise']}, last pass: {order}: {says}."
    yield _CONTAMINATION_NOTE


def render_regions(regions: Mapping[str, Any]) -> Iterator[str]:
    """One table per measure."""
    rows = regions["rows"]
    for metric in dict.fromkeys(name for row in rows for name in row["parts"]["first pass"]):
        own = [row for row in rows if metric in row["parts"]["first pass"]]
        shown = (
            [row["dataset"], row["feedback"], row["orders"], row["variant"]]
            + [_format_comparison(of[metric]) for of in row["parts"].values()]
            for row in own
        )
        yield f"{metric}:"
        head = ["data set", "feedback", "orders", "variant", *own[0]["parts"]]
        yield render_table(head, shown)
    yield _REGIONS_NOTE


def _row_head(row: Mapping[str, Any]) -> list[object]:
    return [row["dataset"], row["noise"], row["orders"], row["variant"]]


def _format_mean(of: Mapping[str, Any]) -> str:
    return format_interval(of["mean"], of["mean_ci95"])


def _format_difference(of: Mapping[str, Any]) -> str:
    return format_interval(of["difference"], of["ci95"], sign="+")


def _format_tested(of: Mapping[str, Any]) -> str:
    return "–" if of["p"] is None else f"{_format_difference(of)}, p {of['p']:.4f}"


def _format_share(of: Mapping[str, Any]) -> str:
    return "–" if of["successes"] is None else f"{of['successes']:.3f}"


def _format_comparison(of: Mapping[str, Any]) -> str:
    return f"{of['mean']:.3f}" if of["p"] is None else f"{of['mean']:.3f}; {_format_tested(of)}"
