"""Command ``crabpath fetch``: public data sets, as figures were measured on them."""

from pathlib import Path
from typing import Annotated, Any

import typer
from rich.markup import escape

from crabpath_lab.datasets.drawing import PublishedSet
from crabpath_lab.published import fetch_set, read_published_sets
from crabpath_retrievers.cli.commands import Output, dim, errors, make_table
from crabpath_retrievers.errors import InvalidInputError

Names = Annotated[
    list[str] | None, typer.Argument(metavar="SET", help="One or several; none prints all.")
]
Data = Annotated[Path, typer.Option(help="Folder of data sets; each has its place in it.")]
Source = Annotated[
    str | None,
    typer.Option(
        "--from", help="Folder with the published files, or address of one, instead of theirs."
    ),
]


def fetch_sets(names: Names = None, data: Data = Path("data"), source: Source = None) -> Output:
    """Fetch public data sets, and draw the samples that figures were measured on."""
    sets = read_published_sets()
    if unknown := [name for name in names or () if name not in sets]:
        msg = f"there is no data set {unknown[0]!r}: choose among {', '.join(sets)}"
        raise InvalidInputError(msg)
    if not names:
        rows = [(name, _describe_size(of), of["licence"]) for name, of in sets.items()]
        table = make_table(("set", "sample", "licence"), rows)
        return Output({name: of["licence"] for name, of in sets.items()}, [table])
    fetched: dict[str, dict[str, Any]] = {}
    lines: list[Any] = []
    for name in dict.fromkeys(names):
        path = fetch_set(sets[name], data, source, _tell)
        fetched[name] = {"path": str(path), "licence": sets[name]["licence"]}
        lines += _describe(name, sets[name], path)
    return Output(fetched, lines)


def _tell(url: str) -> None:
    errors.print(dim(f"fetching {url}"), soft_wrap=True)


def _describe(name: str, published: PublishedSet, path: Path) -> list[str]:
    lines = [
        escape(f"{name}: {path}, as measured, {_describe_size(published)}"),
        escape(f"  licence: {published['licence']}. For measuring only: do not ship it."),
    ]
    if "format" in published:
        lines.append(dim(f"  crabpath eval {published['format']} --data {path}"))
    return lines


def _describe_size(published: PublishedSet) -> str:
    if "questions" not in published:
        return "all of it"
    return f"{published['questions']:,} questions, {published['documents']:,} documents"
