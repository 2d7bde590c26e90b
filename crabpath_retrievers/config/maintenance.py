"""Settings of maintenance: pruning, merging, splitting, connecting and compacting."""

from pydantic import Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import Texts, ValidatedSettings
from crabpath_retrievers.errors import InvalidInputError

_LOCATION_KEYS = (
    *("source", "title", "path", "file_path", "file_name", "filename", "url", "page", "page_label"),
    *("start_index", "authority", "merged_from"),
)


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
    merge: bool = Field(
        default=True,
        description="Whether every maintenance merges near-duplicates; False: only on request.",
    )
    merge_similarity: float = Field(
        default=0.97,
        ge=0,
        le=1,
        description="Least cosine of two texts, equal word by word, that are merged.",
    )
    location_keys: Texts = Field(
        default=_LOCATION_KEYS,
        description="Metadata keys that say where a text is from; only these may differ between "
        "texts that are merged.",
    )
    split: bool = Field(
        default=False,
        description="Whether every maintenance splits broad texts, which changes the ids of what "
        "is returned; False: only on request.",
    )
    split_above_chars: int = Field(
        default=6_000,
        ge=1,
        le=1_000_000_000,
        description="Characters from which a text may be split.",
    )
    split_part_chars: int = Field(
        default=1_500,
        ge=1,
        le=1_000_000_000,
        description="Characters of a part, at most, where the text can be cut.",
    )
    split_min_questions: int = Field(
        default=4,
        ge=1,
        le=1_000_000,
        description="A long text without headings is split when it helped with this many questions "
        "that are dissimilar.",
    )
    split_below_similarity: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Mean cosine below which questions are dissimilar.",
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

    @model_validator(mode="after")
    def _require_smaller_parts(self) -> Self:
        if self.split_part_chars >= self.split_above_chars:
            msg = (
                f"MaintenanceSettings.split_part_chars ({self.split_part_chars}) must be below "
                f"split_above_chars ({self.split_above_chars}): pass a smaller one"
            )
            raise InvalidInputError(msg)
        return self
