"""Settings of maintenance: pruning, connecting and compacting.

Settings of A/B trials: when a trial may be judged, and when it is ended.
"""

from pydantic import Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import ValidatedSettings
from crabpath_retrievers.errors import InvalidInputError


class MaintenanceSettings(ValidatedSettings):
    """What maintenance drops, connects and keeps."""

    faded_distance: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="A learned weight this near to its floor is dropped: it has faded.",
    )
    min_weight: float = Field(
        default=0.05, ge=0, le=1, description="A learned edge is dropped below this weight."
    )
    min_inhibition: float = Field(
        default=0.01,
        ge=0,
        le=1,
        description="An inhibitory edge is dropped below this absolute weight.",
    )
    min_age_turns: int = Field(
        default=14,
        ge=1,
        le=1_000_000_000,
        description="Turns since its last change before a weight may be dropped.",
    )
    edge_score: float = Field(
        default=0.1,
        ge=-1000,
        le=1000,
        description="α: part of the survival score of a note on probation, per edge.",
    )
    use_score: float = Field(
        default=0.5, ge=-1000, le=1000, description="β: the same, per use of the note."
    )
    success_score: float = Field(
        default=1.0,
        ge=-1000,
        le=1000,
        description="γ: the same, for a share of successful uses of 1.",
    )
    age_penalty: float = Field(
        default=0.5,
        ge=-1000,
        le=1000,
        description="δ: taken from that score per ``min_age_turns`` turns since the last use.",
    )
    connect_neighbours: int = Field(
        default=3,
        ge=1,
        le=10_000,
        description="Nodes that a node without edges is connected with.",
    )
    connect_similarity: float = Field(
        default=0.5, ge=0, le=1, description="Least cosine of nodes that are connected."
    )
    max_turns: int = Field(
        default=5_000, ge=1, le=1_000_000_000, description="Turn records kept per namespace."
    )
    max_journal_rows: int = Field(
        default=10_000, ge=1, le=1_000_000_000, description="Rows of the journal that are kept."
    )
    batch_size: int = Field(
        default=5_000, ge=1, le=1_000_000_000, description="Rows that are read and changed at once."
    )


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
