"""How commands join the command line: those of the base, and those of installed parts.

A part has an entry point of the group ``crabpath.commands``: a function that takes the
application and adds its commands.
"""

import shlex
from collections.abc import Callable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import Any

import typer
from rich.markup import escape
from typer.core import TyperCommand

from crabpath_retrievers.cli.options import Output, errors, print_output, report_errors
from crabpath_retrievers.core.extras import explain_missing_part
from crabpath_retrievers.errors import MissingExtraError

Commands = Mapping[str, Callable[..., Output | Iterator[Output]]]
"""Functions by the name of their command; what they return is printed."""

_OF_PARTS = {
    "server": ("crabpath_server", ("serve", "explore", "mcp", "token")),
    "eval": ("crabpath_lab", ("eval", "experiment")),
    "lab": ("crabpath_lab", ("ab",)),
}  # packages and commands of extras

_UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer brings


class _Command(TyperCommand):
    """A command that says how to give it a text which begins with a dash."""

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
    """Add commands that print by themselves."""
    for name, program in programs.items():
        app.command(name, rich_help_panel=panel)(report_errors(program))


def add_group(app: typer.Typer, panel: str, name: str, summary: str, commands: Commands) -> None:
    """Add a group of commands whose output is printed."""
    group = typer.Typer(no_args_is_help=True, help=summary)
    for member, command in commands.items():
        group.command(member, cls=_Command)(print_output(command))
    app.add_typer(group, name=name, rich_help_panel=panel)


def add_parts(app: typer.Typer) -> None:
    """Add the commands of all installed parts; one that fails is left out, with a warning."""
    for part in sorted(entry_points(group="crabpath.commands"), key=lambda part: part.name):
        try:
            part.load()(app)
        except Exception as error:
            reason = escape(f"{type(error).__name__}: {error}")
            errors.print(
                f"[yellow]The commands of {escape(part.value)} are missing:[/yellow] {reason}"
            )
    known = {command.name for command in app.registered_commands}
    known |= {group.name for group in app.registered_groups}
    for extra, (package, names) in _OF_PARTS.items():
        for name in names:
            if name not in known:
                _add_missing(app, name, package, extra)


def _add_missing(app: typer.Typer, name: str, package: str, extra: str) -> None:
    """Add a command that says which extra brings it."""

    def refuse() -> None:
        raise MissingExtraError(explain_missing_part(package, extra))

    refuse.__doc__ = f"Needs crabpath-retrievers[{extra}], which is not installed."
    any_words = {
        "ignore_unknown_options": True,
        "allow_extra_args": True,
        "allow_interspersed_args": False,
    }
    app.command(name, hidden=True, context_settings=any_words)(report_errors(refuse))
