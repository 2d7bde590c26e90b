"""The numbers that health is judged by, as a store gives them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from crabpath_retrievers.config import TierSettings
from crabpath_retrievers.graph import DECAY_RATES, Tier, effective_weight
from crabpath_retrievers.storage.health_edges import EdgeRow
from crabpath_retrievers.storage.health_queries import TurnFacts


@dataclass(frozen=True, slots=True)
class Tally:
    """Edges that were looked at, counted.

    Attributes:
        tiers: By tier.
        fading: Those that forgetting can take below the habitual bar.
        faded: Those of them that are dormant.
        within: Those between two document chunks.
        crossing: Those of them that lead from one document to another.
        share: Which share of all such edges was looked at, in (0, 1].
    """

    tiers: Mapping[Tier, int] = field(default_factory=dict)
    fading: int = 0
    faded: int = 0
    within: int = 0
    crossing: int = 0
    share: float = 1.0

    @property
    def edges(self) -> int:
        """How many were looked at."""
        return sum(self.tiers.values())


@dataclass(frozen=True, slots=True)
class Measured:
    """What was found of one namespace.

    Attributes:
        turns: The latest ones.
        nodes, tokens: Document chunks of the corpus, and the words of their titles and texts.
        sampled: Chunks that were looked at.
        documents: How many documents these are chunks of.
        isolated: Chunks among them that no pointer leads to or away from.
        missing: Chunks among them that the vector index lacks; None where nobody could tell.
        structure: Edges of the text that leave them, about which nothing was learned.
        learned: Edges whose weight the namespace has learned.
        pairs: Pairs that were counted as used together.
        promoted: Those of them that have become an edge.
        splits: Nodes that were split.
        rejoined: Those of them of which one piece is left, or two are used together again.
    """

    turns: Sequence[TurnFacts] = ()
    nodes: int = 0
    tokens: int = 0
    sampled: int = 0
    documents: int = 0
    isolated: int = 0
    missing: int | None = None
    structure: Tally = field(default_factory=Tally)
    learned: Tally = field(default_factory=Tally)
    pairs: int = 0
    promoted: int = 0
    splits: int = 0
    rejoined: int = 0


def tally(
    rows: Iterable[EdgeRow], exponent: float, tiers: TierSettings, share: float = 1.0
) -> Tally:
    """Count edges as a namespace sees them now.

    Args:
        rows: The edges.
        exponent: Accumulated decay exponent of the namespace.
        tiers: Bars between the tiers.
        share: Which share of all such edges they are.
    """
    by_tier = dict.fromkeys(Tier, 0)
    fading = faded = within = crossing = 0
    for row in rows:
        rate = DECAY_RATES[row.authority]
        tier = tiers.tier_of(effective_weight(row.weight, row.floor, row.mark, exponent, rate))
        by_tier[tier] += row.number
        if row.floor < tiers.habitual:
            fading += row.number
            faded += row.number * (tier is Tier.DORMANT)
        if row.crossing is not None:
            within += row.number
            crossing += row.number * row.crossing
    return Tally(by_tier, fading, faded, within, crossing, share)
