"""The command line."""

import shlex
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from typer.core import TyperCommand

from crabpath_retrievers import __version__
from crabpath_retrievers.cli import ab, documents, feedback, maintenance, namespaces, queries
from crabpath_retrievers.cli.evaluation import run_evaluation, run_experiments
from crabpath_retrievers.cli.options import Output, print_output, report_errors
from crabpath_retrievers.cli.regions import show_regions
from crabpath_retrievers.cli.serving import add_access_token, run_explore, run_mcp, run_serve

app = typer.Typer(
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    epilog="Exit codes: 0 done, 1 a store, a server or the installation fails, "
    "2 unusable input, 130 stopped by Ctrl-C.",
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


_UsageError: Any = typer.BadParameter.__mro__[1]  # of the click that typer brings


class _Command(TyperCommand):
    """A command that says how to give it a text which begins with a dash."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse what was typed."""
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


_Commands = dict[str, Callable[..., Output | Iterator[Output]]]
_COMMANDS: dict[str, _Commands] = {
    "Documents": {
        "add": documents.run_add,
        "ingest": documents.run_ingest,
        "sync": documents.run_sync,
        "list": documents.list_contents,
        "forget": documents.run_forget,
        "info": documents.run_info,
    },
    "Ask": {
        "query": queries.run_query,
        "explain": queries.run_explain,
        "demo": queries.show_demo_result,
    },
    "Feedback": {
        "feedback": feedback.run_feedback,
        "teach": feedback.run_teach,
        "correct": feedback.run_correct,
        "undo": feedback.run_undo,
        "learn": feedback.run_learn,
        "replay": feedback.run_replay,
        "lift": feedback.show_report,
        "report": feedback.show_report,
    },
    "Operate": {
        "ready": maintenance.run_ready,
        "health": maintenance.run_health,
        "doctor": maintenance.run_doctor,
        "maintain": maintenance.run_maintain,
        "reindex": maintenance.run_reindex,
        "reembed": maintenance.run_reembed,
        "token": add_access_token,
    },
    "Research": {"regions": show_regions},
}
_GROUPS: dict[str, tuple[str, str, _Commands]] = {
    "history": (
        "Operate",
        "Snapshots of what a namespace has learned; freezing it.",
        {
            "snapshot": namespaces.take_snapshot,
            "delete": namespaces.delete_snapshot,
            "list": namespaces.list_snapshots,
            "restore": namespaces.restore_snapshot,
            "freeze": namespaces.freeze_namespace,
            "unfreeze": namespaces.unfreeze_namespace,
        },
    ),
    "transfer": (
        "Move",
        "Archives of a memory or a namespace; other databases.",
        {
            "export": namespaces.run_export,
            "graphml": namespaces.export_graph,
            "import": namespaces.import_archive,
            "migrate": namespaces.migrate_memory,
        },
    ),
    "tune": (
        "Operate",
        "Four knobs of a namespace: measured, set by hand, or reset.",
        {
            "run": maintenance.run_tune,
            "show": maintenance.show_knobs,
            "set": maintenance.run_set_knobs,
            "reset": maintenance.run_reset_knobs,
        },
    ),
    "ab": (
        "Research",
        "A/B trials on the sessions of a memory.",
        {
            "list": ab.list_trials,
            "report": ab.show_trial,
            "checkpoint": ab.check_trial,
            "promote": ab.promote_treatment,
            "roll-back": ab.roll_back_trial,
        },
    ),
}

for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, cls=_Command, rich_help_panel=panel)(print_output(command))
_SERVING: dict[str, Callable[..., None]] = {
    "serve": run_serve,
    "explore": run_explore,
    "mcp": run_mcp,
}
for name, serving in _SERVING.items():
    app.command(name, rich_help_panel="Operate")(report_errors(serving))
app.command("eval", rich_help_panel="Research")(report_errors(run_evaluation))
app.command("experiment", rich_help_panel="Research")(report_errors(run_experiments))
for name, (panel, summary, members) in _GROUPS.items():
    group = typer.Typer(no_args_is_help=True, help=summary)
    for member, command in members.items():
        group.command(member, cls=_Command)(print_output(command))
    app.add_typer(group, name=name, rich_help_panel=panel)
