"""An agent that reads only what the memory is confident of, and more where that is not enough."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from crabpath_lab.experiments.simulated_agent import AgentTask, SimulatedAgent
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import RankSettings

MAX_DOCUMENTS = 30
"""Most documents per question ([OpenClawBrain] §4.3)."""

RETRY_SIZES = (6, 12, MAX_DOCUMENTS)
"""Numbers of documents to ask for, in turn, until the task succeeds."""


class TaskReading(NamedTuple):
    """Reading of one task.

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
    """An agent that reads confident documents first, and reports only outcomes."""

    memory: CrabPath
    agent: SimulatedAgent = field(init=False)

    def __post_init__(self) -> None:
        """Work in the usual namespace."""
        self.agent = SimulatedAgent(self.memory)

    def work(self, task: AgentTask) -> TaskReading:
        """Ask until the task succeeds or all sizes were tried."""
        turn = self.agent.work(task, MAX_DOCUMENTS, fill=False)
        read, at_once = {item.node for item in turn.returned}, self.agent.successes[-1]
        for k in RETRY_SIZES:
            if self.agent.successes[-1]:
                break
            read |= {item.node for item in self.agent.work(task, k).returned}
        return TaskReading(read, at_once, len(turn.visited))


def confident_documents(memory: CrabPath, question: str, namespace: str) -> list[str]:
    """List ids of the documents that a memory is confident of; nothing is recorded."""
    answer = memory.retrieve(
        question, k=MAX_DOCUMENTS, fill=False, namespace=namespace, record=False
    )
    return [item.node.id for item in answer.documents]


def count_tokens(texts: Iterable[str]) -> int:
    """Count the tokens of these texts, as budgets do without a counter."""
    length = RankSettings().characters_per_token
    return sum(math.ceil(len(text) / length) for text in texts)
