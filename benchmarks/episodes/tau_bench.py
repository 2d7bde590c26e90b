"""Runs of agents, as tau-bench publishes them: instruction, steps, reward (Yao et al. 2024)."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, TypeAdapter

from crabpath_lab.datasets.files import read_json_lines
from crabpath_retrievers import InvalidInputError

_MAX_CHARACTERS = 2000  # characters of an observation that are embedded


class _Step(BaseModel):
    action: str
    arguments: str
    observation: str


class _Run(BaseModel):
    task_id: int
    trial: int
    reward: float
    instruction: str
    steps: list[_Step]


_ADAPTER = TypeAdapter(_Run)


@dataclass(frozen=True, slots=True)
class Trajectory:
    """One run of an agent.

    Attributes:
        task: Name of the task.
        trial: Number of the attempt.
        reward: 0 or 1.
        states: What the agent saw before each action: the instruction, then the result of the last
            action; as many as actions.
        actions: Names of the tools it called, ``respond`` and ``user`` for the conversation.
    """

    task: str
    trial: int
    reward: float
    states: Sequence[str]
    actions: Sequence[str]

    @property
    def first_half(self) -> int:
        """Steps of the first half, at least one."""
        return max(1, len(self.actions) // 2)


def load_trajectories(path: Path) -> list[Trajectory]:
    """The runs of a JSON-lines file.

    Raises:
        InvalidInputError: It cannot be read, or holds no run with steps.
    """
    found = [
        _parse_run(run)
        for run in read_json_lines(path, _ADAPTER, "a run of tau-bench")
        if run.steps
    ]
    if not found:
        msg = f"{path} holds no run with steps: give the trajectories of tau-bench as JSON lines"
        raise InvalidInputError(msg)
    return found


def _parse_run(run: _Run) -> Trajectory:
    seen = [run.instruction, *(_step_text(step) for step in run.steps[:-1])]
    return Trajectory(
        f"task {run.task_id}",
        run.trial,
        run.reward,
        [text[:_MAX_CHARACTERS] for text in seen],
        [step.action for step in run.steps],
    )


def _step_text(step: _Step) -> str:
    return f"{step.action} {step.arguments}\n{step.observation}".strip()
