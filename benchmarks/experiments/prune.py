"""Prune health: maintenance takes away what has faded, and nobody notices."""

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.experiments.corpora.office import texts
from benchmarks.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
)
from benchmarks.experiments.experiment import (
    BySeed,
    Experiment,
    Trial,
    Verdict,
)
from benchmarks.experiments.job_shift import K, Leaving, dormant
from benchmarks.experiments.memory_setup import (
    STATIC,
    memory_of,
    shuffled,
    some,
)
from crabpath_retrievers.config import LearningSettings, Settings
from crabpath_retrievers.memory import CrabPath
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE

ALL, FEW = 40, 80
"""Questions about all jobs, and then about those that are kept."""

_SETTINGS = Settings(learning=LearningSettings(half_life=20.0))
_FILLS = 12
_DORMANT = 0.29  # share after it
_WHY = ": an edge that has all but faded still counts in the ranking, until it is pruned"


def _play(embeddings: Embeddings, seed: int, turns: tuple[int, int] = (ALL, FEW)) -> Trial:
    draws = np.random.default_rng(seed)
    pages = shuffled(draws, CODING, SAFETY, some(draws, texts(), _FILLS))
    curve = list[float]()
    with memory_of(pages, embeddings, _SETTINGS) as memory:
        scene = Leaving(memory, draws)
        for work in (*[scene.everything] * turns[0], *[scene.go_on] * turns[1]):
            work()
            curve.append(float(len(scene.edges())))
        before, answers = scene.edges(), _answers(memory)
        known = scene.accuracy(DEFAULT_NAMESPACE)
        report = memory.run_maintenance(("fade", "prune"))
        after, pruned = scene.edges(), _answers(memory)
        figures = {
            "edges before": float(len(before)),
            "edges after": float(len(after)),
            "dormant before": dormant(before),
            "dormant after": dormant(after),
            "accuracy on what was left, before": known,
            "accuracy on what was left, after": scene.accuracy(DEFAULT_NAMESPACE),
            "accuracy on what was left, static": scene.accuracy(STATIC),
            "same documents in the same order": _same(answers, pruned),
        }
        memory.undo_maintenance(report.run)
        figures["undo gives all back"] = float(scene.edges() == before)
        return Trial(figures, {"learned edges": [*curve, float(len(after))]})


def _answers(memory: CrabPath) -> list[list[str]]:
    """To every question of every job."""
    asked = [question for job in (*CODING_JOBS, *SAFETY_JOBS) for question in job.questions]
    found = [memory.retrieve(question, k=K, record=False).documents for question in asked]
    return [[item.node.id for item in documents] for documents in found]


def _same(first: list[list[str]], second: list[list[str]]) -> float:
    return float(np.mean([a == b for a, b in zip(first, second, strict=True)]))


def _verdict(found: BySeed) -> Verdict:
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
        f"{np.mean(found['accuracy on what was left, static']):.3f}{'' if works else _WHY}"
    )
    held = works and all(undone) and edges[1] < edges[0] and asleep[1] <= _DORMANT
    return Verdict("reproduced" if held else "not reproduced", reason)


EXPERIMENT = Experiment(
    name="prune",
    title="Prune health",
    scene=(
        "An agent does ten jobs, of two or three pages each, among 38 pages; then the work moves "
        "on and only two of them are left to do. Weights have a half-life of 20 turns. Then "
        "maintenance runs its steps fade and prune, and is undone at last."
    ),
    paper="003 §4.14.2: edges 870 → 24, dormant 98 % → 29 %, traversal still works",
    must="the same accuracy before and after, and undo restores every edge, in all seeds",
    play=_play,
    verdict=_verdict,
    across="question; the last point is after maintenance",
    up="learned edges",
)
