"""Procedural memory: a procedure becomes a chain of edges from outcomes of the whole alone."""

from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from crabpath_lab.experiments.corpora.office import (
    PAGES,
    draw_office_task,
    office_pages,
)
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_share, conclude
from crabpath_lab.experiments.memory_setup import (
    UNTAUGHT,
    open_memory,
    strongest_weights,
)
from crabpath_lab.experiments.simulated_agent import (
    AgentTask,
    SimulatedAgent,
    would_succeed,
)
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import TierSettings

TURNS = 50
MIN_ROOM, MAX_ROOM = 4, 8  # documents that the agent has room for, drawn anew for every question
_REFLEX = TierSettings().reflex
_MAX_DISTRACTOR = 0.3


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    draws = np.random.default_rng(seed)
    static, chain = list[bool](), list[float]()
    with open_memory({**STEPS, **NEAR, **office_pages()}, embeddings) as memory:
        deploying, others = SimulatedAgent(memory), SimulatedAgent(memory)
        for _ in range(TURNS):
            k = int(draws.integers(MIN_ROOM, MAX_ROOM + 1))
            task = AgentTask(str(draws.choice(QUESTIONS)), CHAIN)
            static.append(would_succeed(memory, task, k, UNTAUGHT))
            deploying.work(task, k)
            others.work(draw_office_task(draws), k)
            chain.append(min(_chain_weights(memory)))
        learned, first = deploying.successes, _first_reflex(chain)
        return SeedResult(
            {
                "weakest edge of the chain": chain[-1],
                "queries until all are reflex": first,
                "strongest edge to a distractor": _strongest_distractor(memory),
                "accuracy, first half": float(np.mean(learned[: TURNS // 2])),
                "accuracy, second half": float(np.mean(learned[TURNS // 2 :])),
                "accuracy without learning, second half": float(np.mean(static[TURNS // 2 :])),
                "accuracy of unrelated questions": float(np.mean(others.successes)),
            },
            {"weakest edge of the chain": chain},
        )


def _chain_weights(memory: CrabPath) -> list[float]:
    return [strongest_weights(memory, a, "co_used").get(b, 0.0) for a, b in pairwise(CHAIN)]


def _strongest_distractor(memory: CrabPath) -> float:
    found = [strongest_weights(memory, step) for step in CHAIN]
    others = [w for of in found for node, w in of.items() if node in PAGES or node in NEAR]
    return max(others, default=0.0)


def _first_reflex(chain: list[float]) -> float:
    """Return the first query after which every edge is reflex; one above the last if none."""
    return next((turn + 1 for turn, weight in enumerate(chain) if weight >= _REFLEX), TURNS + 1)


def _judge(found: BySeed) -> ExperimentVerdict:
    compiled = [first <= TURNS for first in found["queries until all are reflex"]]
    clean = [w <= _MAX_DISTRACTOR for w in found["strongest edge to a distractor"]]
    reason = (
        f"all three edges are reflex within {TURNS} queries in {sum(compiled)} of {len(compiled)} "
        f"seeds, no distractor is above {_MAX_DISTRACTOR} in {sum(clean)}"
    )
    held = (
        compare_share(f"all three edges reflex within {TURNS} queries", compiled),
        compare_share(f"no distractor above {_MAX_DISTRACTOR}", clean),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="procedural",
    title="Procedural memory",
    scene=(
        "Four pages hold one step each of what to do after a bad deploy; they do not mention each "
        "other and stand among thirty others, six of them about releases. An agent asks in ten "
        "wordings, has room for four to eight documents, succeeds when all four steps are among "
        "them, and says only whether it succeeded. Between two such questions it asks something "
        "else of the same memory."
    ),
    paper=(
        "[CrabPath] §6.1: no edge at query 1, three of .46 at 25, .88, .82 and .82 at 50, no "
        "distractor"
    ),
    run=_run,
    verdict=_judge,
    across="query about deployment",
    up="effective weight",
)
