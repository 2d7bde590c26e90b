"""Phenomena that the papers claim, reproduced with the retriever."""

from crabpath_lab.experiments.experiment import Experiment, SeedResult, VerdictWord
from crabpath_lab.experiments.judging import (
    compare_mean,
    compare_share,
    conclude,
    mean_interval,
    require_always,
)
from crabpath_lab.experiments.registry import EXPERIMENTS, select_experiments
from crabpath_lab.experiments.report import render_pages, run_and_write
from crabpath_lab.experiments.run import run_experiment

__all__ = [
    "EXPERIMENTS",
    "Experiment",
    "SeedResult",
    "VerdictWord",
    "compare_mean",
    "compare_share",
    "conclude",
    "mean_interval",
    "render_pages",
    "require_always",
    "run_and_write",
    "run_experiment",
    "select_experiments",
]
