"""The command that plays what the papers claim."""

from pathlib import Path
from typing import Annotated

import typer

from crabpath_retrievers.cli.options import handled
from crabpath_retrievers.evaluation.extra import require_eval_extra


@handled
def experiment(
    names: Annotated[str, typer.Argument(help="One or several, with commas; all for all.")],
    seeds: Annotated[int, typer.Option(help="How often each is played.")] = 10,
    report: Annotated[
        Path | None, typer.Option(help="Directory for a page, a plot and the figures of each.")
    ] = None,
    cache: Annotated[Path | None, typer.Option(help="Directory that keeps embeddings.")] = None,
) -> None:
    """Play phenomena that the papers claim; see docs/experiments."""
    require_eval_extra()
    from crabpath_retrievers.evaluation.experiments.every import experiments
    from crabpath_retrievers.evaluation.reporting.experiments import play_and_write

    typer.echo(play_and_write(experiments(names), seeds, folder=report, cache=cache))
