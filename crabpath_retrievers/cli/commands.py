"""What commands share: options, output, exit codes for errors, and how they join the command line.

A part has an entry point of the group ``crabpath.commands``: a function that takes an application
and adds its commands to it. Whatever adds them, their errors are printed by :class:`Program`.
"""

import inspect
import json
import logging
import shlex
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import partial, wraps
from importlib.metadata import entry_points
from pathlib import Path
from threading import Event
from typing import Annotated, Any, get_args

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.table import Column, Table
from rich.text import Text
from typer.core import TyperCommand, TyperGroup
from typer.main import get_group
from typing_extensions import TypedDict, get_type_hints

from crabpath_retrievers.config import Settings
from crabpath_retrievers.core.extras import PARTS, explain_missing_part, load_attribute
from crabpath_retrievers.core.text import to_printable
from crabpath_retrievers.errors import (
    ConfigurationError,
    CrabPathError,
    InvalidInputError,
    NotFoundError,
)
from crabpath_retrievers.learning.recorder import Recorder
from crabpath_retrievers.learning.standalone import parse_settings, read_published_settings
from crabpath_retrievers.storage import GraphStore
from crabpath_retrievers.vectors.opening import place_of, require_existing, require_graph


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


def leave_receipts_to_command() -> None:
    """Print no warnings about feedback: the command prints the receipts."""
    handler = _Warnings(logging.WARNING)
    handler.addFilter(lambda record: record.name != Recorder.__module__)
    logging.lastResort = handler


out = Terminal()
errors = Terminal(stderr=True)

Store = Annotated[
    str, typer.Option("--store", "-s", envvar="CRABPATH_STORE", help="Directory or database URL.")
]
Vectors = Annotated[
    str | None,
    typer.Option(
        envvar="CRABPATH_VECTORS",
        help="Directory of the vectors, URL of a Chroma server, or pgvector for the database of "
        "the store, which remembers it; the others are needed for a store at a URL.",
    ),
]
Replica = Annotated[
    str | None,
    typer.Option(
        envvar="CRABPATH_REPLICA",
        help="URL of a streaming standby of the database of the store, which queries read.",
    ),
]
EmbedderName = Annotated[
    str | None,
    typer.Option(
        "--embeddings",
        envvar="CRABPATH_EMBEDDINGS",
        metavar="PROVIDER:MODEL",
        help="Embedder, such as openai:text-embedding-3-small, which the memory remembers; or "
        "module:attribute for one of yours.",
    ),
]


class PlaceFlags(TypedDict, total=False):
    """Options by which a command opens a memory."""

    vectors: Vectors


class OpenFlags(PlaceFlags, total=False):
    """Options of a command that embeds texts."""

    embeddings: EmbedderName


