"""Brain death: a half-life far too short kills what was learned; the autotuner mends it."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
from langchain_core.embeddings import Embeddings

from crabpath_retrievers.config import AutotuneSettings, Settings
from crabpath_retrievers.evaluation.experiments.agent import Agent, Task
from crabpath_retrievers.evaluation.experiments.corpora.office import PAGES, texts
from crabpath_retrievers.evaluation.experiments.experiment import (
    BySeed,
    Experiment,
    Trial,
    Verdict,
)
from crabpath_retrievers.evaluation.experiments.memories import memory_of
from crabpath_retrievers.memory import CrabPath

BEFORE, LEN = 96, 100
READ = 3
FORCED = 20.0
_EVERY = AutotuneSettings().every_feedbacks
_DETECTED = 25


@dataclass(slots=True)
class _Seen:
    """What is seen after every question; the agent sees none of it.

    Attributes:
        dormant: Share of edges that can fade and are dormant.
        well: Whether that is in its range.
        half_life: As it stands.
        ours, plain: Whether the agent succeeded, and whether plain similarity would have.
    """

    dormant: list[float] = field(default_factory=list)
    well: list[bool] = field(default_factory=list)
    half_life: list[float] = field(default_factory=list)
    ours: list[bool] = field(default_factory=list)
    plain: list[bool] = field(default_factory=list)


def _play(embeddings: Embeddings, seed: int) -> Trial:
    """One memory with the autotuner; another one without it, until it has been dead for long."""
    with memory_of(texts(), embeddings, _settings(enabled=True)) as memory:
        watched = _after(memory, *_forced(memory, seed))
    with memory_of(texts(), embeddings, _settings(enabled=False)) as memory:
        agent, stream = _forced(memory, seed)
        dead = _after(memory, agent, stream)
        mended = _after(memory, agent, stream, tuned=True)
    return Trial(
        _figures(watched, dead, mended),
        {
            "with the autotuner": watched.dormant,
            "without it": dead.dormant,
            "dead, and tuned from then on": mended.dormant,
        },
    )


def _settings(*, enabled: bool) -> Settings:
    return Settings(autotune=AutotuneSettings(enabled=enabled))


def _forced(memory: CrabPath, seed: int) -> tuple[Agent, Iterator[Task]]:
    """An agent whose memory was well until somebody set its half-life."""
    agent, stream = Agent(memory), _tasks(np.random.default_rng(seed))
    for _ in range(BEFORE):
        agent.work(next(stream), READ)
    memory.set_knobs(half_life=FORCED)
    return agent, stream


def _tasks(draws: np.random.Generator) -> Iterator[Task]:
    """Questions that need two pages, in an order that is drawn anew every round."""
    pairs = draws.permutation(list(PAGES)).reshape(-1, 2)
    while True:
        for a, b in draws.permutation(pairs):
            asked = " ".join(PAGES[page].questions[0] for page in (str(a), str(b)))
            yield Task(asked, [str(a), str(b)])


def _after(memory: CrabPath, agent: Agent, stream: Iterator[Task], *, tuned: bool = False) -> _Seen:
    """A hundred questions; ``tuned`` has the autotuner look as often as it does by itself."""
    seen = _Seen()
    for number in range(LEN):
        task = next(stream)
        agent.work(task, READ)
        if tuned and number % _EVERY == _EVERY - 1:
            memory.tune()
        dormant = memory.health(record=False)["dormant_pct"]
        seen.dormant.append(dormant.value or 0.0)
        seen.well.append(dormant.in_range is not False)
        seen.half_life.append(memory.knobs().half_life)
        seen.ours.append(agent.successes[-1])
        nearest = memory.index.search(memory.embedder.query(task.question), READ)
        seen.plain.append(task.succeeds(nearest))
    return seen


def _figures(watched: _Seen, dead: _Seen, mended: _Seen) -> dict[str, float]:
    windows = [slice(n, n + _EVERY) for n in range(0, LEN, _EVERY)]
    all_of_it = (watched, dead, mended)
    return {
        "queries until the autotuner acts": _first(value > FORCED for value in watched.half_life),
        "dormant share with it, most": max(watched.dormant),
        "dormant share without it, most": max(dead.dormant),
        "queries until it is out of range without it": _first(not well for well in dead.well),
        "queries until a dead memory is in range again": _first(_for_good(mended.well)),
        "accuracy": float(np.mean([of.ours for of in all_of_it])),
        "accuracy of plain similarity": float(np.mean([of.plain for of in all_of_it])),
        "worst 25 queries against plain similarity": min(
            float(np.mean(of.ours[w]) - np.mean(of.plain[w])) for of in all_of_it for w in windows
        ),
    }


def _first(happened: Iterator[bool]) -> float:
    """The first query at which it happened; one more than there are where it never did."""
    return next((float(n + 1) for n, it in enumerate(happened) if it), LEN + 1.0)


def _for_good(well: list[bool]) -> Iterator[bool]:
    return (all(well[n:]) for n in range(len(well)))


def _verdict(found: BySeed) -> Verdict:
    quick = sum(n <= _DETECTED for n in found["queries until the autotuner acts"])
    dies = sum(n <= LEN for n in found["queries until it is out of range without it"])
    well = sum(n <= LEN for n in found["queries until a dead memory is in range again"])
    never = sum(gap >= 0 for gap in found["worst 25 queries against plain similarity"])
    seeds = len(found["accuracy"])
    reason = (
        f"the autotuner acts within {_DETECTED} queries in {quick} of {seeds} seeds and keeps the "
        f"memory alive; without it the memory dies in {dies}; a dead one is in range again within "
        f"{LEN} queries in {well}; accuracy never falls below plain similarity in {never}"
    )
    return Verdict(
        "better" if quick == dies == well == never == seeds else "not reproduced", reason
    )


EXPERIMENT = Experiment(
    name="brain_death",
    title="Brain death and recovery",
    scene=(
        "An agent asks questions that need two of twenty-four pages, has room for three documents, "
        "and says only whether it succeeded. After 96 questions somebody sets the half-life to 20. "
        "In one memory the autotuner is on and looks every 25 lessons; in another one it is off, "
        "and looks only from the hundredth question after that on."
    ),
    paper="000 §5.4: every edge dormant at query 50, 93 % at 75, 87 % at 100, half-life at 200",
    must="detected within 25 questions, in range within 100, never below plain similarity",
    play=_play,
    verdict=_verdict,
    across="question after the half-life was forced",
    up="dormant share",
)
