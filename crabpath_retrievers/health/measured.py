"""Measurements of a namespace, as read from the store."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crabpath_retrievers.config import TierSettings
from crabpath_retrievers.graph import DECAY_RATES, Tier, effective_weight
from crabpath_retrievers.storage.health_edges import EdgeGroup
from crabpath_retrievers.storage.health_queries import TurnFacts


@dataclass(frozen=True, slots=True)
class EdgeTally:
    """Counts of a sample of edges.

    Attributes:
        tiers: Edges by tier.
        fading: Edges that decay can take below the habitual threshold.
        faded: Dormant edges among ``fading``.
        within: Edges between two document chunks.
        crossing: Edges among ``within`` that lead from one document to another.
        share: Sampled share of all such edges, in (0, 1].
    """

    tiers: Mapping[Tier, int] = field(default_factory=dict)
    fading: int = 0
    faded: int = 0
    within: int = 0
    crossing: int = 0
    share: float = 1.0

    @property
    def edges(self) -> int:
        """Number of sampled edges."""
        return sum(self.tiers.values())


@dataclass(frozen=True, slots=True)
class HealthMeasurements:
    """Measurements of one namespace.

    Attributes:
        turns: The latest turns.
        nodes, tokens: Number of document chunks, and of words in their titles and texts.
        sampled: Number of sampled chunks.
        documents: Number of documents with sampled chunks.
        isolated: Sampled chunks without any edge.
        missing: Sampled chunks that the vector index lacks; None if the index was not asked.
        structure: Text edges of the sampled chunks that have no learned weight.
        learned: Edges whose weight the namespace has learned.
        pairs: Pairs of chunks counted as used together.
        promoted: Pairs that have become an edge.
        splits: Nodes that were split.
        rejoined: Split nodes with only one part left, or with two parts used together again.
    """

    turns: Sequence[TurnFacts] = ()
    nodes: int = 0
    tokens: int = 0
    sampled: int = 0
    documents: int = 0
    isolated: int = 0
    missing: int | None = None
    structure: EdgeTally = field(default_factory=EdgeTally)
    learned: EdgeTally = field(default_factory=EdgeTally)
    pairs: int = 0
    promoted: int = 0
    splits: int = 0
    rejoined: int = 0


def count_edges(
    rows: Iterable[EdgeGroup], exponent: float, tiers: TierSettings, share: float = 1.0
) -> EdgeTally:
    """Count edges by their effective weights in a namespace.

    Args:
        rows: The edges.
        exponent: Accumulated decay exponent of the namespace.
        tiers: Thresholds between the tiers.
        share: Sampled share of all such edges, in (0, 1].
    """
    by_tier = dict.fromkeys(Tier, 0)
    fading = faded = within = crossing = 0
    for row in rows:
        rate = DECAY_RATES[row.authority]
        tier = tiers.tier_of(effective_weight(row.weight, row.floor, row.decay_at, exponent, rate))
        by_tier[tier] += row.number
        if row.floor < tiers.habitual:
            fading += row.number
            faded += row.number * (tier is Tier.DORMANT)
        if row.crossing is not None:
            within += row.number
            crossing += row.number * row.crossing
    return EdgeTally(by_tier, fading, faded, within, crossing, share)
