"""Contamination and regions, as Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

from crabpath_retrievers.evaluation.reporting.tables import table, with_interval

_CONTAMINATION_NOTE = """\
The chain reads five documents and says what it followed; the outcome is wrong as often as `noise`
says, in the same turns for all. From the second pass on a fifth of the words are left out, so
passes 2 and 3 are alike and harder than pass 1. Differences are to the default; `3 − 1` and
`3 − 2` are between passes of one variant. `successes` is the share of all that memory says in
favour of documents which comes from true successes, at the end of each pass."""
_REGIONS_NOTE = """\
Each cell has the mean over all orders and the paired difference to `regions on`, in which
everything is as shipped. The second pass leaves out a fifth of the words."""


def contamination_tables(contamination: Mapping[str, Any]) -> Iterator[str]:
    """Passes by variant, what memory is made of, and the order of the three of document 004 E."""
    metric, rows = contamination["metric"], contamination["rows"]
    passes = range(1, 1 + max((len(row["epochs"]) for row in rows), default=0))
    yield f"{metric}:"
    head = ["data set", "noise", "orders", "variant", *(f"pass {n}" for n in passes)]
    shown = (
        [*_who(row), *map(_mean, row["epochs"]), _plain(row["change"]), _plain(row["late"])]
        for row in rows
    )
    yield table([*head, "3 − 1", "3 − 2"], shown)
    yield "Difference to the default, and successes in memory:"
    names = [f"{what}, pass {n}" for what in ("difference", "successes") for n in passes]
    beside = (
        [*_who(row), *map(_difference, row["epochs"]), *map(_share, row["epochs"])] for row in rows
    )
    yield table(["data set", "noise", "orders", "variant", *names], beside)
    for of in contamination["ordered"]:
        says = "as document 004 claims" if of["claimed"] else "**not** as document 004 claims"
        order = " < ".join(of["order"])
        yield f"{of['dataset']}, noise {of['noise']}, last pass: {order}: {says}."
    yield _CONTAMINATION_NOTE


def region_tables(regions: Mapping[str, Any]) -> Iterator[str]:
    """One table per measure."""
    rows = regions["rows"]
    for metric in dict.fromkeys(name for row in rows for name in row["parts"]["first pass"]):
        own = [row for row in rows if metric in row["parts"]["first pass"]]
        shown = (
            [row["dataset"], row["feedback"], row["orders"], row["variant"]]
            + [_beside(of[metric]) for of in row["parts"].values()]
            for row in own
        )
        yield f"{metric}:"
        head = ["data set", "feedback", "orders", "variant", *own[0]["parts"]]
        yield table(head, shown)
    yield _REGIONS_NOTE


def _who(row: Mapping[str, Any]) -> list[object]:
    return [row["dataset"], row["noise"], row["orders"], row["variant"]]


def _mean(of: Mapping[str, Any]) -> str:
    return with_interval(of["mean"], of["mean_ci95"])


def _plain(of: Mapping[str, Any]) -> str:
    return with_interval(of["difference"], of["ci95"], sign="+")


def _difference(of: Mapping[str, Any]) -> str:
    return "–" if of["p"] is None else f"{_plain(of)}, p {of['p']:.4f}"


def _share(of: Mapping[str, Any]) -> str:
    return "–" if of["successes"] is None else f"{of['successes']:.3f}"


def _beside(of: Mapping[str, Any]) -> str:
    return f"{of['mean']:.3f}" if of["p"] is None else f"{of['mean']:.3f}; {_difference(of)}"
