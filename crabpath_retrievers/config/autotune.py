"""Settings of the autotuner: four knobs, their guard rails and steps (document 000 §5.2)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any, Literal

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

Rail = tuple[float, float]
"""Least and greatest value of a knob."""

PAPER: Mapping[str, Rail] = MappingProxyType(
    {
        "half_life": (20.0, 200.0),
        "promotion_threshold": (2, 10),  # the document says "never below 2"
        "hebbian_rate": (0.01, 0.12),  # and "capped at 0.12"
        "reflex": (0.8, 0.95),
    }
)
"""Guard rails of document 000 §5.2, by knob."""

OURS: Mapping[str, Rail] = MappingProxyType(
    {
        **PAPER,
        # Our half-life was chosen by measurement to be 2000 turns, where nothing the text says
        # fades; one doubling of room is above it, and as little as in the paper below.
        "half_life": (20.0, 4000.0),
    }
)
"""Guard rails for the default graph."""

KNOBS = tuple(PAPER)
"""Names of the four knobs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """What the autotuner turns, for one namespace.

    Attributes:
        half_life: Turns after which a learned weight has come half-way back to its floor.
        promotion_threshold: Distinct turns of joint use from which a new edge stands.
        hebbian_rate: Step of an edge between two nodes used together.
        reflex: Weight from which a pointer is followed without a decision.
    """

    half_life: float
    promotion_threshold: int
    hebbian_rate: float
    reflex: float

    def to_dict(self) -> dict[str, float]:
        """Value by name."""
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class AutotuneSettings:
    """How far and how fast knobs are turned, and when.

    Attributes:
        enabled: Whether knobs are turned unasked: after every ``every`` lessons, and in a
            maintenance. Off: the defaults were chosen by measurement, and the ranges of health are
            not promises about answers; who asks for it by ``tune`` gets it all the same.
        every: Lessons of a namespace from one look to the next.
        rails: Least and greatest value by knob; knobs that are left out keep theirs.
        factor, least: A half-life is multiplied or divided by ``factor``, and moves by at least
            ``least`` turns.
        hebbian_step, reflex_step: How far the other two move; the promotion threshold moves by 1.
        most: Knobs that are turned at once.
        window: Latest reports on health among which a memory must not have got much worse.
        death: Dormant share, out of its range, from which the brake is applied; what the very last
            lesson has touched is awake even then.
        fall: Metrics that have left their range since, from which the brake is applied.
        rest: Looks after a brake at which nothing is turned, so that it can take effect.
        worth: Least chance to help with which a turn is tried; every turn starts with one half.
        fading: Share of what is known of turns that is left after each look, so that one that
            failed is tried again some day.
        restore: Whether a snapshot is kept of the last good state, and the brake goes back to what
            the namespace knew then. Off: what was learned since would be lost.
    """

    enabled: bool = False
    every: int = 25
    rails: Mapping[str, Rail] = field(default_factory=lambda: OURS)
    factor: float = 2.0
    least: float = 10.0
    hebbian_step: float = 0.01
    reflex_step: float = 0.02
    most: int = 2
    window: int = 4
    death: float = 0.98
    fall: int = 3
    rest: int = 1
    worth: float = 0.2
    fading: float = 0.95
    restore: bool = False

    def __post_init__(self) -> None:
        """Complete the rails, and refuse what could not be kept to.

        Raises:
            InvalidInputError: An unknown knob, a rail without two numbers in order or beyond what
                a knob can be, or a number out of its range.
        """
        if not isinstance(self.rails, Mapping):
            msg = f"rails must map names to two numbers, not {shown(self.rails)}"
            raise InvalidInputError(msg)
        if unknown := [name for name in self.rails if name not in KNOBS]:
            raise InvalidInputError(_no_knob(unknown[0]))
        given = {name: _rail(name, value) for name, value in self.rails.items()}
        object.__setattr__(self, "rails", MappingProxyType({**OURS, **given}))
        for name, (low, high) in _SIZES.items():
            value = getattr(self, name)
            kind = int if isinstance(low, int) else (int, float)
            if isinstance(value, bool) or not isinstance(value, kind) or not low <= value <= high:
                what = "whole number" if kind is int else "number"
                msg = f"autotune.{name} must be a {what} from {low} to {high}, not {shown(value)}"
                raise InvalidInputError(msg)

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "AutotuneSettings":
        """The rails and steps for the default graph, or those of document 000."""
        if name == "default":
            return cls()
        if name == "paper":
            return cls(rails=PAPER, factor=4 / 3)
        msg = f"unknown preset {name!r:.100} of autotune: use 'default' or 'paper'"
        raise InvalidInputError(msg)

    def checked(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Values of knobs as they are to be kept.

        Raises:
            InvalidInputError: There is no such knob, or its value is none or beyond its rails.
        """
        found: dict[str, Any] = {}
        for name, value in knobs.items():
            if name not in KNOBS:
                raise InvalidInputError(_no_knob(name))
            (low, high), whole = self.rails[name], name == "promotion_threshold"
            number = isinstance(value, (int, float)) and not isinstance(value, bool)
            if not number or not low <= value <= high or (whole and value != int(value)):
                kind = "whole number" if whole else "number"
                msg = f"{name} must be a {kind} from {low:g} to {high:g}, not {shown(value)}"
                raise InvalidInputError(msg)
            found[name] = int(value) if whole else float(value)
        return found


# From a whole number on: whole numbers.
_SIZES: Mapping[str, Rail] = {
    "every": (1, 1_000_000),
    "most": (1, len(KNOBS)),
    "window": (1, 100),
    "fall": (1, 8),
    "death": (0.0, 1.0),
    "rest": (0, 100),
    "factor": (1.01, 10.0),
    "least": (0.1, 1e6),
    "hebbian_step": (1e-6, 1.0),
    "reflex_step": (1e-6, 1.0),
    "worth": (0.0, 1.0),
    "fading": (0.0, 1.0),
}
WIDEST: Mapping[str, Rail] = {
    "half_life": (1.0, 1e9),
    "promotion_threshold": (2, 1000),
    "hebbian_rate": (1e-6, 1.0),
    "reflex": (0.0, 1.0),
}
"""What a knob can be at all: rails lie within."""


def _no_knob(name: Any) -> str:
    return f"there is no knob {shown(name)}: use {', '.join(KNOBS)}"


def _rail(name: str, value: Any) -> Rail:
    least, greatest = WIDEST[name]
    try:
        low, high = value
        sound = least <= low <= high <= greatest
    except (TypeError, ValueError):
        sound = False
    if not sound:
        msg = (
            f"the rails of {name} must be two numbers from {least:g} to {greatest:g}, "
            f"the least one first, not {shown(value)}"
        )
        raise InvalidInputError(msg)
    return low, high
