"""The command line. Exit codes: 0 done, 1 a store or environment problem, 2 unusable input."""

import typer

from crabpath_retrievers.cli.ab import ab
from crabpath_retrievers.cli.documents import run_add, run_forget, run_info, run_sync
from crabpath_retrievers.cli.evaluation import run_evaluation
from crabpath_retrievers.cli.feedback import (
    run_correct,
    run_feedback,
    run_learn,
    run_replay,
    run_teach,
    run_undo,
)
from crabpath_retrievers.cli.maintenance import (
    run_doctor,
    run_health,
    run_maintain,
    run_reindex,
    tune,
)
from crabpath_retrievers.cli.namespaces import history, transfer
from crabpath_retrievers.cli.queries import run_explain, run_query, show_demo_result
from crabpath_retrievers.cli.regions import show_regions

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Retrieval over a graph of your documents that learns from outcomes.",
)

_COMMANDS = {
    "Documents": {"add": run_add, "sync": run_sync, "forget": run_forget, "info": run_info},
    "Ask": {"query": run_query, "explain": run_explain, "demo": show_demo_result},
    "Feedback": {
        "feedback": run_feedback,
        "teach": run_teach,
        "correct": run_correct,
        "undo": run_undo,
        "learn": run_learn,
        "replay": run_replay,
    },
    "Operate": {
        "health": run_health,
        "doctor": run_doctor,
        "maintain": run_maintain,
        "reindex": run_reindex,
    },
    "Research": {"regions": show_regions, "eval": run_evaluation},
}
_GROUPS = {
    "history": ("Namespaces", history, "Snapshots of what a namespace has learned; freezing it."),
    "transfer": ("Namespaces", transfer, "Archives of a memory or a namespace; other databases."),
    "tune": ("Operate", tune, "Four knobs of a namespace: measured, set by hand, or reset."),
    "ab": ("Research", ab, "A/B trials on the sessions of a memory."),
}

for panel, commands in _COMMANDS.items():
    for name, command in commands.items():
        app.command(name, rich_help_panel=panel)(command)
for name, (panel, group, summary) in _GROUPS.items():
    app.add_typer(group, name=name, rich_help_panel=panel, help=summary)
