"""Where the figures of a run go: a table for people, JSON for programs, a report for both."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.attribution import evaluate_attribution
from crabpath_retrievers.evaluation.episodes.evaluate import evaluate_episodes
from crabpath_retrievers.evaluation.evaluate import evaluate
from crabpath_retrievers.evaluation.folders import usable_file, usable_folder
from crabpath_retrievers.evaluation.learning.measuring import measure_learning
from crabpath_retrievers.evaluation.learning.plan import LearningPlan
from crabpath_retrievers.evaluation.plan import Plan
from crabpath_retrievers.evaluation.reporting.attribution_table import attribution_table
from crabpath_retrievers.evaluation.reporting.episodes_table import episodes_tables
from crabpath_retrievers.evaluation.reporting.learning import learning_tables, write_learning_report
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
    _require_usable(json_file, folder)
    with _whole_vectors(plan.cache):
        figures = evaluate(plan)
    _write(figures, json_file)
    if folder is not None:
        write_report(figures, folder)
    return summary(figures)


def attribute_and_write(
    paths: Mapping[str, Path], *, cache: Path | None = None, json_file: Path | None = None
) -> str:
    """Measure attribution and write the figures.

    Args:
        paths: File or folder by data set.
        cache: Directory that keeps embeddings.
        json_file: File for all figures.

    Returns:
        The table, as Markdown.

    Raises:
        InvalidInputError: The data or the place to write to cannot be used.
    """
    usable_file(json_file)
    figures = evaluate_attribution(paths, cache=cache)
    _write(figures, json_file)
    return attribution_table(figures)


def foretell_and_write(
    path: Path, *, cache: Path | None = None, json_file: Path | None = None
) -> str:
    """Measure what the region MDP foretells and write the figures.

    Args:
        path: Trajectories of tau-bench.
        cache: Directory that keeps embeddings.
        json_file: File for all figures.

    Returns:
        The tables, as Markdown.

    Raises:
        InvalidInputError: The data or the place to write to cannot be used.
    """
    usable_file(json_file)
    with _whole_vectors(cache):
        figures = evaluate_episodes(path, cache=cache)
    _write(figures, json_file)
    return episodes_tables(figures)


def measure_learning_and_write(
    plan: LearningPlan, *, json_file: Path | None = None, folder: Path | None = None
) -> str:
    """Measure what learning gives; the JSON is written anew whenever a figure was added.

    Args:
        plan: What to measure.
        json_file: File for all figures; an interrupted run leaves those that it has.
        folder: Directory for ``report.md`` and its plots.

    Returns:
        The tables, as Markdown.

    Raises:
        InvalidInputError: The plan, the data or a place to write to cannot be used.
    """
    _require_usable(json_file, folder)
    with _whole_vectors(plan.cache):
        figures = measure_learning(plan, partial(_write, json_file=json_file))
    if folder is not None:
        write_learning_report(figures, folder)
    return learning_tables(figures)


def _require_usable(json_file: Path | None, folder: Path | None) -> None:
    """Refuse places that cannot be written, before the work begins."""
    usable_file(json_file)
    if folder is not None:
        usable_folder(folder, "hold the report")


@contextmanager
def _whole_vectors(cache: Path | None) -> Iterator[None]:
    """Say what to do about a damaged cache."""
    try:
        yield
    except json.JSONDecodeError as error:  # data sets are checked; vectors in the cache are not
        msg = f"{cache} holds a vector that was written in part: delete the directory"
        raise InvalidInputError(msg) from error


def _write(figures: Mapping[str, Any], json_file: Path | None) -> None:
    if json_file is not None:
        # Moved into place, so that a run that is killed leaves a whole file.
        part = json_file.with_name(f"{json_file.name}.part")
        part.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        part.replace(json_file)
