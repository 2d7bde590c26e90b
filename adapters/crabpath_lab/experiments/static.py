"""Static against learned: the same questions frozen, with the heuristic, with the gradient."""

from functools import cache, partial

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from crabpath_lab.experiments.corpora.office import draw_office_task, office_pages
from crabpath_lab.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
    draw_job_task,
)
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import TINY, compare_mean, conclude
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    open_memory,
    shuffle_pages,
)
from crabpath_lab.experiments.simulated_agent import (
    AgentTask,
    SimulatedAgent,
    would_succeed,
)
from crabpath_lab.learning_rules import use_rules

TURNS = 70
_MIN_ROOM, _MAX_ROOM = 4, 6  # documents that the agents have room for


def _run(embeddings: Embeddings, seed: int, turns: int = TURNS) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, STEPS, NEAR, CODING, SAFETY, office_pages())
    tasks = [
        (_draw_task(draws), int(draws.integers(_MIN_ROOM, _MAX_ROOM + 1))) for _ in range(turns)
    ]
    with (
        open_memory(pages, embeddings) as memory,
        open_memory(pages, embeddings) as other,
    ):
        static = cache(partial(would_succeed, memory, namespace=UNTAUGHT))
        full, simple = SimulatedAgent(memory), SimulatedAgent(other)
        frozen = [static(task, k) for task, k in tasks]
        for task, k in tasks:
            full.work(task, k)
            with use_rules("rule heuristic"):
                simple.work(task, k)
    ways = {"static": frozen, "heuristic": simple.successes, "gradient": full.successes}
    halves = {"first half": slice(turns // 2), "second half": slice(turns // 2, None)}
    return SeedResult(
        {
            f"accuracy, {way}, {half}": float(np.mean(successes[of]))
            for way, successes in ways.items()
            for half, of in halves.items()
        },
        {way: _running_accuracy(successes) for way, successes in ways.items()},
    )


def _draw_task(draws: np.random.Generator) -> AgentTask:
    """Draw a question about the deployment, one of the jobs, or one of the office."""
    kind = int(draws.integers(4))
    if kind == 0:
        return AgentTask(str(draws.choice(QUESTIONS)), CHAIN)
    return (
        draw_office_task(draws) if kind == 1 else draw_job_task((*CODING_JOBS, *SAFETY_JOBS), draws)
    )


def _running_accuracy(successes: list[bool]) -> list[float]:
    """Compute the accuracy over all questions so far."""
    return [float(np.mean(successes[: turn + 1])) for turn in range(len(successes))]


def _judge(found: BySeed) -> ExperimentVerdict:
    static, gradient, heuristic = (
        np.array([found[f"accuracy, {way}, {half} half"] for half in ("first", "second")])
        for way in ("static", "gradient", "heuristic")
    )
    gain = gradient - static
    reason = (
        f"in the second half {gradient[1].mean():.3f} with the gradient and "
        f"{heuristic[1].mean():.3f} with the heuristic against {static[1].mean():.3f} static; "
        f"over all questions {gain.mean():+.3f} against static"
    )
    never = compare_mean("not below static, difference", gain.mean(axis=0), least=0)
    more = compare_mean("above static in the second half, difference", gain[1], least=TINY)
    return conclude(reason, (never,), (more,))


EXPERIMENT = Experiment(
    name="static",
    title="Static against learned",
    scene=(
        "Sixty pages; questions about a deployment of four pages, jobs of two or three, and the "
        "office, in changing wordings. Each is asked of a memory that never learns, of one that "
        "learns by the heuristic rule, and of one that learns by the policy gradient. The agents "
        "have room for four to six documents and say only whether they succeeded."
    ),
    paper=(
        "[OpenClawBrain] §4.11: static, heuristic and gradient all find the path at query 1; "
        "learning raises "
        "its weights from .40 to 1.00 and changes the 5 fired nodes not"
    ),
    run=_run,
    verdict=_judge,
    across="question",
    up="accuracy so far",
)
