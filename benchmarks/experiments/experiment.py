"""An experiment: a scenario that runs once per seed, and a verdict over all seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from langchain_core.embeddings import Embeddings

VerdictWord = Literal["reproduced", "better", "not reproduced"]
"""How the measured figure compares with that of the paper."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Result of one seed.

    Attributes:
        figures: Numbers by name; every seed has the same names.
        curves: Values over the turns by name, for the plot; equally long in every seed.
    """

    figures: Mapping[str, float]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)


class ExperimentVerdict(NamedTuple):
    """A word, and one sentence that says why."""

    word: VerdictWord
    reason: str


BySeed = Mapping[str, Sequence[float]]
"""Values of every figure, one per seed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One phenomenon that a paper claims, reproduced with the retriever as users have it.

    Attributes:
        name: Name on the command line.
        title: What is shown.
        scene: The scenario, in a few sentences.
        paper: What the paper reports, and where.
        must: The criterion of the verdict; empty where there is none.
        run: Runs the scenario with one seed.
        verdict: Judges the figures of all seeds.
        across: Name of the horizontal axis of the plot.
        up: Name of the vertical one.
    """

    name: str
    title: str
    scene: str
    paper: str
    must: str = ""
    run: Callable[[Embeddings, int], SeedResult]
    verdict: Callable[[BySeed], ExperimentVerdict]
    across: str = "turn"
    up: str = ""
