"""Commands that operate a memory: files that change, checks, archives, replays, snapshots, lift."""

import typer

from crabpath_retrievers.cli.commands import Commands, add_commands, add_group
from crabpath_retrievers.parts.operation.commands import (
    explaining,
    learning,
    listing,
    maintenance,
    sources,
    transfer,
)


def register(app: typer.Typer) -> None:
    """Add the commands."""
    documents: Commands = {
        "ingest": sources.run_ingest,
        "sync": sources.run_sync,
        "list": listing.list_contents,
    }
    add_commands(app, "Documents", documents)
    asks: Commands = {"explain": explaining.run_explain, "demo": explaining.show_demo_result}
    add_commands(app, "Ask", asks)
    reports: Commands = {
        "lift": learning.show_report,
        "report": learning.show_report,
        "replay": transfer.run_replay,
    }
    add_commands(app, "Feedback", reports)
    history: Commands = {
        "snapshot": learning.run_snapshot,
        "delete": learning.run_delete_snapshot,
        "list": learning.show_snapshots,
        "restore": learning.run_restore,
        "freeze": learning.freeze_namespace,
        "unfreeze": learning.unfreeze_namespace,
    }
    summary = "Snapshots of what a namespace has learned; freezing it."
    add_group(app, "Operate", "history", summary, history)
    checks: Commands = {
        "ready": maintenance.run_ready,
        "health": maintenance.run_health,
        "doctor": maintenance.run_doctor,
        "maintain": maintenance.run_maintain,
        "reindex": maintenance.run_reindex,
        "reembed": maintenance.run_reembed,
    }
    add_commands(app, "Operate", checks)
    archives: Commands = {
        "export": transfer.run_export,
        "graphml": transfer.export_graph,
        "import": transfer.import_archive,
        "migrate": transfer.migrate_memory,
    }
    summary = "Archives of a memory or a namespace; other databases."
    add_group(app, "Move", "transfer", summary, archives)
    knobs: Commands = {
        "run": maintenance.run_tune,
        "show": maintenance.show_knobs,
        "set": maintenance.run_set_knobs,
        "reset": maintenance.run_reset_knobs,
    }
    summary = "Four knobs of a namespace: measured, set by hand, or reset."
    add_group(app, "Operate", "tune", summary, knobs)
