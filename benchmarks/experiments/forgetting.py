"""Selective forgetting: what is not used any more falls asleep, and wakes up when it is."""

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.experiments.corpora.office import texts
from benchmarks.experiments.corpora.work import CODING, SAFETY, Job
from benchmarks.experiments.experiment import (
    BySeed,
    Experiment,
    Trial,
    Verdict,
)
from benchmarks.experiments.job_shift import Edges, Leaving, dormant, within
from benchmarks.experiments.memory_setup import (
    STATIC,
    memory_of,
    shuffled,
    some,
)
from crabpath_retrievers.config import LearningSettings, Settings, TierSettings
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE

ALL, FEW = 45, 85
"""Questions about all jobs, and then about those that are kept."""

_SETTINGS = Settings(learning=LearningSettings(half_life=80.0))
_FILLS = 12
_RETURNING = 3
_MOST = 10  # uses of a job after which nobody waits any longer
_STATIC = {
    "accuracy on what was left, asleep": "accuracy on what was left, static",
    "accuracy over all questions": "accuracy over all questions, static",
}
_HABITUAL = TierSettings().habitual
_DORMANT = 0.87
_SEEDS = 0.9


def _play(embeddings: Embeddings, seed: int, turns: tuple[int, int] = (ALL, FEW)) -> Trial:
    draws = np.random.default_rng(seed)
    pages = shuffled(draws, CODING, SAFETY, some(draws, texts(), _FILLS))
    asleep = list[float]()
    with memory_of(pages, embeddings, _SETTINGS) as memory:
        scene = Leaving(memory, draws)
        for _ in range(turns[0]):
            scene.everything()
            asleep.append(dormant(scene.edges()))
        before, known = scene.edges(), scene.accuracy(DEFAULT_NAMESPACE)
        for _ in range(turns[1]):
            scene.go_on()
            asleep.append(dormant(scene.edges()))
        after = scene.edges()
        return Trial(
            {
                "learned edges": float(len(after)),
                "dormant edges": asleep[-1],
                "dormant edges of what was left, before": dormant(within(scene.left, before)),
                "dormant edges of what was left": dormant(within(scene.left, after)),
                "dormant edges of what is used": dormant(within(scene.kept, after)),
                "accuracy on what was left, before": known,
                "accuracy on what was left, asleep": scene.accuracy(DEFAULT_NAMESPACE),
                "accuracy on what was left, static": scene.accuracy(STATIC),
                "uses of a job until it is awake again": _until_awake(scene, before),
                "accuracy over all questions": float(np.mean(scene.agent.successes)),
                "accuracy over all questions, static": float(np.mean(scene.static)),
            },
            {"share of learned edges that are dormant": asleep},
        )


def _until_awake(scene: Leaving, before: Edges) -> float:
    """How often a job that was left is done until its edges are what they were; the slowest."""
    return float(max(_uses(scene, job, before) for job in scene.left[:_RETURNING]))


def _uses(scene: Leaving, job: Job, before: Edges) -> int:
    awake = {edge for edge, weight in within((job,), before).items() if weight >= _HABITUAL}
    for use in range(_MOST + 1):
        now = scene.edges()
        if all(now.get(edge, 0.0) >= _HABITUAL for edge in awake):
            return use
        scene.work((job,))
    return _MOST + 1


def _verdict(found: BySeed) -> Verdict:
    asleep = found["dormant edges of what was left"]
    good = [
        left >= _DORMANT and not used and back <= _MOST
        for left, used, back in zip(
            asleep,
            found["dormant edges of what is used"],
            found["uses of a job until it is awake again"],
            strict=True,
        )
    ]
    worse = any(
        learned < static
        for ours in ("accuracy on what was left, asleep", "accuracy over all questions")
        for learned, static in zip(found[ours], found[_STATIC[ours]], strict=True)
    )
    reason = (
        f"{np.mean(asleep):.0%} of the edges of what was left are dormant, "
        f"{np.mean(found['dormant edges of what is used']):.0%} of those in use, "
        f"{np.mean(found['dormant edges']):.0%} of all; a job that comes back is awake after "
        f"{np.mean(found['uses of a job until it is awake again']):.1f} uses, and accuracy "
        f"{'fell below' if worse else 'was never below'} that of a memory that never learned"
    )
    held = np.mean(good) >= _SEEDS and not worse
    return Verdict("reproduced" if held else "not reproduced", reason)


EXPERIMENT = Experiment(
    name="forgetting",
    title="Selective forgetting",
    scene=(
        "An agent does ten jobs, of two or three pages each, among 38 pages; then the work moves "
        "on and only two of them are left to do; at last some of the others come back. It has room "
        "for four documents and says how it ended and which pages it worked with. Weights have a "
        "half-life of 80 turns, as in document 000 §4.4."
    ),
    paper=(
        "000 §3.3: 87 to 95 % of the edges dormant, forgetting is reversible; 003 §4.4: 93.3 % "
        "dormant from query 25 on, the 10 edges in use stay"
    ),
    must=(
        "87 % of the edges of what was left dormant, none of those in use, all back within 10 uses "
        "in 9 of 10 seeds; accuracy not below a memory that never learned"
    ),
    play=_play,
    verdict=_verdict,
    across="question",
    up="share of learned edges",
)
