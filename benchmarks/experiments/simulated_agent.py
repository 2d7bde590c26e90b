"""A simulated agent: it asks, works with what it reads, and says only whether that succeeded."""

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from crabpath_retrievers.crabpath import CrabPath
from crabpath_retrievers.outcome import DEFAULT_NAMESPACE, Feedback
from crabpath_retrievers.trajectory import Turn


class AgentTask(NamedTuple):
    """A question, the documents without which its task fails, and those which make it fail."""

    question: str
    needed: Collection[str]
    harmful: Collection[str] = ()

    def succeeds(self, read: Collection[str]) -> bool:
        """Whether somebody who reads these documents succeeds."""
        return set(read).issuperset(self.needed) and set(read).isdisjoint(self.harmful)


@dataclass(slots=True)
class SimulatedAgent:
    """Asks one namespace of a memory.

    Attributes:
        memory: Whose.
        namespace: Who it is.
        noise: Share of outcomes that it tells wrongly, in [0, 1).
        draws: Which of them.
        tells_used: Whether it also says which of the documents that it read its task needed; only
            for phenomena that are about joint use.
        successes: Whether each task so far succeeded in truth.
    """

    memory: CrabPath
    namespace: str = DEFAULT_NAMESPACE
    noise: float = 0.0
    draws: np.random.Generator = field(default_factory=np.random.default_rng)
    tells_used: bool = False
    successes: list[bool] = field(default_factory=list)

    def work(self, task: AgentTask, k: int, **options: Any) -> Turn:
        """Ask for ``k`` documents and say how it ended; nothing else reaches the memory.

        Args:
            task: What for.
            k: Most documents.
            options: Further options of ``CrabPath.retrieve``.
        """
        asked = {"k": k, "namespace": self.namespace, **options}
        turn = self.memory.retrieve(task.question, **asked).turn
        read = [item.node for item in turn.returned]
        succeeded = task.succeeds(read)
        self.successes.append(succeeded)
        told = succeeded != (self.draws.random() < self.noise)
        used = [node for node in read if node in task.needed] if self.tells_used else None
        self.memory.record(Feedback(turn.id, 1.0 if told else -1.0, used=used))
        return turn


def would_succeed(memory: CrabPath, task: AgentTask, k: int, namespace: str) -> bool:
    """The same for an agent that asks without a trace, such as one that never learns."""
    answer = memory.retrieve(task.question, k=k, namespace=namespace, record=False)
    return task.succeeds([item.node.id for item in answer.documents])
