"""Settings, one frozen group per mechanism. Defaults were chosen on training files."""

from collections.abc import Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache
from types import MappingProxyType
from typing import Literal, get_type_hints

from crabpath_retrievers.config.autotune import AutotuneSettings, Knobs
from crabpath_retrievers.config.health import HealthSettings
from crabpath_retrievers.config.kinds import require_kinds
from crabpath_retrievers.config.learning import (
    EpisodeSettings,
    LearningSettings,
    NoteSettings,
    RegionSettings,
)
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import TYPED_KINDS, EdgeKind, Tier
from crabpath_retrievers.text import shown
from crabpath_retrievers.time_limit import TIME_LIMIT

_LONGEST = 86_400.0  # seconds

_PRIORS: Mapping[EdgeKind, float] = MappingProxyType(
    {
        EdgeKind.SIBLING: 0.3,
        EdgeKind.LINK: 0.6,
        EdgeKind.LINKED_BY: 0.35,
        EdgeKind.MENTION: 0.6,
        EdgeKind.MENTIONED_BY: 0.35,
        EdgeKind.SHARED_TERM: 0.35,
        EdgeKind.SIMILAR: 0.3,
        EdgeKind.FOLLOWS: 0.5,
        EdgeKind.TOOL: 0.5,
        EdgeKind.CO_USED: 0.0,
        EdgeKind.INHIBITS: 0.0,
        EdgeKind.TAUGHT: 0.0,
        **dict.fromkeys(TYPED_KINDS, 0.0),
    }
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TierSettings:
    """Thresholds on the effective weight; between dormant and reflex an edge is habitual."""

    reflex: float = 0.8
    habitual: float = 0.3
    inhibitory: float = -0.01

    def tier_of(self, weight: float) -> Tier:
        """The tier of an edge with this effective weight."""
        if weight <= self.inhibitory:
            return Tier.INHIBITORY
        if weight >= self.reflex:
            return Tier.REFLEX
        return Tier.HABITUAL if weight >= self.habitual else Tier.DORMANT


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedSettings:
    """Where a walk may start.

    Attributes:
        hits: Search hits per engine that enter the ranking.
        entries: Best hits from which the walk leaves.
        similarity, lexical, name: Weights of cosine, of the lexical score relative to the best
            hit, and of "the query contains the node's name" times the rarity of that name.
        episode: Entry score of what a success of the very same query used.
        hint: Entry score of nodes that the caller suggests (document 002 §1.4).
        postings: Most matches that a lexical query may touch; common words are dropped first.
        query_terms: Most distinct words of a query that are looked up.
    """

    hits: int = 20
    entries: int = 8
    similarity: float = 0.6
    lexical: float = 0.4
    name: float = 0.3
    episode: float = 0.9
    hint: float = 0.25
    postings: int = 300
    query_terms: int = 48


@dataclass(frozen=True, slots=True, kw_only=True)
class WalkSettings:
    """Budgets of one walk (document 001 §2.4–2.5) and damping (document 003 §3).

    Attributes:
        max_nodes: Nodes visited in one turn, seeds included.
        max_new_nodes: New nodes that one node may add in one hop.
        max_hops: Hops from a seed.
        min_energy: Nodes entered with less are not walked on from. Energy is the entry score of a
            seed; every pointer multiplies it by its weight.
        barren_hops: Hops without a new node after which the walk ends.
        visits_per_node: How often a node may be entered.
        damping: λ; an edge reused k times in one episode counts ``weight · λ^k``.
    """

    max_nodes: int = 24
    max_new_nodes: int = 6
    max_hops: int = 3
    min_energy: float = 0.2
    barren_hops: int = 2
    visits_per_node: int = 1
    damping: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySettings:
    """The softmax policy over pointers and STOP (document 000 §3.1).

    Attributes:
        temperature: τ > 0.
        stop: Relevance plus prior weight of STOP; a pointer is followed when it beats it.
    """

    temperature: float = 0.2
    stop: float = 0.6

    def __post_init__(self) -> None:
        """Refuse a temperature that divides by zero.

        Raises:
            InvalidInputError: The temperature is not above 0.
        """
        require_kinds(self)
        if not self.temperature > 0:
            msg = f"temperature must be above 0, not {shown(self.temperature)}"
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkSettings:
    """What the linkers may add.

    Attributes:
        priors: First weight per kind of edge; 0 for kinds that only outcomes make.
        fading: Kinds whose decay floor is 0; all others keep their prior as floor.
        max_mentions: A name mentioned by more nodes than this gets no further edges.
        max_back: Edges back per named node, so that hubs stay cheap to read.
        max_owners: A name shared by more nodes than this is too common to mean one of them.
        max_name_words: Longest name looked up, in words.
        max_shared: Chunks that may share a term before it counts as common.
        max_terms: Terms per chunk that are looked up for sharing.
        metadata_keys: Metadata keys whose equal values link documents.
        similar: Nearest neighbours linked per node; 0 switches the linker off.
        min_similarity: Cosine below which neighbours are not linked.
    """

    priors: Mapping[EdgeKind, float] = field(default_factory=lambda: _PRIORS)
    fading: frozenset[EdgeKind] = frozenset()
    max_mentions: int = 256
    max_back: int = 32
    max_owners: int = 3
    max_name_words: int = 8
    max_shared: int = 6
    max_terms: int = 24
    metadata_keys: tuple[str, ...] = ()
    similar: int = 0
    min_similarity: float = 0.5

    def floor(self, kind: EdgeKind) -> float:
        """Where forgetting leaves an edge of this kind."""
        return 0.0 if kind in self.fading else self.priors[kind]


@dataclass(frozen=True, slots=True, kw_only=True)
class IngestSettings:
    """Splitting and batching.

    Attributes:
        chunk_size, chunk_overlap: Characters, for texts that are split by size.
        batch: Chunks that are embedded, stored and linked as one unit.
    """

    chunk_size: int = 1200
    chunk_overlap: int = 100
    batch: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncSettings:
    """Following sources as they change.

    Attributes:
        similarity: Cosine above which a text that appears is a new version of one that vanished.
        largest: Bytes of the largest file that is read.
    """

    similarity: float = 0.92
    largest: int = 32 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """The final ranking.

    Attributes:
        confident: Probability of relevance from which a document is returned without fill.
        inhibition: Largest loss in log-odds that inhibitory edges can cause.
        characters_per_token: Rough length of a token for budgets when no counter is given.
    """

    confident: float = 0.35
    inhibition: float = 1.5
    characters_per_token: float = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; pass a changed copy (``dataclasses.replace``) to ``CrabPath.open``.

    Attributes:
        time_limit: Seconds that a query or a feedback may wait for databases and servers, all its
            waiting together: then it fails with ``StoreUnavailableError``. Closing waits no longer
            either. What may take long, such as adding documents, has no limit.
    """

    tiers: TierSettings = field(default_factory=TierSettings)
    seeds: SeedSettings = field(default_factory=SeedSettings)
    walk: WalkSettings = field(default_factory=WalkSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    sync: SyncSettings = field(default_factory=SyncSettings)
    rank: RankSettings = field(default_factory=RankSettings)
    learning: LearningSettings = field(default_factory=LearningSettings)
    episode: EpisodeSettings = field(default_factory=EpisodeSettings)
    note: NoteSettings = field(default_factory=NoteSettings)
    region: RegionSettings = field(default_factory=RegionSettings)
    health: HealthSettings = field(default_factory=HealthSettings)
    maintenance: MaintenanceSettings = field(default_factory=MaintenanceSettings)
    autotune: AutotuneSettings = field(default_factory=AutotuneSettings)
    time_limit: float = TIME_LIMIT

    def __post_init__(self) -> None:
        """Refuse knobs that are to be turned and start beyond their guard rails.

        Raises:
            InvalidInputError: One of them does; or a group, a value in it, or the time limit is
                none.
        """
        limit: object = self.time_limit
        known = isinstance(limit, (int, float)) and not isinstance(limit, bool)
        if not known or not 0 < self.time_limit <= _LONGEST:
            msg = f"time_limit must be seconds above 0 and up to a day, not {shown(limit)}"
            raise InvalidInputError(msg)
        for name, kind in _groups().items():
            group = getattr(self, name)
            if not isinstance(group, kind):
                msg = f"{name} must be {kind.__name__}(...), not {shown(group)}"
                raise InvalidInputError(msg)
            require_kinds(group)
        if self.autotune.enabled:
            self.autotune.checked(self.knobs.to_dict())

    @property
    def knobs(self) -> Knobs:
        """Where the knobs of every namespace stand before one of them is turned."""
        learning = self.learning
        return Knobs(
            half_life=learning.half_life,
            promotion_threshold=learning.promotion_threshold,
            hebbian_rate=learning.hebbian_rate,
            reflex=self.tiers.reflex,
        )

    @classmethod
    def preset(cls, name: Literal["crabpath", "openclawbrain"]) -> "Settings":
        """Settings with the tier thresholds of document 000 or of document 003."""
        if name == "crabpath":
            return cls()
        if name == "openclawbrain":
            return cls(tiers=TierSettings(reflex=0.6, habitual=0.2))
        msg = f"unknown preset {name!r}: use 'crabpath' or 'openclawbrain'"
        raise InvalidInputError(msg)


@cache
def _groups() -> dict[str, type]:
    """The groups of settings by their names."""
    return {
        n: kind
        for n, kind in get_type_hints(Settings).items()
        if isinstance(kind, type) and is_dataclass(kind)
    }
