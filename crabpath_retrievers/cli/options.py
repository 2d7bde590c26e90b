"""Options that commands share, their output, and exit codes for errors."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from crabpath_retrievers.core.text import to_printable
from crabpath_retrievers.errors import CrabPathError, InvalidInputError, NotFoundError
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.opening import place_of, require_existing


class Terminal(Console):
    """A console that strips control sequences from titles, names and messages."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Lay out a text, in tables too, without its control characters."""
        return super().render_str(to_printable(text), **options)


class _Warnings(logging.Handler):
    """Prints warnings of the library where no logging is configured."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one message."""
        errors.print(escape(self.format(record)), style="yellow")


out = Terminal()
errors = Terminal(stderr=True)

Store = Annotated[
    str, typer.Option("--store", "-s", envvar="CRABPATH_STORE", help="Directory or database URL.")
]
Vectors = Annotated[
    str | None,
    typer.Option(
        envvar="CRABPATH_VECTORS",
        help="Directory of the vectors, or URL of a Chroma server; needed for a store at a URL.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Namespace = Annotated[
    str, typer.Option("--namespace", "-n", help="The namespace whose learned weights apply.")
]
OneNamespace = Annotated[str, typer.Option("--namespace", "-n", help="The namespace.")]
Within = Annotated[
    str | None, typer.Option("--namespace", "-n", help="Look in this namespace alone.")
]
Memory = Annotated[str, typer.Argument(help="Directory or database URL of the memory.")]
Place = Annotated[str | None, typer.Argument(metavar="[PATH]", help="As --store.")]
DEFAULT_STORE = "memory"


@contextmanager
def existing_store(store: str) -> Iterator[GraphStore]:
    """Open the graph store of an existing memory, without its vectors."""
    place = place_of(store)
    require_existing(place)
    with closing(GraphStore(place)) as opened:
        yield opened


def report_errors(command: Callable[..., None]) -> Callable[..., None]:
    """A command that prints errors of the library as one sentence, and exits with a code."""

    @wraps(command)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        logging.lastResort = _Warnings(logging.WARNING)
        try:
            command(*args, **kwargs)
        except CrabPathError as error:
            errors.print(f"[red]Error:[/red] {escape(str(error))}")
            usage = isinstance(error, (InvalidInputError, NotFoundError))
            raise typer.Exit(2 if usage else 1) from error

    return wrapper
