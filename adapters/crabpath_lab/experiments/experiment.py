"""An experiment: a scenario that runs once per seed, and a verdict over all seeds."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from langchain_core.embeddings import Embeddings

VerdictWord = Literal["reproduced", "better", "not reproduced", "undecided"]
"""How the measured figure compares with that of the paper."""

Answer = Literal["yes", "no", "undecided"]
"""Whether a criterion holds; undecided where its interval crosses the line, or of one seed."""

Interval = tuple[float, float]
"""Lower and upper end."""


@dataclass(frozen=True, slots=True)
class SeedResult:
    """Result of one seed.

    Attributes:
        figures: Numbers by name; every seed has the same names.
        curves: Values over the turns by name, for the plot; equally long in every seed.
    """

    figures: Mapping[str, float]
    curves: Mapping[str, Sequence[float]] = field(default_factory=dict)


class Criterion(NamedTuple):
    """A line that a figure is held to.

    Attributes:
        name: The figure and the line.
        mean: Mean of the figure over seeds.
        interval: Its 95 % interval; None where unknown, and of what has to hold in all seeds.
        answer: Whether the whole interval is on the right side of the line.
    """

    name: str
    mean: float
    interval: Interval | None
    answer: Answer


class ExperimentVerdict(NamedTuple):
    """A word, one sentence that says what was found, and the criteria of the word."""

    word: VerdictWord
    reason: str
    criteria: Sequence[Criterion] = ()


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
        run: Runs the scenario with one seed.
        verdict: Judges the figures of all seeds.
        across: Name of the horizontal axis of the plot.
        up: Name of the vertical one.
    """

    name: str
    title: str
    scene: str
    paper: str
    run: Callable[[Embeddings, int], SeedResult]
    verdict: Callable[[BySeed], ExperimentVerdict]
    across: str = "turn"
    up: str = ""
