"""Settings of maintenance: pruning, connecting and compacting.

Settings of A/B trials: when a trial may be judged, and when it is ended.
"""

from typing import Annotated

from pydantic import Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import Count, Neighbours, Share, ValidatedSettings

Score = Annotated[float, Field(ge=-1000, le=1000)]
"""A part of a survival score."""


class MaintenanceSettings(ValidatedSettings):
    """Rules by which maintenance drops, connects and keeps."""

    faded_distance: Share = 0.01
    """A learned weight this near to its floor is dropped: it has faded."""
    min_weight: Share = 0.05
    """A learned edge is dropped below this weight."""
    min_inhibition: Share = 0.01
    """An inhibitory edge is dropped below this absolute weight."""
    min_age_turns: Count = 14
    """Turns since its last change before a weight may be dropped."""
    edge_score: Score = 0.1
    """α: part of the survival score of a note on probation, per edge."""
    use_score: Score = 0.5
    """β: the same, per use of the note."""
    success_score: Score = 1.0
    """γ: the same, for a share of successful uses of 1."""
    age_penalty: Score = 0.5
    """δ: taken from that score per ``min_age_turns`` turns since the last use."""
    connect_neighbours: Neighbours = 3
    """Nodes that a node without edges is connected with."""
    connect_similarity: Share = 0.5
    """Least similarity of nodes that are connected."""
    max_turns: Count = 5_000
    """Turn records kept per namespace."""
    max_feedback: Count = 20_000
    """Latest feedback per namespace whose questions are recalled and that can be undone."""
    max_journal_rows: Count = 10_000
    """Rows of the journal that are kept."""
    batch_size: Count = 5_000
    """Rows that are read and changed at once."""


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
