"""What is to be measured of learning, checked before anything is computed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

from crabpath_lab.commands.evaluation import split_names
from crabpath_lab.streams.simulated_feedback import FEEDBACK_KINDS, FeedbackKind
from crabpath_retrievers import InvalidInputError

PARTS = (
    "grid",
    "ablation",
    "compression",
    "endurance",
    "routing",
    "contamination",
    "regions",
)
CUTOFFS: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {"hotpotqa": (5,), "2wiki": (5,), "multihoprag": (5, 10)}
)
"""Cut-offs by data set, rising; as many documents are asked for as the last one says."""

ORDERS: Mapping[str, int] = MappingProxyType({"grid": 3, "contamination": 5, "regions": 3})
"""Orders of the questions by part, where none are given."""

NOISE: Mapping[str, tuple[float, ...]] = MappingProxyType(
    {"grid": (0.0, 0.1, 0.2), "contamination": (0.2,)}
)
"""Shares of feedback that are flipped by part, where none are given."""

REGION_VARIANTS = (
    "regions off",
    "reward_decay none",
    "reward_decay blind",
)
"""What the region MDP, and what rests on it, is compared with."""

_DEFAULT_KINDS: tuple[FeedbackKind, ...] = ("used", "answer", "outcome")
_MAX_NOISE = 0.5  # above it, feedback says the opposite of what is true


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningPlan:
    """One run of ``python -m benchmarks learning``.

    Attributes:
        paths: File or folder by data set; names are those in ``CUTOFFS``.
        parts: Which of ``PARTS`` are measured.
        limit: Most questions of each data set, the first ones; None asks all.
        feedback: Kinds of feedback in the grid, and with and without regions.
        variants: Of the part ``regions``, beside the default; None for all.
        noise: Shares of feedback that are flipped, each in [0, 0.5]; None for those in ``NOISE``.
        orders: Orders of the questions, drawn with seeds 0, 1, …; at least 1; None for those in
            ``ORDERS``.
        turns: Length of the endurance run, at least 1.
        cache: Directory that keeps embeddings between runs.
    """

    paths: Mapping[str, Path]
    parts: tuple[str, ...] = PARTS
    limit: int | None = None
    feedback: tuple[FeedbackKind, ...] = _DEFAULT_KINDS
    variants: tuple[str, ...] | None = None
    noise: tuple[float, ...] | None = None
    orders: int | None = None
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
        _require_known("--part", self.parts, PARTS)
        _require_known("--feedback", self.feedback, FEEDBACK_KINDS)
        if self.variants is not None:
            _require_known("--variants", self.variants, REGION_VARIANTS)
        for option, value in (("--orders", self.orders), ("--turns", self.turns)):
            if value is not None and value < 1:
                msg = f"{option} must be at least 1, not {value}"
                raise InvalidInputError(msg)

    def orders_of(self, part: str) -> int:
        """Orders of the questions in one of the parts in ``ORDERS``."""
        return ORDERS[part] if self.orders is None else self.orders

    def noise_of(self, part: str) -> tuple[float, ...]:
        """Shares of feedback that are flipped in one of the parts in ``NOISE``."""
        return NOISE[part] if self.noise is None else self.noise

    @property
    def longest(self) -> str:
        """The data set of compression and endurance: HotpotQA, else the first that is given."""
        return "hotpotqa" if "hotpotqa" in self.paths else next(iter(self.paths))


def parse_shares(text: str) -> tuple[float, ...]:
    """Numbers from 0 to 0.5 with commas between.

    Raises:
        InvalidInputError: One of them is none.
    """
    found = tuple(map(_parse_share, split_names(text)))
    if not found:
        msg = "--noise takes numbers from 0 to 0.5, such as 0,0.1,0.2, not nothing"
        raise InvalidInputError(msg)
    return found


def _parse_share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value <= _MAX_NOISE:
        msg = f"--noise takes numbers from 0 to 0.5, such as 0,0.1,0.2, not {text!r}"
        raise InvalidInputError(msg)
    return value


def _require_known(option: str, given: Sequence[str], allowed: Sequence[str]) -> None:
    unknown = [name for name in given if name not in allowed]
    if unknown or not given:
        what = f"there is no {option} {unknown[0]!r}" if unknown else f"{option} names nothing"
        msg = f"{what}: choose among {', '.join(allowed)}, with commas between"
        raise InvalidInputError(msg)
