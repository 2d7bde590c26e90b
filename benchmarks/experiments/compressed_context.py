"""An agent that reads only what the memory is confident of, and more where that is not enough."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from benchmarks.experiments.simulated_agent import AgentTask, SimulatedAgent
from crabpath_retrievers.config import RankSettings
from crabpath_retrievers.crabpath import CrabPath

MAX_DOCUMENTS = 30
"""Documents of an agent that does not choose (document 003 §4.3)."""

RETRY_SIZES = (6, 12, MAX_DOCUMENTS)
"""For how many it asks, one after the other, where less was not enough."""


class TaskReading(NamedTuple):
    """What one task took.

    Attributes:
        documents: All that it has read, by id.
        at_once: Whether those that the memory was confident of were enough.
        visited: Nodes that the first walk visited.
    """

    documents: set[str]
    at_once: bool
    visited: int


@dataclass(slots=True)
class ConfidentReader:
    """Says of every answer whether it succeeded with it, and nothing else."""

    memory: CrabPath
    agent: SimulatedAgent = field(init=False)

    def __post_init__(self) -> None:
        """Work in the usual namespace."""
        self.agent = SimulatedAgent(self.memory)

    def work(self, task: AgentTask) -> TaskReading:
        """Ask until the task succeeds or there is no more to be had."""
        turn = self.agent.work(task, MAX_DOCUMENTS, fill=False)
        read, at_once = {item.node for item in turn.returned}, self.agent.successes[-1]
        for k in RETRY_SIZES:
            if self.agent.successes[-1]:
                break
            read |= {item.node for item in self.agent.work(task, k).returned}
        return TaskReading(read, at_once, len(turn.visited))


def confident_documents(memory: CrabPath, question: str, namespace: str) -> list[str]:
    """Ids of what a memory is confident of, asked without a trace."""
    answer = memory.retrieve(
        question, k=MAX_DOCUMENTS, fill=False, namespace=namespace, record=False
    )
    return [item.node.id for item in answer.documents]


def count_tokens(texts: Iterable[str]) -> int:
    """Tokens of these texts, counted as budgets are where no counter is given."""
    length = RankSettings().characters_per_token
    return sum(math.ceil(len(text) / length) for text in texts)
