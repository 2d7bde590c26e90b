"""A workload of ten jobs that continues with two of them, for forgetting and pruning."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from crabpath_lab.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
    Job,
    draw_job_task,
)
from crabpath_lab.experiments.memory_setup import UNTAUGHT, co_use_weights
from crabpath_lab.experiments.simulated_agent import (
    AgentTask,
    SimulatedAgent,
    would_succeed,
)
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import TierSettings

ROOM = 4
"""Documents that the agent has room for."""

_KEPT = 2
_JOBS = (*CODING_JOBS, *SAFETY_JOBS)

_HABITUAL = TierSettings().habitual

EdgeWeights = dict[tuple[str, str], float]


@dataclass(slots=True)
class JobShift:
    """An agent that does all jobs, then two of them, and reports which pages it used.

    Attributes:
        memory: The memory of the agent.
        draws: Source of random choices.
        static: Whether the same questions would have succeeded without learning.
    """

    memory: CrabPath
    draws: np.random.Generator
    static: list[bool] = field(default_factory=list)
    kept: tuple[Job, ...] = field(init=False)
    dropped: tuple[Job, ...] = field(init=False)
    agent: SimulatedAgent = field(init=False)
    _would: Callable[[AgentTask], bool] = field(init=False)

    def __post_init__(self) -> None:
        """Draw which jobs are dropped."""
        order = [_JOBS[int(place)] for place in self.draws.permutation(len(_JOBS))]
        self.kept, self.dropped = tuple(order[:_KEPT]), tuple(order[_KEPT:])
        self.agent = SimulatedAgent(self.memory, tells_used=True)
        self._would = cache(lambda task: would_succeed(self.memory, task, ROOM, UNTAUGHT))

    def do_any_job(self) -> None:
        """Do one of all the jobs."""
        self.do_job(_JOBS)

    def do_kept_job(self) -> None:
        """Do one of the kept jobs."""
        self.do_job(self.kept)

    def do_job(self, jobs: tuple[Job, ...]) -> None:
        """Do one of the given jobs, drawn at random."""
        task = draw_job_task(jobs, self.draws)
        self.static.append(self._would(task))
        self.agent.work(task, ROOM)

    def edges(self) -> EdgeWeights:
        """Edges created by joint use, with their weights."""
        return co_use_weights(self.memory, (*CODING, *SAFETY))

    def accuracy(self, namespace: str) -> float:
        """Compute accuracy on all questions of the dropped jobs; nothing is learned from them."""
        tasks = [
            AgentTask(question, job.needed) for job in self.dropped for question in job.questions
        ]
        return float(np.mean([would_succeed(self.memory, t, ROOM, namespace) for t in tasks]))


def edges_within(jobs: tuple[Job, ...], edges: EdgeWeights) -> EdgeWeights:
    """Select the edges between two pages of one of the jobs."""
    return {
        (a, b): weight
        for (a, b), weight in edges.items()
        if any(a in job.needed and b in job.needed for job in jobs)
    }


def dormant_share(edges: EdgeWeights) -> float:
    """Compute the share of edges below the habitual threshold, which a walk skips."""
    return float(np.mean([w < _HABITUAL for w in edges.values()])) if edges else 0.0
