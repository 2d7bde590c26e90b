"""The command line."""

from typing import Annotated

import typer

from crabpath_retrievers import __version__
from crabpath_retrievers.cli import documents, feedback, queries
from crabpath_retrievers.cli.commands import Commands, Program, add_commands, add_parts

app = typer.Typer(
    cls=Program,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 a store, a server or the installation fails, "
    "2 unusable input, 130 stopped by Ctrl-C. Documentation: https://crabpath.github.io/crabpath/",
)


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"crabpath {__version__}")
        raise typer.Exit


@app.callback()
def describe_program(
    _version: Annotated[
        bool,
        typer.Option(
            "--version", "-V", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Retrieval over a graph of your documents that learns from outcomes."""


_COMMANDS: dict[str, Commands] = {
    "Documents": {
        "add": documents.run_add,
        "forget": documents.run_forget,
        "info": documents.run_info,
    },
    "Ask": {"query": queries.run_query},
    "Feedback": {
        "feedback": feedback.run_feedback,
        "teach": feedback.run_teach,
        "correct": feedback.run_correct,
        "undo": feedback.run_undo,
        "learn": feedback.run_learn,
    },
}
for panel, commands in _COMMANDS.items():
    add_commands(app, panel, commands)
add_parts(app)
