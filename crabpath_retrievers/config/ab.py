"""Settings of A/B trials: when a trial may be judged, and when it is ended."""

from pydantic import Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.errors import InvalidInputError


class TrialSettings(ValidatedSettings):
    """How much evidence a trial needs, and what counts as a failed treatment."""

    directional_turns: int = Field(
        default=500, ge=1, le=1_000_000_000, description="Turns of each arm that show a tendency."
    )
    decisive_turns: int = Field(
        default=2000,
        ge=1,
        le=1_000_000_000,
        description="Turns of each arm from which promotion is decided.",
    )
    min_sessions: int = Field(
        default=20,
        ge=2,
        le=1_000_000_000,
        description="Sessions (or users) of each arm from which an interval is computed.",
    )
    checkpoint_turns: int = Field(
        default=100, ge=1, le=1_000_000_000, description="Turns of each arm between checkpoints."
    )
    feedback_seconds: float = Field(
        default=900.0,
        ge=0,
        le=1_000_000_000,
        description="Seconds that feedback may take: a checkpoint counts only older turns.",
    )
    fail_ratio: float = Field(
        default=1.2,
        ge=1,
        le=1_000_000,
        description="A checkpoint is bad when the correction rate of the treatment is above that "
        "of the control times this ratio.",
    )
    fail_checkpoints: int = Field(
        default=2, ge=1, le=1_000_000, description="Bad checkpoints in a row that end the trial."
    )
    confidence: float = Field(
        default=0.95, gt=0, lt=1, description="Confidence level of the intervals, a share."
    )
    resamples: int = Field(
        default=9999, ge=100, le=100_000_000, description="Resamples of the bootstrap."
    )
    seed: int = Field(default=0, ge=0, le=2**63, description="Seed of the bootstrap, no unit.")

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        if self.decisive_turns < self.directional_turns:
            msg = (
                f"TrialSettings.decisive_turns ({self.decisive_turns}) must not be below "
                f"directional_turns ({self.directional_turns}): raise the one or lower the other"
            )
            raise InvalidInputError(msg)
        return self
