"""Prune health: maintenance removes faded edges, and accuracy stays."""

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.experiments.corpora.office import office_pages
from benchmarks.experiments.corpora.work import CODING, CODING_JOBS, SAFETY, SAFETY_JOBS
from benchmarks.experiments.experiment import BySeed, Experiment, ExperimentVerdict, SeedResult
from benchmarks.experiments.job_shift import ROOM, JobShift, dormant_share
from benchmarks.experiments.memory_setup import UNTAUGHT, open_memory, sample_pages, shuffle_pages
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
    """Ids of the documents returned for every question of every job."""
    asked = [question for job in (*CODING_JOBS, *SAFETY_JOBS) for question in job.questions]
    found = [memory.retrieve(question, k=ROOM, record=False).documents for question in asked]
    return [[item.node.id for item in documents] for documents in found]


def _share_equal(first: list[list[str]], second: list[list[str]]) -> float:
    return float(np.mean([a == b for a, b in zip(first, second, strict=True)]))


def _judge(found: BySeed) -> ExperimentVerdict:
    pairs = {
        what: (found[f"{what}{before}"], found[f"{what}{after}"])
        for what, before, after in (
            ("edges", " before", " after"),
            ("dormant", " before", " after"),
            ("accuracy on what was left", ", before", ", after"),
        )
    }
    edges, asleep, right = ([float(np.mean(side)) for side in both] for both in pairs.values())
    works = pairs["accuracy on what was left"][0] == pairs["accuracy on what was left"][1]
    undone = [back == 1.0 for back in found["undo gives all back"]]
    reason = (
        f"edges {edges[0]:.0f} → {edges[1]:.0f}, dormant {asleep[0]:.0%} → {asleep[1]:.0%}, undo "
        f"gives all edges back in {sum(undone)} of {len(undone)} seeds; accuracy on what was left "
        f"{right[0]:.3f} → {right[1]:.3f}, without learning "
        f"{np.mean(found['accuracy on what was left, static']):.3f}{'' if works else _EXPLANATION}"
    )
    held = works and all(undone) and edges[1] < edges[0] and asleep[1] <= _MAX_DORMANT
    return ExperimentVerdict("reproduced" if held else "not reproduced", reason)


EXPERIMENT = Experiment(
    name="prune",
    title="Prune health",
    scene=(
        "An agent does ten jobs, of two or three pages each, among 38 pages; then the work moves "
        "on and only two of them are left to do. Weights have a half-life of 20 turns. Then "
        "maintenance runs its steps fade and prune, and is undone at last."
    ),
    paper="[OpenClawBrain] §4.14.2: edges 870 → 24, dormant 98 % → 29 %, traversal still works",
    must="the same accuracy before and after, and undo restores every edge, in all seeds",
    run=_run,
    verdict=_judge,
    across="question; the last point is after maintenance",
    up="learned edges",
)
