"""Work on ten jobs that goes on with two of them: what forgetting and pruning are about."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import numpy as np

from benchmarks.experiments.corpora.work import (
    CODING,
    CODING_JOBS,
    SAFETY,
    SAFETY_JOBS,
    Job,
    draw_job_task,
)
from benchmarks.experiments.memory_setup import UNTAUGHT, co_use_weights
from benchmarks.experiments.simulated_agent import AgentTask, SimulatedAgent, would_succeed
from crabpath_retrievers.config import TierSettings
from crabpath_retrievers.crabpath import CrabPath

ROOM = 4
"""Documents that the agent has room for."""

_KEPT = 2
_JOBS = (*CODING_JOBS, *SAFETY_JOBS)

_HABITUAL = TierSettings().habitual

EdgeWeights = dict[tuple[str, str], float]


@dataclass(slots=True)
class JobShift:
    """An agent that does all jobs, then two, and says what it worked with.

    Attributes:
        memory: Whose.
        draws: What comes when.
        static: Whether the same questions would have succeeded without learning.
    """

    memory: CrabPath
    draws: np.random.Generator
    static: list[bool] = field(default_factory=list)
    kept: tuple[Job, ...] = field(init=False)
    left: tuple[Job, ...] = field(init=False)
    agent: SimulatedAgent = field(init=False)
    _would: Callable[[AgentTask], bool] = field(init=False)

    def __post_init__(self) -> None:
        """Draw which jobs are left."""
        order = [_JOBS[int(place)] for place in self.draws.permutation(len(_JOBS))]
        self.kept, self.left = tuple(order[:_KEPT]), tuple(order[_KEPT:])
        self.agent = SimulatedAgent(self.memory, tells_used=True)
        self._would = cache(lambda task: would_succeed(self.memory, task, ROOM, UNTAUGHT))

    def everything(self) -> None:
        """Do one of all the jobs."""
        self.work(_JOBS)

    def go_on(self) -> None:
        """Do one of those that are kept."""
        self.work(self.kept)

    def work(self, jobs: tuple[Job, ...]) -> None:
        """Do one of these."""
        task = draw_job_task(jobs, self.draws)
        self.static.append(self._would(task))
        self.agent.work(task, ROOM)

    def edges(self) -> EdgeWeights:
        """All that joint use has made."""
        return co_use_weights(self.memory, (*CODING, *SAFETY))

    def accuracy(self, namespace: str) -> float:
        """On all questions of the jobs that were left; nothing is learned from them."""
        tasks = [AgentTask(question, job.needed) for job in self.left for question in job.questions]
        return float(np.mean([would_succeed(self.memory, t, ROOM, namespace) for t in tasks]))


def edges_within(jobs: tuple[Job, ...], edges: EdgeWeights) -> EdgeWeights:
    """Those between two pages of one of the jobs."""
    return {
        (a, b): weight
        for (a, b), weight in edges.items()
        if any(a in job.needed and b in job.needed for job in jobs)
    }


def dormant_share(edges: EdgeWeights) -> float:
    """The share of them that a walk does not consider; 0 of none."""
    return float(np.mean([w < _HABITUAL for w in edges.values()])) if edges else 0.0
