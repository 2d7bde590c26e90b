"""Commands of the laboratory: ``compare``, ``fetch``, ``eval``, ``experiment`` and ``ab``."""

import typer

from crabpath_lab.commands import trials
from crabpath_lab.commands.comparing import run_compare
from crabpath_lab.commands.evaluation import run_evaluation, run_experiments
from crabpath_lab.commands.fetching import fetch_sets
from crabpath_retrievers.cli.commands import Commands, add_commands, add_group, add_programs


def register(app: typer.Typer) -> None:
    """Add the commands."""
    add_programs(app, "Research", {"eval": run_evaluation, "experiment": run_experiments})
    add_commands(app, "Research", {"fetch": fetch_sets, "compare": run_compare})
    commands: Commands = {
        "list": trials.list_trials,
        "report": trials.show_trial,
        "checkpoint": trials.check_trial,
        "promote": trials.promote_treatment,
        "roll-back": trials.roll_back_trial,
    }
    add_group(app, "Research", "ab", "A/B trials on the sessions of a memory.", commands)
