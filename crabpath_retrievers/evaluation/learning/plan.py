"""What is to be measured of learning, checked before anything is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.evaluation.plan import names
from crabpath_retrievers.evaluation.streams.signals import KINDS, Kind

PARTS = ("grid", "ablation", "compression", "endurance", "routing")
KS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"hotpotqa": (5,), "2wiki": (5,), "multihoprag": (5, 10)}
)
"""Cut-offs by data set, rising; as many documents are asked for as the last one says."""

_MOST_NOISE = 0.5  # above it, feedback says the opposite of what is true


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan:
    """One run of ``crabpath eval-learning``.

    Attributes:
        paths: File or folder by data set; names are those in ``KS``.
        parts: Which of ``PARTS`` are measured.
        limit: Most questions of each data set, the first ones; None asks all.
        feedback: What learners are told in the grid.
        noise: Shares of it that are flipped, each in [0, 0.5].
        orders: Orders of the questions in the grid, drawn with seeds 0, 1, …; at least 1.
        turns: Length of the endurance run, at least 1.
        cache: Directory that keeps embeddings between runs.
    """

    paths: Mapping[str, Path]
    parts: tuple[str, ...] = PARTS
    limit: int | None = None
    feedback: tuple[Kind, ...] = KINDS
    noise: tuple[float, ...] = (0.0, 0.1, 0.2)
    orders: int = 3
    turns: int = 10_000
    cache: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what there is not.

        Raises:
            InvalidInputError: No data set, an unknown part or kind, or a number out of range.
        """
        if not self.paths:
            msg = "there is nothing to measure: give --hotpotqa, --2wiki or --multihoprag"
            raise InvalidInputError(msg)
        _require_among("--part", self.parts, PARTS)
        _require_among("--feedback", self.feedback, KINDS)
        for option, value in (("--orders", self.orders), ("--turns", self.turns)):
            if value < 1:
                msg = f"{option} must be at least 1, not {value}"
                raise InvalidInputError(msg)

    @property
    def longest(self) -> str:
        """The data set of compression and endurance: HotpotQA, else the first that is given."""
        return "hotpotqa" if "hotpotqa" in self.paths else next(iter(self.paths))


def shares(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 0.5 with commas between.

    Raises:
        InvalidInputError: One of them is none.
    """
    found = tuple(map(_share, names(text)))
    if not found:
        msg = "--noise takes numbers from 0 to 0.5, such as 0,0.1,0.2, not nothing"
        raise InvalidInputError(msg)
    return found


def _share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _MOST_NOISE:
        msg = f"--noise takes numbers from 0 to 0.5, such as 0,0.1,0.2, not {text!r}"
        raise InvalidInputError(msg)
    return value


def _require_among(option: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [name for name in given if name not in allowed]
    if unknown or not given:
        what = f"there is no {option} {unknown[0]!r}" if unknown else f"{option} names nothing"
        msg = f"{what}: choose among {', '.join(allowed)}, with commas between"
        raise InvalidInputError(msg)
