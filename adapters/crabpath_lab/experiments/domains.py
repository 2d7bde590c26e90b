"""Domain separation: work in two domains joins pages within them, and only bridges between."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.corpora.work import (
    BRIDGES,
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
from crabpath_lab.experiments.judging import compare_mean, compare_share, conclude
from crabpath_lab.experiments.memory_setup import (
    co_use_weights,
    open_memory,
    sample_pages,
    shuffle_pages,
)
from crabpath_lab.experiments.simulated_agent import AgentTask, SimulatedAgent
from crabpath_retrievers.config import TierSettings

TURNS = 100
OUTCOMES = "outcomes"
"""The namespace of an agent that never says what it used."""

_BRIDGE_SHARE = 0.15  # share of questions that need a page of each domain
_FILLER_PAGES = 12
_MIN_ROOM, _MAX_ROOM = 4, 8  # documents that the agents have room for
_HABITUAL = TierSettings().habitual
_MAX_CROSSING = 0.15


def _run(embeddings: Embeddings, seed: int, turns: int = TURNS) -> SeedResult:
    draws = np.random.default_rng(seed)
    pages = shuffle_pages(draws, CODING, SAFETY, sample_pages(draws, office_pages(), _FILLER_PAGES))
    share = list[float]()
    with open_memory(pages, embeddings) as memory:
        agent, bare = SimulatedAgent(memory, tells_used=True), SimulatedAgent(memory, OUTCOMES)
        for _ in range(turns):
            task, k = _draw_task(draws), int(draws.integers(_MIN_ROOM, _MAX_ROOM + 1))
            agent.work(task, k)
            bare.work(task, k)
            share.append(_crossing_share(_active_edges(co_use_weights(memory, pages))))
        beside = _summarize(_active_edges(co_use_weights(memory, pages, OUTCOMES)))
        return SeedResult(
            {
                **_summarize(_active_edges(co_use_weights(memory, pages))),
                "accuracy": float(np.mean(agent.successes)),
                **{f"{name}, outcomes only": value for name, value in beside.items()},
                "accuracy, outcomes only": float(np.mean(bare.successes)),
            },
            {"share of learned edges that cross": share},
        )


def _draw_task(draws: np.random.Generator) -> AgentTask:
    own = (CODING_JOBS, SAFETY_JOBS)[int(draws.integers(2))]
    return draw_job_task(BRIDGES if draws.random() < _BRIDGE_SHARE else own, draws)


def _active_edges(edges: dict[tuple[str, str], float]) -> set[tuple[str, str]]:
    """Select the edges from the habitual threshold on, which a walk considers."""
    return {edge for edge, weight in edges.items() if weight >= _HABITUAL}


def _crosses_domains(edge: tuple[str, str]) -> bool:
    return any(page in CODING for page in edge) and any(page in SAFETY for page in edge)


def _crossing_share(edges: set[tuple[str, str]]) -> float:
    return float(np.mean([_crosses_domains(edge) for edge in edges])) if edges else 0.0


def _summarize(edges: set[tuple[str, str]]) -> dict[str, float]:
    crossing = {edge for edge in edges if _crosses_domains(edge)}
    bridges = {(a, b) for job in BRIDGES for a in job.needed for b in job.needed if a != b}
    needed = {
        (a, b) for job in (*CODING_JOBS, *SAFETY_JOBS) for a in job.needed for b in job.needed
    }
    return {
        "learned edges": len(edges),
        "edges that cross": len(crossing),
        "share of edges that cross": _crossing_share(edges),
        "share of the bridges that stand": len(crossing & bridges) / len(bridges),
        "share of crossing edges that are no bridge": len(crossing - bridges)
        / max(1, len(crossing)),
        "share of edges that no job needs": len(edges - bridges - needed) / max(1, len(edges)),
    }


def _judge(found: BySeed) -> ExperimentVerdict:
    crossing = found["share of edges that cross"]
    right = [
        stands == 1.0 and not wrong
        for stands, wrong in zip(
            found["share of the bridges that stand"],
            found["share of crossing edges that are no bridge"],
            strict=True,
        )
    ]
    reason = (
        f"{np.mean(crossing):.0%} of the learned edges cross, and they are the bridges and nothing "
        f"else in {sum(right)} of {len(right)} seeds; from scalar outcomes the share is "
        f"{np.mean(found['share of edges that cross, outcomes only']):.0%}, with wrong ones among "
        "them"
    )
    held = (
        compare_mean(f"at most {_MAX_CROSSING:.0%} cross", crossing, most=_MAX_CROSSING),
        compare_share("the bridges and nothing else", right),
    )
    return conclude(reason, held)


EXPERIMENT = Experiment(
    name="domains",
    title="Domain separation with bridges",
    scene=(
        "Thirteen pages about coding and thirteen about safety stand among twelve others; none "
        "mentions another one. Ten jobs need two or three pages of one domain, two need one of "
        "each. An agent asks for them in changing wordings, has room for four to eight documents, "
        "and says how it ended and which pages it worked with. Beside it another one of the same "
        "memory says only how it ended."
    ),
    paper=(
        "[OpenClawBrain] §4.6: 5 cross-file edges, two clusters; [CrabPath] §3.3: 2 to 8 "
        "cross-file edges; §5.1: 0 to "
        "15 % of the edges"
    ),
    run=_run,
    verdict=_judge,
    across="question",
    up="share of edges at or above the habitual bar",
)
