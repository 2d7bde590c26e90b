"""Prune health: maintenance removes faded edges, and accuracy stays."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
)
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.job_shift import ROOM, JobShift, dormant_share
from crabpath_lab.experiments.judging import (
    TINY,
    compare_mean,
    conclude,
    require_always,
)
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    open_memory,
    sample_pages,
    shuffle_pages,
)
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE

TURNS_ALL_JOBS, TURNS_KEPT_JOBS = 40, 80
"""Questions about all jobs, and then about those that are kept."""

_SETTINGS = Settings(learning=LearningSettings(half_life=20.0))
_FILLER_PAGES = 12
_MAX_DORMANT = 0.29  # share after it
_EXPLANATION = ": an edge that has all but faded still counts in the ranking, until it is pruned"


def _run(
    embeddings: Embeddings, seed: int, turns: tuple[int, int] = (TURNS_ALL_JOBS, TURNS_KEPT_JOBS)
) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, CODING, SAFETY, sample_pages(draws, office_pages(), _FILLER_PAGES))
    curve = list[float]()
    with open_memory(pages, embeddings, _SETTINGS) as memory:
        scene = JobShift(memory, draws)
        for work in (*[scene.do_any_job] * turns[0], *[scene.do_kept_job] * turns[1]):
            work()
            curve.append(float(len(scene.edges())))
        before, answers = scene.edges(), _ask_all(memory)
        known = scene.accuracy(DEFAULT_NAMESPACE)
        report = memory.maintenance.run(("fade", "prune"))
        after, pruned = scene.edges(), _ask_all(memory)
        figures = {
            "edges before": float(len(before)),
            "edges after": float(len(after)),
            "dormant before": dormant_share(before),
            "dormant after": dormant_share(after),
            "accuracy on what was left, before": known,
            "accuracy on what was left, after": scene.accuracy(DEFAULT_NAMESPACE),
            "accuracy on what was left, static": scene.accuracy(UNTAUGHT),
            "same documents in the same order": _share_equal(answers, pruned),
        }
        memory.maintenance.undo(report.run)
        figures["undo gives all back"] = float(scene.edges() == before)
        return SeedResult(figures, {"learned edges": [*curve, float(len(after))]})


def _ask_all(memory: CrabPath) -> list[list[str]]:
    """Ask every question of every job; returns the ids of the documents."""
    asked = [question for job in (*CODING_JOBS, *SAFETY_JOBS) for question in job.questions]
    found = [memory.retrieve(question, k=ROOM, record=False).documents for question in asked]
    return [[item.node.id for item in documents] for documents in found]


def _share_equal(first: list[list[str]], second: list[list[str]]) -> float:
    return float(np.mean([a == b for a, b in zip(first, second, strict=True)]))


def _judge(found: BySeed) -> ExperimentVerdict:
    edges, asleep, right = (
        (np.array(found[f"{what}before"]), np.array(found[f"{what}after"]))
        for what in ("edges ", "dormant ", "accuracy on what was left, ")
    )
    undone = [back == 1.0 for back in found["undo gives all back"]]
    held = (
        compare_mean("fewer edges, difference", edges[1] - edges[0], most=-TINY),
        compare_mean(f"at most {_MAX_DORMANT:.0%} dormant", asleep[1], most=_MAX_DORMANT),
        compare_mean("as accurate after it, difference", right[1] - right[0], least=0),
        require_always("undo gives all back", undone),
    )
    reason = (
        f"edges {edges[0].mean():.0f} → {edges[1].mean():.0f}, dormant {asleep[0].mean():.0%} → "
        f"{asleep[1].mean():.0%}, undo gives all edges back in {sum(undone)} of {len(undone)} "
        f"seeds; accuracy on what was left {right[0].mean():.3f} → {right[1].mean():.3f}, without "
        f"learning {np.mean(found['accuracy on what was left, static']):.3f}"
        f"{_EXPLANATION if held[2].answer == 'no' else ''}"
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="prune",
    title="Prune health",
    scene=(
        "An agent does ten jobs, of two or three pages each, among 38 pages; then the work moves "
        "on and only two of them are left to do. Weights have a half-life of 20 turns. Then "
        "maintenance runs its steps fade and prune, and is undone at last."
    ),
    paper="[OpenClawBrain] §4.14.2: edges 870 → 24, dormant 98 % → 29 %, traversal still works",
    run=_run,
    verdict=_judge,
    across="question; the last point is after maintenance",
    up="learned edges",
)
