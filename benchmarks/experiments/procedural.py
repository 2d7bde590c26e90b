"""Procedural memory: a procedure that is only ever praised or blamed as a whole becomes a chain."""

from itertools import pairwise

import numpy as np
from langchain_core.embeddings import Embeddings

from benchmarks.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from benchmarks.experiments.corpora.office import PAGES, texts, unrelated
from benchmarks.experiments.experiment import (
    BySeed,
    Experiment,
    Trial,
    Verdict,
)
from benchmarks.experiments.memory_setup import STATIC, memory_of, weights
from benchmarks.experiments.simulated_agent import Agent, Task, would_succeed
from crabpath_retrievers.config import TierSettings
from crabpath_retrievers.memory import CrabPath

TURNS = 50
LEAST, MOST = 4, 8  # documents that the agent has room for, drawn anew for every question
_REFLEX = TierSettings().reflex
_DISTRACTOR = 0.3
_SEEDS = 0.9


def _play(embeddings: Embeddings, seed: int) -> Trial:
    draws = np.random.default_rng(seed)
    static, chain = list[bool](), list[float]()
    with memory_of({**STEPS, **NEAR, **texts()}, embeddings) as memory:
        deploying, others = Agent(memory), Agent(memory)
        for _ in range(TURNS):
            k = int(draws.integers(LEAST, MOST + 1))
            task = Task(str(draws.choice(QUESTIONS)), CHAIN)
            static.append(would_succeed(memory, task, k, STATIC))
            deploying.work(task, k)
            others.work(unrelated(draws), k)
            chain.append(min(_chain(memory)))
        learned, first = deploying.successes, _first(chain)
        return Trial(
            {
                "weakest edge of the chain": chain[-1],
                "queries until all are reflex": first,
                "strongest edge to a distractor": _distractor(memory),
                "accuracy, first half": float(np.mean(learned[: TURNS // 2])),
                "accuracy, second half": float(np.mean(learned[TURNS // 2 :])),
                "accuracy without learning, second half": float(np.mean(static[TURNS // 2 :])),
                "accuracy of unrelated questions": float(np.mean(others.successes)),
            },
            {"weakest edge of the chain": chain},
        )


def _chain(memory: CrabPath) -> list[float]:
    return [weights(memory, a, "co_used").get(b, 0.0) for a, b in pairwise(CHAIN)]


def _distractor(memory: CrabPath) -> float:
    found = [weights(memory, step) for step in CHAIN]
    others = [w for of in found for node, w in of.items() if node in PAGES or node in NEAR]
    return max(others, default=0.0)


def _first(chain: list[float]) -> float:
    """The first query after which every edge is reflex; one more than there are where none is."""
    return next((turn + 1 for turn, weight in enumerate(chain) if weight >= _REFLEX), TURNS + 1)


def _verdict(found: BySeed) -> Verdict:
    compiled = [first <= TURNS for first in found["queries until all are reflex"]]
    clean = [w <= _DISTRACTOR for w in found["strongest edge to a distractor"]]
    good = np.mean([a and b for a, b in zip(compiled, clean, strict=True)])
    reason = (
        f"all three edges are reflex within {TURNS} queries in {sum(compiled)} of {len(compiled)} "
        f"seeds, no distractor is above {_DISTRACTOR} in {sum(clean)}"
    )
    return Verdict("reproduced" if good >= _SEEDS else "not reproduced", reason)


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
    paper="000 §6.1: no edge at query 1, three of .46 at 25, .88, .82 and .82 at 50, no distractor",
    must="all three edges reflex within 50 queries in 9 of 10 seeds, no distractor above .3",
    play=_play,
    verdict=_verdict,
    across="query about deployment",
    up="effective weight",
)
