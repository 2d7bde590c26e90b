"""Settings of the autotuner: four knobs, their guard rails and steps ([CrabPath])."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import Field, PlainValidator

from crabpath_retrievers.config.base import (
    Count,
    Positive,
    Range,
    Share,
    ValidatedSettings,
    complete_mapping,
    complete_ranges,
)
from crabpath_retrievers.core.text import format_value, is_number, to_plain
from crabpath_retrievers.errors import InvalidInputError

PAPER: Mapping[str, Range] = MappingProxyType(
    {
        "half_life": (20.0, 200.0),
        "promotion_threshold": (2, 10),  # the paper says "never below 2"
        "hebbian_rate": (0.01, 0.12),  # and "capped at 0.12"
        "reflex": (0.8, 0.95),
    }
)
"""Guard rails of the CrabPath paper, by knob."""

OURS: Mapping[str, Range] = MappingProxyType(
    {
        **PAPER,
        # The default half-life, 2000 turns, was chosen by measurement where edges from the text do
        # not decay; the rail leaves one doubling above it, and below as little as the paper.
        "half_life": (20.0, 4000.0),
    }
)
"""Guard rails for the default graph."""

KNOBS = tuple(PAPER)
"""Names of the four knobs."""


WIDEST: Mapping[str, Range] = {
    "half_life": (1.0, 1e9),
    "promotion_threshold": (2, 1000),
    "hebbian_rate": (1e-6, 1.0),
    "reflex": (0.0, 1.0),
}
"""Widest guard rails that can be set, by knob."""


class Knobs(ValidatedSettings):
    """The settings that the autotuner changes, for one namespace."""

    half_life: Positive
    """Turns after which a learned weight is half-way at its floor."""
    promotion_threshold: Count
    """Distinct turns of joint use after which a pair becomes an edge."""
    hebbian_rate: Share
    """Step of the edge between two documents used together."""
    reflex: Share
    """Least weight of an edge that is always followed."""


class AutotuneSettings(ValidatedSettings):
    """Settings of the autotuner: when, how far and how fast it changes knobs."""

    enabled: bool = False
    """Whether knobs are changed automatically: after every ``every_feedbacks``, and in maintenance.
    Off: the defaults were chosen by measurement, and healthy metrics do not imply good answers.
    ``tune`` works either way."""
    every_feedbacks: Count = 25
    """Feedbacks of a namespace between two runs."""
    rails: Annotated[Mapping[str, Range], PlainValidator(complete_ranges("knob", OURS, WIDEST))] = (
        Field(default_factory=lambda: OURS)
    )
    """Guard rails: least and greatest value by knob, in the unit of the knob. Knobs that are not
    given keep theirs."""
    half_life_factor: Annotated[float, Field(ge=1.01, le=10)] = 2.0
    """One step multiplies or divides the half-life."""
    min_half_life_step: Annotated[float, Field(ge=0.1, le=1_000_000)] = 10.0
    """Turns that one step moves it, at least."""
    hebbian_step: Annotated[float, Field(ge=1e-6, le=1)] = 0.01
    """One step of the Hebbian rate."""
    reflex_step: Annotated[float, Field(ge=1e-6, le=1)] = 0.02
    """One step of the reflex threshold, a weight."""
    max_changes: Annotated[int, Field(ge=1, le=len(KNOBS))] = 2
    """Knobs that one run changes, at most."""
    window_reports: Annotated[int, Field(ge=1, le=100)] = 4
    """Latest health reports in which the memory must not have got much worse."""
    brake_dormant_share: Share = 0.98
    """Share of dormant edges, out of its range, from which the brake is applied."""
    brake_metrics: Annotated[int, Field(ge=1, le=8)] = 3
    """Metrics that have left their range since, from which the brake is applied."""
    rest_runs: Annotated[int, Field(ge=0, le=100)] = 1
    """Runs after a brake that change nothing, so that it can take effect."""
    min_success_chance: Share = 0.2
    """Least probability of success of a change that is tried; a change that was never tried has one
    half."""
    evidence_decay: Share = 0.95
    """Share of the evidence about changes that is left after each run, so that one that failed is
    tried again later."""

    @classmethod
    def preset(cls, name: Literal["default", "paper"]) -> "AutotuneSettings":
        """The rails and steps for the default graph, or those of the CrabPath paper."""
        if name == "default":
            return cls()
        if name == "paper":
            return cls(rails=PAPER, half_life_factor=4 / 3)
        msg = f"unknown preset {format_value(name)} of autotune: use 'default' or 'paper'"
        raise InvalidInputError(msg)

    def validate_knobs(self, knobs: Mapping[str, Any]) -> dict[str, Any]:
        """Values of knobs as they are stored.

        Raises:
            InvalidInputError: There is no such knob, or its value is beyond its rails.
        """
        complete_mapping("knob", PAPER)(knobs)
        checked: dict[str, Any] = {}
        for name, value in zip(knobs, map(to_plain, knobs.values()), strict=True):
            (low, high), whole = self.rails[name], name == "promotion_threshold"
            if not is_number(value) or not low <= value <= high or (whole and value != int(value)):
                kind = "whole number" if whole else "number"
                msg = f"{name} must be a {kind} from {low:g} to {high:g}, not {format_value(value)}"
                raise InvalidInputError(msg)
            checked[name] = int(value) if whole else float(value)
        return checked
