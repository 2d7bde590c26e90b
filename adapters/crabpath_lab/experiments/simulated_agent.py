"""A simulated agent: it asks, works with what it reads, and reports only whether that succeeded."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers import CrabPath
from crabpath_retrievers.core.feedback import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.core.records import Turn


class AgentTask(NamedTuple):
    """A question, the documents that its task needs, and those that make it fail."""

    question: str
    needed: Collection[str]
    harmful: Collection[str] = ()

    def succeeds(self, read: Collection[str]) -> bool:
        """Whether an agent that reads these documents succeeds."""
        return set(read).issuperset(self.needed) and set(read).isdisjoint(self.harmful)


@dataclass(slots=True)
class SimulatedAgent:
    """An agent that asks one namespace of a memory and reports outcomes.

    Attributes:
        memory: The memory that it asks.
        namespace: Its namespace.
        noise: Share of outcomes that it reports wrongly, in [0, 1).
        draws: Source of random choices.
        tells_used: Whether it also reports which of the documents read its task needed; only for
            phenomena that are about joint use.
        successes: True outcome of each task so far.
    """

    memory: CrabPath
    namespace: str = DEFAULT_NAMESPACE
    noise: float = 0.0
    draws: np.random.Generator = field(default_factory=np.random.default_rng)
    tells_used: bool = False
    successes: list[bool] = field(default_factory=list)

    def work(self, task: AgentTask, k: int, **options: Any) -> Turn:
        """Ask for ``k`` documents and report the outcome; nothing else reaches the memory."""
        asked = {"k": k, "namespace": self.namespace, **options}
        turn = self.memory.retrieve(task.question, **asked).turn
        read = [item.node for item in turn.returned]
        succeeded = task.succeeds(read)
        self.successes.append(succeeded)
        reported = succeeded != (self.draws.random() < self.noise)
        used = [node for node in read if node in task.needed] if self.tells_used else None
        self.memory.record(Feedback(turn.id, 1.0 if reported else -1.0, used=used))
        return turn


def would_succeed(memory: CrabPath, task: AgentTask, k: int, namespace: str) -> bool:
    """Check whether an agent would succeed; nothing is recorded, so nothing is learned."""
    answer = memory.retrieve(task.question, k=k, namespace=namespace, record=False)
    return task.succeeds([item.node.id for item in answer.documents])
