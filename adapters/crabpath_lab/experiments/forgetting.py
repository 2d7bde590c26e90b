"""Selective forgetting: unused edges become dormant, and active again with use."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.corpora.work import CODING, SAFETY, Job
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.job_shift import (
    EdgeWeights,
    JobShift,
    dormant_share,
    edges_within,
)
from crabpath_lab.experiments.judging import compare_mean, compare_share, conclude
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    open_memory,
    sample_pages,
    shuffle_pages,
)
from crabpath_retrievers.config import LearningSettings, Settings, TierSettings
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE

TURNS_ALL_JOBS, TURNS_KEPT_JOBS = 45, 85
"""Questions about all jobs, and then about those that are kept."""

_SETTINGS = Settings(learning=LearningSettings(half_life=80.0))
_FILLER_PAGES = 12
_RETURNING_JOBS = 3
_MAX_USES = 10  # uses of a job after which nobody waits any longer
_STATIC = {
    "accuracy on what was left, asleep": "accuracy on what was left, static",
    "accuracy over all questions": "accuracy over all questions, static",
}
_HABITUAL = TierSettings().habitual
_MIN_DORMANT = 0.87


def _run(
    embeddings: Embeddings, seed: int, turns: tuple[int, int] = (TURNS_ALL_JOBS, TURNS_KEPT_JOBS)
) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, CODING, SAFETY, sample_pages(draws, office_pages(), _FILLER_PAGES))
    asleep = list[float]()
    with open_memory(pages, embeddings, _SETTINGS) as memory:
        scene = JobShift(memory, draws)
        for _ in range(turns[0]):
            scene.do_any_job()
            asleep.append(dormant_share(scene.edges()))
        before, known = scene.edges(), scene.accuracy(DEFAULT_NAMESPACE)
        for _ in range(turns[1]):
            scene.do_kept_job()
            asleep.append(dormant_share(scene.edges()))
        after = scene.edges()
        return SeedResult(
            {
                "learned edges": float(len(after)),
                "dormant edges": asleep[-1],
                "dormant edges of what was left, before": dormant_share(
                    edges_within(scene.dropped, before)
                ),
                "dormant edges of what was left": dormant_share(edges_within(scene.dropped, after)),
                "dormant edges of what is used": dormant_share(edges_within(scene.kept, after)),
                "accuracy on what was left, before": known,
                "accuracy on what was left, asleep": scene.accuracy(DEFAULT_NAMESPACE),
                "accuracy on what was left, static": scene.accuracy(UNTAUGHT),
                "uses of a job until it is awake again": _slowest_recovery(scene, before),
                "accuracy over all questions": float(np.mean(scene.agent.successes)),
                "accuracy over all questions, static": float(np.mean(scene.static)),
            },
            {"share of learned edges that are dormant": asleep},
        )


def _slowest_recovery(scene: JobShift, before: EdgeWeights) -> float:
    """Count the uses of the slowest dropped job until its edges are active again."""
    return float(max(_count_uses(scene, job, before) for job in scene.dropped[:_RETURNING_JOBS]))


def _count_uses(scene: JobShift, job: Job, before: EdgeWeights) -> int:
    awake = {edge for edge, weight in edges_within((job,), before).items() if weight >= _HABITUAL}
    for use in range(_MAX_USES + 1):
        now = scene.edges()
        if all(now.get(edge, 0.0) >= _HABITUAL for edge in awake):
            return use
        scene.do_job((job,))
    return _MAX_USES + 1


def _judge(found: BySeed) -> ExperimentVerdict:
    asleep, used = found["dormant edges of what was left"], found["dormant edges of what is used"]
    back = found["uses of a job until it is awake again"]
    held = (
        compare_mean(f"{_MIN_DORMANT:.0%} of what was left dormant", asleep, least=_MIN_DORMANT),
        compare_share("nothing in use dormant", [share == 0 for share in used]),
        compare_mean(f"awake within {_MAX_USES} uses", back, most=_MAX_USES),
        *(
            compare_mean(
                f"{ours}: not below static, difference",
                np.subtract(found[ours], found[_STATIC[ours]]),
                least=0,
            )
            for ours in ("accuracy on what was left, asleep", "accuracy over all questions")
        ),
    )
    reason = (
        f"{np.mean(asleep):.0%} of the edges of what was left are dormant, {np.mean(used):.0%} of "
        f"those in use, {np.mean(found['dormant edges']):.0%} of all; a job that comes back is "
        f"awake after {np.mean(back):.1f} uses; accuracy is {held[-1].mean:+.3f} against a memory "
        "that never learned"
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="forgetting",
    title="Selective forgetting",
    scene=(
        "An agent does ten jobs, of two or three pages each, among 38 pages; then the work moves "
        "on and only two of them are left to do; at last some of the others come back. It has room "
        "for four documents and says how it ended and which pages it worked with. Weights have a "
        "half-life of 80 turns, as in [CrabPath] §4.4."
    ),
    paper=(
        "[CrabPath] §3.3: 87 to 95 % of the edges dormant, forgetting is reversible; "
        "[OpenClawBrain] §4.4: 93.3 % "
        "dormant from query 25 on, the 10 edges in use stay"
    ),
    run=_run,
    verdict=_judge,
    across="question",
    up="share of learned edges",
)