class QueryFlags(OpenFlags, total=False):
    """Options of a command that asks questions."""

    replica: Replica


Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before deleting.")]
namespace_option = partial(typer.Option, "--namespace", "-n")
Namespace = Annotated[str, namespace_option(help="The namespace whose learned weights apply.")]
OneNamespace = Annotated[str, namespace_option(help="The namespace.")]
Within = Annotated[str | None, namespace_option(help="Look in this namespace alone.")]
Place = Annotated[str | None, typer.Argument(metavar="STORE", help="As --store.")]
StoreOrFile = Annotated[
    Path, typer.Argument(metavar="[STORE] FILE", help="The file; before it the store, or --store.")
]
_File = Annotated[str | None, typer.Argument(hidden=True)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only report what would change.")]
DEFAULT_STORE = "memory"
DEMO_STORE = "demo-memory"
"""Where the demo leaves its memory, to be explored."""


@dataclass(frozen=True, slots=True)
class Output:
    """Output of a command, in a form for people and one for programs.

    Attributes:
        data: Printed as JSON with ``--json``.
        text: Printed otherwise: lines with markup, and tables.
        warnings: Printed on standard error before the text, and not with ``--json``.
        errors: Printed on standard error in any case.
        code: Exit code.
    """

    data: object
    text: Iterable[RenderableType] = ()
    warnings: Iterable[str] = ()
    errors: Iterable[str] = ()
    code: int = 0

    def print(self, *, as_json: bool) -> None:
        """Print the output, then exit with its code unless that is 0."""
        if as_json:
            typer.echo(json.dumps(self.data))
        else:
            for warning in self.warnings:
                errors.print(warning)
            for part in self.text:
                out.print(part)
        for error in self.errors:
            errors.print(error)
        if self.code:
            raise typer.Exit(self.code)


def make_table(
    columns: Sequence[str | Column], rows: Iterable[Sequence[RenderableType]], **options: Any
) -> Table:
    """Make a table, without lines unless ``options`` say so.

    Markup in cells is shown as it is.
    """
    table = Table(*columns, **{"box": None, "pad_edge": False, **options})
    for row in rows:
        table.add_row(*(escape(cell) if isinstance(cell, str) else cell for cell in row))
    return table


def list_counts(counts: Mapping[str, int]) -> str:
    """Format counts with their names: ``3 added, 1 removed``."""
    return ", ".join(f"{number} {name}" for name, number in counts.items())


def dim(text: str) -> str:
    """Dim a text that is less important than the others; its markup is escaped."""
    return f"[dim]{escape(text)}[/dim]"


def confirm_deletion(question: str, *, yes: bool) -> None:
    """Confirm a deletion if a person can answer; a no ends the command."""
    if not yes and sys.stdin.isatty():
        typer.confirm(to_printable(question), abort=True, err=True)


@contextmanager
def existing_store(store: str) -> Iterator[GraphStore]:
    """Open the graph store of an existing memory, without its vectors."""
    place = place_of(store)
    require_existing(place)
    require_graph(place)
    with closing(GraphStore(place)) as opened:
        yield opened


@contextmanager
def catch_signals() -> Iterator[Event]:
    """Yield an event that the first SIGTERM or SIGINT sets; a second one ends the process."""
    ended = Event()
    former: dict[int, Any] = {n: signal.getsignal(n) for n in (signal.SIGTERM, signal.SIGINT)}

    def end(number: int, _frame: object) -> None:
        ended.set()
        signal.signal(number, former[number])

    for number in former:
        signal.signal(number, end)
    try:
        yield ended
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def stored_settings(store: GraphStore) -> Settings:
    """Read the settings that the process serving a memory has published in its store."""
    return parse_settings(read_published_settings(store))


def parse_time(option: str, text: str | None) -> datetime | None:
    """Parse a time in ISO 8601, given to an option; None for None."""
    try:
        return None if text is None else datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError as error:
        msg = f"{option} must be a time such as 2027-01-01 or 2027-01-01T08:00, not {text!r}"
        raise InvalidInputError(msg) from error


def _list_parameters(command: Callable[..., Any]) -> list[inspect.Parameter]:
    """List the parameters of a command, each key of its ``**`` options too, None by default."""
    found, kind = list[inspect.Parameter](), inspect.Parameter.KEYWORD_ONLY
    for parameter in inspect.signature(command).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            (options,) = get_args(parameter.annotation)  # of Unpack[...]
            flags = get_type_hints(options, include_extras=True).items()
            found += [inspect.Parameter(n, kind, default=None, annotation=a) for n, a in flags]
        else:
            found.append(parameter)
    return found


class Program(TyperGroup):
    """A program that prints errors of the library as one sentence, and exits with a code."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        logging.lastResort = _Warnings(logging.WARNING)
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            errors.print("Stopped")
            raise typer.Exit(130) from None
        except CrabPathError as error:
            errors.print(f"[red]Error:[/red] {escape(str(error))}")
            usage = isinstance(error, (InvalidInputError, NotFoundError))
            raise typer.Exit(2 if usage else 1) from error


def take_place(command: Callable[..., None]) -> Callable[..., None]:
    """Let a command take its store as an argument as well, if it has no other argument.

    A command with a ``file`` takes the file first, or the store and after it the file.
    """
    parameters, kind = _list_parameters(command), inspect.Parameter.KEYWORD_ONLY
    names = {parameter.name for parameter in parameters}
    if "store" in names and ("file" in names or not any(map(_is_argument, parameters))):
        given = _File if "file" in names else Place
        parameters.append(inspect.Parameter("place", kind, default=None, annotation=given))
    parameters.append(inspect.Parameter("context", kind, annotation=typer.Context))

    @wraps(command)
    def wrapper(
        *args: Any, context: typer.Context, place: str | None = None, **kwargs: Any
    ) -> None:
        if place is not None and "file" in kwargs:
            place, kwargs["file"] = str(kwargs["file"]), Path(place)
        if place is not None:
            _require_one_store(context, place, kwargs["store"])
            kwargs["store"] = place
        if kwargs.get("embeddings"):
            kwargs["embeddings"] = _load_embedder(kwargs["embeddings"])
        command(*args, **kwargs)

    return _declare(wrapper, parameters)


def _load_embedder(name: str) -> Any:
    """Load the object that ``module:attribute`` names; return any other text as it is."""
    try:
        found = load_attribute(name)
    except Exception as error:  # whatever a module of others raises
        module, _, attribute = name.partition(":")
        if {getattr(error, "name", None)} & {module, attribute}:  # of a provider and its model
            return name
        msg = f"--embeddings {name} cannot be loaded ({type(error).__name__}: {error})"
        raise InvalidInputError(msg) from error
    return name if found is None else found


def _require_one_store(context: typer.Context, argument: str, option: str) -> None:
    """Refuse a store as argument beside another as ``--store``, which would be ignored."""
    source = context.get_parameter_source("store")
    said = source is not None and source.name == "COMMANDLINE"
    if said and place_of(option) != place_of(argument):
        msg = f"two stores are given, {argument} and --store {option}: give one of them"
        raise InvalidInputError(msg)


def _is_argument(parameter: inspect.Parameter) -> bool:
    """Whether a parameter of a command is no option."""
    metadata = getattr(parameter.annotation, "__metadata__", ())
    return any(isinstance(item, typer.models.ArgumentInfo) for item in metadata)


def _declare(
    wrapper: Callable[..., None], parameters: Sequence[inspect.Parameter]
) -> Callable[..., None]:
    """Give a wrapper the parameters from which Typer makes the command line."""
    wrapper.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    wrapper.__annotations__ = {p.name: p.annotation for p in parameters}
    return wrapper


def print_output(command: Callable[..., Output | Iterator[Output]]) -> Callable[..., None]:
    """Make a command that prints the output of a function, as JSON with ``--json``."""

    @wraps(command)
    def wrapper(*args: Any, as_json: bool, **kwargs: Any) -> None:
        result = command(*args, **kwargs)
        for output in (result,) if isinstance(result, Output) else result:
            output.print(as_json=as_json)

    flag = inspect.Parameter(
        "as_json",
        inspect.Parameter.KEYWORD_ONLY,
        default=False,
        annotation=Annotated[bool, typer.Option("--json", help="Print JSON.")],
    )
    return take_place(_declare(wrapper, [*_list_parameters(command), flag]))


Commands = Mapping[str, Callable[..., Output | Iterator[Output]]]
"""Functions by the name of their command; what they return is printed."""

_OF_PARTS = {
    "server": ("crabpath_server", ("serve", "explore", "mcp", "token")),
    "eval": ("crabpath_lab", ("eval", "experiment")),
    "lab": ("crabpath_lab", ("ab", "compare", "fetch")),
}  # packages and commands of extras
_OURS = {"crabpath-retrievers", *(package.replace("_", "-") for package in PARTS)}

_UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer brings


class _Command(TyperCommand):
    """A command whose error explains how to pass a text that begins with a dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the command line."""
        typed = [*args]
        try:
            return super().parse_args(ctx, args)
        except _UsageError as error:
            options = {name for known in self.params for name in known.opts + known.secondary_opts}
            is_asked = any(p.required and p.param_type_name == "argument" for p in self.params)
            for text in typed if is_asked and "--" not in typed else ():
                is_option = " " not in text and {text.partition("=")[0], text[:2]} & options
                if text.startswith("-") and not is_option:
                    line = f"{ctx.command_path} -- {shlex.quote(text)}"
                    msg = f"{error.format_message()}\n"
                    msg += f"A text that begins with a dash stands behind two dashes: {line}"
                    raise _UsageError(msg, ctx) from error
            raise


def add_commands(app: typer.Typer, panel: str, commands: Commands) -> None:
    """Add commands whose output is printed, under a heading of the help."""
    for name, command in commands.items():
        app.command(name, cls=_Command, rich_help_panel=panel)(print_output(command))


def add_programs(app: typer.Typer, panel: str, programs: Mapping[str, Callable[..., None]]) -> None:
    """Add commands, given by name, that print by themselves; ``panel`` groups them in the help."""
    for name, program in programs.items():
        app.command(name, rich_help_panel=panel)(take_place(program))


def add_group(app: typer.Typer, panel: str, name: str, summary: str, commands: Commands) -> None:
    """Add a group of commands whose output is printed."""
    group = typer.Typer(no_args_is_help=True, help=summary)
    for member, command in commands.items():
        group.command(member, cls=_Command)(print_output(command))
    app.add_typer(group, name=name, rich_help_panel=panel)


def add_parts(app: typer.Typer) -> None:
    """Add the commands of all installed distributions; one that fails is left out.

    For a failed part of CrabPath, its commands and the help say why; of another distribution a line
    on standard error does. No distribution can replace a command of CrabPath.
    """
    parts = [(part.dist, part) for part in entry_points(group="crabpath.commands") if part.dist]
    failed: dict[str, str] = {}
    for dist, part in sorted(parts, key=lambda each: (each[0].name not in _OURS, each[1].name)):
        name, joined = dist.name, typer.Typer()
        try:
            part.load()(joined)
            if name not in _OURS:
                _require_new(app, joined, f"{name} {dist.version}")
        except (Exception, SystemExit) as error:
            reason = f"{name} {dist.version} adds no commands: {type(error).__name__}: {error}"
            failed[name] = str(error) if isinstance(error, CrabPathError) else reason
            if name not in _OURS:
                line = " ".join(failed[name].split()) + "; upgrade or uninstall it"
                errors.print(f"[yellow]{escape(line)}[/yellow]", soft_wrap=True)
        else:
            app.registered_commands += joined.registered_commands
            app.registered_groups += joined.registered_groups
    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for extra, (package, names) in _OF_PARTS.items():
        why = failed.get(package.replace("_", "-"))
        for name in names:
            if name not in known:
                _add_missing(app, name, why or explain_missing_part(package, extra))
    ours = [escape(why) for name, why in failed.items() if name in _OURS]
    app.info.epilog = "\n\n".join([str(app.info.epilog), *ours])


def _require_new(app: typer.Typer, joined: typer.Typer, who: str) -> None:
    """Refuse the distribution ``who`` if its commands, in ``joined``, would replace others."""
    known = {*get_group(app).commands, *(n for _, names in _OF_PARTS.values() for n in names)}
    if taken := sorted(known.intersection(get_group(joined).commands)):
        msg = f"{who} adds no commands: it would replace {', '.join(taken)} of crabpath"
        raise ConfigurationError(msg)


def _add_missing(app: typer.Typer, name: str, why: str) -> None:
    """Add a command that says why it is missing."""

    def refuse() -> None:
        raise ConfigurationError(why)

    refuse.__doc__ = escape(f"It cannot be used: {why}")
    any_words = {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    }
    app.command(name, hidden=True, context_settings=any_words)(refuse)
