"""Where the figures of a run go: a table for people, JSON for programs, a report for both."""

import json
from pathlib import Path

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.evaluate import evaluate
from crabpath_retrievers.evaluation.folders import usable_folder
from crabpath_retrievers.evaluation.plan import Plan
from crabpath_retrievers.evaluation.reporting.report import summary, write_report


def evaluate_and_write(
    plan: Plan, *, json_file: Path | None = None, folder: Path | None = None
) -> str:
    """Measure and write; places that cannot be written are refused before the work begins.

    Args:
        plan: What to measure.
        json_file: File for all figures.
        folder: Directory for ``report.md`` and its plots.

    Returns:
        The tables, as Markdown.

    Raises:
        InvalidInputError: The plan, the data or a place to write to cannot be used.
    """
    if json_file is not None:
        usable_folder(json_file.parent, "hold the figures")
        if json_file.is_dir():
            msg = f"{json_file} is a directory: give the name of a file for --json"
            raise InvalidInputError(msg)
    if folder is not None:
        usable_folder(folder, "hold the report")
    try:
        figures = evaluate(plan)
    except json.JSONDecodeError as error:  # data sets are checked; vectors in the cache are not
        msg = f"{plan.cache} holds a vector that was written in part: delete the directory"
        raise InvalidInputError(msg) from error
    if json_file is not None:
        json_file.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    if folder is not None:
        write_report(figures, folder)
    return summary(figures)
