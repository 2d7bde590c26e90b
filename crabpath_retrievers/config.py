"""Settings, one frozen group per mechanism. Defaults were chosen on training files."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.graph import EdgeKind, Tier

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
    }
)
_SOURCES: Mapping[str, float] = MappingProxyType(
    {"human": 1.0, "self": 0.6, "harvested": 0.3, "teacher": 0.1}
)
APPLY = ("inline", "background", "external")


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
        if not self.temperature > 0:
            msg = f"temperature must be above 0, not {self.temperature!r}"
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
class EpisodeSettings:
    """Remembered turns.

    Attributes:
        neighbours: Most similar episodes that a query recalls.
        min_similarity: Cosine from which an episode speaks for what was used.
        min_share: The same for the share of the query's words, by what they tell, that the
            episode's query has.
        same_question, same_share: The same two from which it is the same question, so that the
            episode also speaks against what was not used.
        same: Cosine from which two turns are one episode.
        scanned: Latest episodes that are compared where the vector index keeps none.
    """

    neighbours: int = 5
    min_similarity: float = 0.6
    min_share: float = 0.5
    same_question: float = 0.9
    same_share: float = 0.8
    same: float = 0.92
    scanned: int = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteSettings:
    """What a namespace is taught, and the gates of neurogenesis (document 001 §2.7).

    Attributes:
        neighbours: Nearest notes that a query finds.
        scanned: Latest notes that are compared where the vector index keeps none.
        probation_turns: Turns after its last use from which a note on probation is not found.
        same: Cosine from which two notes say the same, and no second one is made.
        min_tokens: Fewest words of a question from which a note is made.
        alphanumeric: Least share of letters and digits in such a question, without its spaces.
        blocked: Phrases; no note is made from a question that contains one.
    """

    neighbours: int = 8
    scanned: int = 500
    probation_turns: int = 14
    same: float = 0.92
    min_tokens: int = 3
    alphanumeric: float = 0.6
    blocked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """Learning from outcomes; every mechanism can be switched off.

    Attributes:
        policy_gradient, hebbian, ranker, usage, episodes, decay: Whether the mechanism learns.
        rule: Credit over the full trajectory; ``myopic`` (last decision only) and ``heuristic``
            (the chosen edge only) are for comparison (document 003 §3).
        rate: η, step of the policy gradient.
        discount: γ in (0, 1], per hop from the document that is credited.
        half_life: Turns after which a learned weight has come half-way back to its floor.
        hebbian_rate: h, an edge between two nodes used together moves by ``h · (1 - w)``.
        promotion_threshold: Distinct turns of joint use from which a new edge stands.
        blame_threshold: Distinct failed turns from which an inhibitory edge stands.
        window_turns, window_seconds: How far back feedback without a turn id looks.
        delay: λ, feedback without a turn id counts ``exp(-λ · turns ago)``, normalised.
        sources: How much each source of reward counts, in [0, 1].
        prior_strength: Precision of the ranker's prior weights for what names and pointers say;
            the larger, the slower it learns. All other weights stay.
        usage_prior: Uses and passes that every document starts with.
        apply: When kept feedback is learned from: before ``record`` returns (``inline``), by a
            thread of this process (``background``), or by ``crabpath learn`` (``external``).
        neurogenesis: Whether a successful answer to a novel question becomes a note on probation.
            Off: an answer that a chain gave is no knowledge yet, it may be wrong where nobody
            noticed, and it would be returned beside the documents.
    """

    policy_gradient: bool = True
    hebbian: bool = True
    ranker: bool = True
    usage: bool = True
    episodes: bool = True
    decay: bool = True
    rule: Literal["full", "myopic", "heuristic"] = "full"
    rate: float = 0.2
    discount: float = 0.9
    half_life: float = 2000.0
    hebbian_rate: float = 0.1
    promotion_threshold: int = 2
    blame_threshold: int = 2
    window_turns: int = 10
    window_seconds: float = 900.0
    delay: float = 0.3
    sources: Mapping[str, float] = field(default_factory=lambda: _SOURCES)
    prior_strength: float = 30.0
    usage_prior: tuple[float, float] = (2.0, 3.0)
    apply: Literal["inline", "background", "external"] = "inline"
    neurogenesis: bool = False

    def __post_init__(self) -> None:
        """Refuse a way to apply feedback that does not exist.

        Raises:
            InvalidInputError: ``apply`` is none of the three.
        """
        if self.apply not in APPLY:
            msg = f"apply must be one of {', '.join(APPLY)}, not {self.apply!r}"
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings; pass a changed copy (``dataclasses.replace``) to ``CrabPath.open``."""

    tiers: TierSettings = field(default_factory=TierSettings)
    seeds: SeedSettings = field(default_factory=SeedSettings)
    walk: WalkSettings = field(default_factory=WalkSettings)
    policy: PolicySettings = field(default_factory=PolicySettings)
    links: LinkSettings = field(default_factory=LinkSettings)
    ingest: IngestSettings = field(default_factory=IngestSettings)
    rank: RankSettings = field(default_factory=RankSettings)
    learning: LearningSettings = field(default_factory=LearningSettings)
    episode: EpisodeSettings = field(default_factory=EpisodeSettings)
    note: NoteSettings = field(default_factory=NoteSettings)

    @classmethod
    def preset(cls, name: Literal["crabpath", "openclawbrain"]) -> "Settings":
        """Settings with the tier thresholds of document 000 or of document 003."""
        if name == "crabpath":
            return cls()
        if name == "openclawbrain":
            return cls(tiers=TierSettings(reflex=0.6, habitual=0.2))
        msg = f"unknown preset {name!r}: use 'crabpath' or 'openclawbrain'"
        raise InvalidInputError(msg)
