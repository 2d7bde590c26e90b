"""Noise: the share of wrong outcomes that learning tolerates."""

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.deploy import CHAIN, NEAR, QUESTIONS, STEPS
from crabpath_lab.experiments.corpora.office import office_pages
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_mean, conclude
from crabpath_lab.experiments.memory_setup import UNTAUGHT, open_memory
from crabpath_lab.experiments.simulated_agent import (
    AgentTask,
    SimulatedAgent,
    would_succeed,
)
from crabpath_retrievers import CrabPath

TURNS = 100
MIN_ROOM, MAX_ROOM = 4, 6
NOISE = (0.0, 0.1, 0.2, 0.3)


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    with open_memory({**STEPS, **NEAR, **office_pages()}, embeddings) as memory:
        static, curves = _run_untaught(memory, seed), dict[str, list[float]]()
        figures = {"accuracy without learning": float(np.mean(static))}
        for noise in NOISE:
            done = _run_learning(memory, seed, noise)
            figures[f"accuracy, {noise:.0%} wrong"] = float(np.mean(done))
            figures[f"accuracy, {noise:.0%} wrong, second half"] = float(
                np.mean(done[TURNS // 2 :])
            )
            curves[f"{noise:.0%} wrong"] = _running_accuracy(done)
        curves["without learning"] = _running_accuracy(static)
    return SeedResult(figures, curves)


def _draw_tasks(seed: int) -> list[tuple[AgentTask, int]]:
    draws = np.random.default_rng(seed)
    return [
        (
            AgentTask(str(draws.choice(QUESTIONS)), CHAIN),
            int(draws.integers(MIN_ROOM, MAX_ROOM + 1)),
        )
        for _ in range(TURNS)
    ]


def _run_untaught(memory: CrabPath, seed: int) -> list[bool]:
    return [would_succeed(memory, task, k, UNTAUGHT) for task, k in _draw_tasks(seed)]


def _run_learning(memory: CrabPath, seed: int, noise: float) -> list[bool]:
    """Run the tasks in a namespace of their own."""
    agent = SimulatedAgent(memory, f"noise {noise}", noise, np.random.default_rng([seed, 1]))
    for task, k in _draw_tasks(seed):
        agent.work(task, k)
    return agent.successes


def _running_accuracy(done: list[bool]) -> list[float]:
    """Compute the accuracy of the last twenty tasks."""
    return [float(np.mean(done[max(0, n - 19) : n + 1])) for n in range(len(done))]


def _judge(found: BySeed) -> ExperimentVerdict:
    static, clean, worst = (
        np.array(found[name])
        for name in ("accuracy without learning", "accuracy, 0% wrong", "accuracy, 30% wrong")
    )
    reason = (
        f"accuracy {static.mean():.3f} without learning, {clean.mean():.3f} with true outcomes, "
        f"{worst.mean():.3f} with 30 % of them wrong"
    )
    held = (compare_mean("not below static at 30 %, difference", worst - static, least=0),)
    return conclude(reason, held, held)


EXPERIMENT = Experiment(
    name="noise",
    title="Robustness against wrong outcomes",
    scene=(
        "The agent of the experiment on procedural memory, with room for four to six documents, "
        "asks a hundred questions about the procedure; a share of its outcomes says the opposite "
        "of what happened. Every share has a namespace of its own, with the same questions."
    ),
    paper="[OpenClawBrain] §4.11: the path stays reflex up to 20 %, and no longer at 30 %",
    run=_run,
    verdict=_judge,
    across="question",
    up="accuracy of the last twenty",
)
