"""What the commands share: options, output, and how errors become exit codes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import wraps
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from crabpath_retrievers.errors import CrabPathError, InvalidInputError, NotFoundError
from crabpath_retrievers.opening import place_of, require_existing
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.text import printable


class Terminal(Console):
    """A console on which no title, name or message of others gives orders to the terminal."""

    def render_str(self, text: str, **options: Any) -> Text:
        """Every text passes here before it is laid out, those in tables too."""
        return super().render_str(printable(text), **options)


class _Warnings(logging.Handler):
    """Prints what the library logs for whoever runs a command and has set up no logging."""

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
Namespace = Annotated[str, typer.Option("--namespace", "-n", help="Whose learned weights apply.")]
Whose = Annotated[str, typer.Option("--namespace", "-n", help="Whose.")]
Place = Annotated[str | None, typer.Argument(metavar="[PATH]", help="As --store.")]
DEFAULT_STORE = "memory"


@contextmanager
def existing_store(store: str) -> Iterator[GraphStore]:
    """The graph store of a memory that exists, without its vectors, which a server may hold."""
    place = place_of(store)
    require_existing(place)
    with closing(GraphStore(place)) as opened:
        yield opened


def handled(command: Callable[..., None]) -> Callable[..., None]:
    """Print the project's errors as one sentence and turn them into exit codes."""

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
