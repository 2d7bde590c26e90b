"""Brain death: a half-life far too short kills what was learned; the autotuner restores it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_lab.experiments.corpora.office import PAGES, office_pages
from crabpath_lab.experiments.experiment import (
    BySeed,
    Experiment,
    ExperimentVerdict,
    SeedResult,
)
from crabpath_lab.experiments.judging import compare_mean, compare_share, conclude
from crabpath_lab.experiments.memory_setup import open_memory
from crabpath_lab.experiments.simulated_agent import AgentTask, SimulatedAgent
from crabpath_retrievers import CrabPath
from crabpath_retrievers.config import AutotuneSettings, Settings

TURNS_BEFORE, TURNS_AFTER = 96, 100
ROOM = 3
FORCED_HALF_LIFE = 20.0
_TUNING_INTERVAL = AutotuneSettings().every_feedbacks
_DETECTION_LIMIT = 25


@dataclass(slots=True)
class _Observations:
    """Measurements after every question; the agent sees none of them.

    Attributes:
        dormant: Share of edges that can fade and are dormant.
        well: Whether that is within its range.
        half_life: The current half-life.
        ours, plain: Whether the agent succeeded, and whether plain similarity would have.
    """

    dormant: list[float] = field(default_factory=list)
    well: list[bool] = field(default_factory=list)
    half_life: list[float] = field(default_factory=list)
    ours: list[bool] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)


def _run(embeddings: Embeddings, seed: int) -> SeedResult:
    """Run one memory with the autotuner, and one that gets it only after a long time without."""
    with open_memory(office_pages(), embeddings, _make_settings(enabled=True)) as memory:
        watched = _observe(memory, *_force_half_life(memory, seed))
    with open_memory(office_pages(), embeddings, _make_settings(enabled=False)) as memory:
        agent, stream = _force_half_life(memory, seed)
        dead = _observe(memory, agent, stream)
        recovered = _observe(memory, agent, stream, tuned=True)
    return SeedResult(
        _summarize(watched, dead, recovered),
        {
            "with the autotuner": watched.dormant,
            "without it": dead.dormant,
            "dead, and tuned from then on": recovered.dormant,
        },
    )


def _make_settings(*, enabled: bool) -> Settings:
    return Settings(autotune=AutotuneSettings(enabled=enabled))


def _force_half_life(memory: CrabPath, seed: int) -> tuple[SimulatedAgent, Iterator[AgentTask]]:
    """Make an agent with a healthy memory, whose half-life is then set far too low."""
    agent, stream = SimulatedAgent(memory), _generate_tasks(np.random.default_rng(seed))
    for _ in range(TURNS_BEFORE):
        agent.work(next(stream), ROOM)
    memory.maintenance.set_knobs(half_life=FORCED_HALF_LIFE)
    return agent, stream


def _generate_tasks(draws: np.random.Generator) -> Iterator[AgentTask]:
    """Yield questions that need two pages, in a new order every round."""
    pairs = draws.permutation(list(PAGES)).reshape(-1, 2)
    while True:
        for a, b in draws.permutation(pairs):
            asked = " ".join(PAGES[page].questions[0] for page in (str(a), str(b)))
            yield AgentTask(asked, [str(a), str(b)])


def _observe(
    memory: CrabPath, agent: SimulatedAgent, stream: Iterator[AgentTask], *, tuned: bool = False
) -> _Observations:
    """Measure a hundred questions; ``tuned`` runs the autotuner at its default interval."""
    seen = _Observations()
    for number in range(TURNS_AFTER):
        task = next(stream)
        agent.work(task, ROOM)
        if tuned and number % _TUNING_INTERVAL == _TUNING_INTERVAL - 1:
            memory.maintenance.tune()
        dormant = memory.maintenance.health(record=False)["dormant_pct"]
        seen.dormant.append(dormant.value or 0.0)
        seen.well.append(dormant.in_range is not False)
        seen.half_life.append(memory.maintenance.knobs().half_life)
        seen.ours.append(agent.successes[-1])
        nearest = memory.index.search(memory.embedder.query(task.question), ROOM)
        seen.plain.append(task.succeeds(nearest))
    return seen


def _summarize(
    watched: _Observations, dead: _Observations, recovered: _Observations
) -> dict[str, float]:
    windows = [slice(n, n + _TUNING_INTERVAL) for n in range(0, TURNS_AFTER, _TUNING_INTERVAL)]
    all_of_it = (watched, dead, recovered)
    return {
        "queries until the autotuner acts": _first_true(
            value > FORCED_HALF_LIFE for value in watched.half_life
        ),
        "dormant share with it, most": max(watched.dormant),
        "dormant share without it, most": max(dead.dormant),
        "queries until it is out of range without it": _first_true(not well for well in dead.well),
        "queries until a dead memory is in range again": _first_true(_stays_well(recovered.well)),
        "accuracy": float(np.mean([of.ours for of in all_of_it])),
        "accuracy of plain similarity": float(np.mean([of.plain for of in all_of_it])),
        "worst 25 queries against plain similarity": min(
            float(np.mean(of.ours[w]) - np.mean(of.plain[w])) for of in all_of_it for w in windows
        ),
    }


def _first_true(happened: Iterator[bool]) -> float:
    """Return the number of the first query with a true value; one above the last if none."""
    return next((float(n + 1) for n, it in enumerate(happened) if it), TURNS_AFTER + 1.0)


def _stays_well(well: list[bool]) -> Iterator[bool]:
    return (all(well[n:]) for n in range(len(well)))


def _judge(found: BySeed) -> ExperimentVerdict:
    acts = found["queries until the autotuner acts"]
    dies = found["queries until it is out of range without it"]
    back = found["queries until a dead memory is in range again"]
    gap = found["worst 25 queries against plain similarity"]
    reason = (
        f"the autotuner acts after {np.mean(acts):.0f} queries and keeps the memory alive; without "
        f"it the memory is out of range after {np.mean(dies):.0f}, in {_count(dies)}; a dead one "
        f"is in range again after {np.mean(back):.0f}, within {TURNS_AFTER} in {_count(back)}; "
        f"accuracy in the worst 25 queries is {np.mean(gap):+.2f} against plain similarity"
    )
    held = (
        compare_mean(f"acts within {_DETECTION_LIMIT} queries", acts, most=_DETECTION_LIMIT),
        compare_share("dies without it", [n <= TURNS_AFTER for n in dies]),
        compare_share(f"in range again within {TURNS_AFTER}", [n <= TURNS_AFTER for n in back]),
        compare_mean("worst 25 queries not below plain similarity, difference", gap, least=0),
    )
    return conclude(reason, held, held)


def _count(queries: Sequence[float]) -> str:
    return f"{sum(n <= TURNS_AFTER for n in queries)} of {len(queries)} seeds"


EXPERIMENT = Experiment(
    name="brain_death",
    title="Brain death and recovery",
    scene=(
        "An agent asks questions that need two of twenty-four pages, has room for three documents, "
        "and says only whether it succeeded. After 96 questions somebody sets the half-life to 20. "
        "In one memory the autotuner is on and looks every 25 lessons; in another one it is off, "
        "and looks only from the hundredth question after that on."
    ),
    paper=(
        "[CrabPath] §5.4: every edge dormant at query 50, 93 % at 75, 87 % at 100, half-life at 200"
    ),
    run=_run,
    verdict=_judge,
    across="question after the half-life was forced",
    up="dormant share",
)
