"""Settings of A/B trials: when a trial may be judged, and when it is ended."""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import Count, ValidatedSettings


class TrialSettings(ValidatedSettings):
    """Settings of a trial: the evidence it needs, and when its treatment has failed."""

    directional_turns: Count = 500
    """Turns of each arm that show a tendency."""
    decisive_turns: Count = 2000
    """Turns of each arm from which promotion is decided."""
    min_sessions: Annotated[int, Field(ge=2, le=1_000_000_000)] = 20
    """Sessions (or users) of each arm from which an interval is computed."""
    checkpoint_turns: Count = 100
    """Turns of each arm between checkpoints."""
    feedback_seconds: Annotated[float, Field(ge=0, le=1_000_000_000)] = 900.0
    """Seconds that feedback may take: a checkpoint counts only older turns."""
    fail_ratio: Annotated[float, Field(ge=1, le=1_000_000)] = 1.2
    """A checkpoint is bad when the correction rate of the treatment is above that of the control
    times this ratio."""
    fail_checkpoints: Count = 2
    """Bad checkpoints in a row that end the trial."""
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95
    """Confidence level of the intervals, a share."""
    resamples: Annotated[int, Field(ge=100, le=100_000_000)] = 9999
    """Resamples of the bootstrap."""
    seed: Annotated[int, Field(ge=0, le=2**63)] = 0
    """Seed of the bootstrap, no unit."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        return self.require_order("directional_turns", "decisive_turns", equal=True)
