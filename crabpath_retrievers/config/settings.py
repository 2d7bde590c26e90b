"""All settings, one group per mechanism. Defaults were chosen on training data.

The knobs of one namespace: stored as JSON, and applied to the settings.
"""

import json
import logging
import math
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import Self

from crabpath_retrievers.config.base import (
    Count,
    CountOrZero,
    Neighbours,
    Share,
    Signed,
    Texts,
    ValidatedSettings,
    complete_mapping,
)
from crabpath_retrievers.config.learning import (
    EpisodeSettings,
    LearningSettings,
    NoteSettings,
    RegionSettings,
)
from crabpath_retrievers.config.operation import (
    WIDEST_RAILS,
    AutotuneSettings,
    HealthSettings,
    Knobs,
    MaintenanceSettings,
)
from crabpath_retrievers.core.calls import DEFAULT_TIME_LIMIT
from crabpath_retrievers.core.language import require_language
from crabpath_retrievers.core.records import TYPED_KINDS, EdgeKind, Tier
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError, StoreError

_PRIORS: Mapping[EdgeKind, float] = MappingProxyType(
    {
        EdgeKind.SIBLING: 0.3,
        EdgeKind.LINK: 0.6,
        EdgeKind.LINKED_BY: 0.35,
        EdgeKind.MENTION: 0.6,
        EdgeKind.MENTIONED_BY: 0.35,
        EdgeKind.SHARED_TERM: 0.35,
        EdgeKind.SIMILAR: 0.3,
        EdgeKind.CO_USED: 0.0,
        EdgeKind.INHIBITS: 0.0,
        EdgeKind.TAUGHT: 0.0,
        **dict.fromkeys(TYPED_KINDS, 0.0),
    }
)


class TierSettings(ValidatedSettings):
    """Thresholds on the effective weight of an edge; below ``habitual`` an edge is dormant."""

    reflex: Share = 0.8
    """Least weight of a reflex edge: it is always followed."""
    habitual: Share = 0.3
    """Least weight of a habitual edge: the policy decides."""
    inhibitory: Annotated[float, Field(ge=-1, le=0)] = -0.01
    """Greatest weight of an inhibitory edge."""

    @model_validator(mode="after")
    def _require_order(self) -> Self:
        return self.require_order("habitual", "reflex", equal=True)

    def tier_of(self, weight: float) -> Tier:
        """The tier of an edge with this effective weight."""
        if weight <= self.inhibitory:
            return Tier.INHIBITORY
        if weight >= self.reflex:
            return Tier.REFLEX
        return Tier.HABITUAL if weight >= self.habitual else Tier.DORMANT

    def get_range(self, tier: Tier) -> tuple[float, float]:
        """Least and greatest weight of a tier, both inclusive; the inverse of :meth:`tier_of`."""
        if tier is Tier.INHIBITORY:
            return -1.0, self.inhibitory
        if tier is Tier.REFLEX:
            return self.reflex, 1.0
        if tier is Tier.HABITUAL:
            return self.habitual, math.nextafter(self.reflex, -1.0)
        return math.nextafter(self.inhibitory, 1.0), math.nextafter(self.habitual, -1.0)


class SeedSettings(ValidatedSettings):
    """First-stage search, and where a walk starts. Scores and score weights are in [0, 1]."""

    hits_per_engine: Neighbours = 20
    """Search hits per engine that enter the ranking."""
    max_entries: Neighbours = 8
    """Best hits from which the walk starts."""
    similarity_weight: Share = 0.6
    """Weight of the similarity in the entry score."""
    lexical_weight: Share = 0.4
    """Weight in the entry score of the lexical score relative to the best hit."""
    name_weight: Share = 0.3
    """Weight in the entry score of a node's name that the query contains, times the rarity of the
    name."""
    episode_score: Share = 0.9
    """Entry score of a node that a successful turn of the same query used."""
    hint_score: Share = 0.25
    """Entry score of nodes in ``seed_ids`` of the query."""
    max_postings: Count = 300
    """Most matches that a lexical query reads; common words are dropped first."""
    max_query_terms: Count = 48
    """Most distinct words of a query that are looked up."""


class WalkSettings(ValidatedSettings):
    """Budgets of one walk, and the damping of edges that it uses more than once."""

    max_nodes: Count = 24
    """Nodes visited in one turn, seeds included."""
    max_new_nodes: CountOrZero = 6
    """New nodes that one node may add in one hop."""
    max_hops: Annotated[int, Field(ge=0, le=1000)] = 3
    """Hops from a seed."""
    min_energy: Share = 0.2
    """The walk does not continue from nodes entered with less energy: that of a seed is its entry
    score, and every edge multiplies it by its weight."""
    max_empty_hops: Count = 2
    """Hops without a new node after which the walk ends."""
    max_visits_per_node: Count = 1
    """Times that a node may be entered."""
    damping: Share = 0.3
    """λ: an edge that is used k times in one walk counts ``weight · λ^k``."""


class PolicySettings(ValidatedSettings):
    """The softmax policy over edges and STOP."""

    temperature: Annotated[float, Field(gt=0, le=1_000_000)] = 0.2
    """τ of the softmax, in units of relevance plus weight."""
    stop_score: Annotated[float, Field(ge=-10, le=10)] = 0.6
    """Relevance plus weight of STOP: an edge is followed when it has more."""


class LinkSettings(ValidatedSettings):
    """The edges that linkers may add when documents are indexed."""

    priors: Annotated[
        Mapping[EdgeKind, Signed], AfterValidator(complete_mapping("kind of edge", _PRIORS))
    ] = Field(default_factory=lambda: _PRIORS)
    """First weight by kind of edge, in [-1, 1]; 0 for kinds that only outcomes make. Kinds that are
    not given keep their default."""
    fading_kinds: frozenset[EdgeKind] = frozenset()
    """Kinds of edges whose weight decays to 0; all others decay to their prior."""
    max_mentions: CountOrZero = 256
    """Nodes with an edge to a node that they name; of more, those with the first ids."""
    max_back_links: CountOrZero = 32
    """Edges back from a named node, to the first ids, so that hubs stay cheap to read."""
    max_owners: Count = 5
    """Nodes that may share a name; a name of more nodes links to none of them."""
    max_name_words: Count = 8
    """Words of the longest name that is looked up."""
    max_chunks_per_term: Count = 6
    """Chunks that may share a term before the term counts as common."""
    metadata_keys: Texts = ()
    """Metadata keys: documents with an equal value are linked."""
    similar_neighbours: CountOrZero = 0
    """Nearest neighbours that each node is linked with; 0 links none."""
    min_similarity: Signed = 0.5
    """Least similarity of neighbours that are linked."""

    def floor(self, kind: EdgeKind) -> float:
        """The weight to which an edge of this kind decays."""
        return 0.0 if kind in self.fading_kinds else self.priors[kind]


class IngestSettings(ValidatedSettings):
    """Splitting and batching of documents that are added."""

    chunk_size: Count = 1200
    """Characters of a chunk, at most."""
    chunk_overlap: Annotated[int, Field(ge=0, le=10_000_000)] = 100
    """Characters that neighbouring chunks share."""
    batch_size: Count = 256
    """Chunks that are embedded, stored and linked as one unit."""
    unusable_vectors: Literal["skip", "raise"] | None = None
    """What becomes of a chunk whose vector is all zero or not finite: ``"skip"`` leaves it out with
    a warning, ``"raise"`` refuses it. None skips it where a report says so, as that of
    ``add_documents``; constructors such as ``from_documents``, which return none, add all others
    and raise."""

    @model_validator(mode="after")
    def _require_smaller_overlap(self) -> Self:
        return self.require_order("chunk_overlap", "chunk_size")


class PrefixSettings(ValidatedSettings):
    """Prefixes of embedded texts, where the model needs them.

    None uses the prefixes that the memory remembers. A new memory takes those documented by the
    makers of a known model, unless its class adds them itself. Changing one counts as changing the
    embedder.
    """

    query: str | None = None
    """Written before questions, such as ``"query: "``; empty for nothing."""
    document: str | None = None
    """Written before chunks and notes, such as ``"passage: "``; empty for nothing."""


class SyncSettings(ValidatedSettings):
    """Following sources as they change."""

    new_version_similarity: Signed = 0.92
    """Signed above which a new text is a new version of one that is gone."""
    max_file_bytes: Annotated[int, Field(ge=1, le=2**40)] = 32 * 2**20
    """Bytes of the largest file that is read."""


class DateSettings(ValidatedSettings):
    """Metadata that says when a document was valid."""

    begin: Texts = ("date", "updated", "valid_from")
    """Keys of the moment from which a document is valid; the first that has a value counts."""
    end: Texts = ("valid_to",)
    """Keys of the moment until which it is."""


class RankSettings(ValidatedSettings):
    """The final ranking."""

    min_probability: Share = 0.35
    """Least probability of relevance of a document that is returned without fill."""
    max_inhibition: Annotated[float, Field(ge=0, le=100)] = 1.5
    """Greatest loss in log-odds that inhibitory edges cause."""
    explored_share: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of the k places, the last ones and never the first, that recorded turns give to
    documents that were seldom shown: feedback then tells of what use they are."""
    characters_per_token: Annotated[float, Field(gt=0, le=1000)] = 4.0
    """Estimated characters of a token, for budgets in tokens."""
    reranked_per_document: Count = 4
    """Candidates that a ``reranker`` reads for each document that is returned."""
    max_reranked: Count = 50
    """Most candidates that a ``reranker`` reads; it reads at least k."""
    reranker_timeout: Annotated[float, Field(gt=0, le=86_400)] = 10.0
    """Seconds that a ``reranker`` may take for one question; then our own order stays."""


class Settings(ValidatedSettings):
    """All settings; pass a changed copy to ``CrabPath.open``.

    ::

        settings = Settings(walk=WalkSettings(max_hops=2), time_limit=5.0)
    """

    tiers: TierSettings = Field(default_factory=TierSettings)
    seeds: SeedSettings = Field(default_factory=SeedSettings)
    walk: WalkSettings = Field(default_factory=WalkSettings)
    policy: PolicySettings = Field(default_factory=PolicySettings)
    links: LinkSettings = Field(default_factory=LinkSettings)
    ingest: IngestSettings = Field(default_factory=IngestSettings)
    prefix: PrefixSettings = Field(default_factory=PrefixSettings)
    sync: SyncSettings = Field(default_factory=SyncSettings)
    dates: DateSettings = Field(default_factory=DateSettings)
    rank: RankSettings = Field(default_factory=RankSettings)
    learning: LearningSettings = Field(default_factory=LearningSettings)
    episode: EpisodeSettings = Field(default_factory=EpisodeSettings)
    note: NoteSettings = Field(default_factory=NoteSettings)
    region: RegionSettings = Field(default_factory=RegionSettings)
    health: HealthSettings = Field(default_factory=HealthSettings)
    maintenance: MaintenanceSettings = Field(default_factory=MaintenanceSettings)
    autotune: AutotuneSettings = Field(default_factory=AutotuneSettings)
    language: Annotated[str | None, AfterValidator(require_language)] = None
    """Code of the language of all documents and questions, such as ``"de"``; the memory keeps it.
    None detects the language of each text."""

    time_limit: Annotated[float, Field(gt=0, le=86_400)] = DEFAULT_TIME_LIMIT
    """Seconds that one query or feedback may wait for databases and servers in total; then it fails
    with ``StoreUnavailableError``. Closing waits no longer either. What may take long, such as
    adding documents, has no limit."""

    max_replica_lag: Annotated[float, Field(ge=2, le=86_400)] = 5.0
    """Seconds that a read replica may be behind; then queries go to the primary until it is not."""

    max_connections: Annotated[int, Field(ge=4, le=10_000)] = 24
    """Connections that a process opens to a PostgreSQL server at most, half of them for reading;
    to a read replica half as many. Calls wait for one up to ``time_limit``."""

    @model_validator(mode="after")
    def _require_knobs_within_rails(self) -> Self:
        if self.autotune.enabled:
            self.autotune.validate_knobs(self.knobs.to_dict())
        return self

    @property
    def knobs(self) -> Knobs:
        """The knobs of every namespace before the autotuner changes one."""
        learning = self.learning
        return Knobs(
            half_life=learning.half_life,
            promotion_threshold=learning.promotion_threshold,
            hebbian_rate=learning.hebbian_rate,
            reflex=self.tiers.reflex,
        )

    @classmethod
    def preset(cls, name: Literal["crabpath", "openclawbrain"]) -> "Settings":
        """Settings with the tier thresholds of CrabPath or of OpenClawBrain ([CrabPath])."""
        if name == "crabpath":
            return cls()
        if name == "openclawbrain":
            return cls(tiers=TierSettings(reflex=0.6, habitual=0.2))
        msg = f"unknown preset {format_value(name)}: use 'crabpath' or 'openclawbrain'"
        raise InvalidInputError(msg)


_log = logging.getLogger(__name__)
_REFLEX = "reflex"
# The rails of the settings may have been narrowed since the knobs were stored.
_WIDEST = AutotuneSettings(rails=WIDEST_RAILS)


def dump_knobs(knobs: Knobs, settings: Settings) -> str | None:
    """Write the knobs that differ from the settings as JSON; None when all are equal."""
    changed = dict(knobs.to_dict().items() - settings.knobs.to_dict().items())
    return json.dumps(changed, sort_keys=True) if changed else None


def load_knobs(text: str | None, settings: Settings) -> Knobs:
    """Load the knobs of a namespace: the stored values, and the settings for all others.

    Args:
        text: JSON of the knobs that differ from the settings; None without any.

    Raises:
        StoreError: The JSON is damaged.
    """
    try:
        return settings.knobs.replace(**_parse_knobs(text))
    except ValueError as error:
        msg = f"stored knobs are damaged ({error!s:.200}): reset them by crabpath tune reset"
        raise StoreError(msg) from error


def apply_knobs(settings: Settings, text: str | None) -> Settings:
    """Return the settings of a namespace with its knobs as stored (JSON).

    None, or knobs that cannot be read, leave the settings as they are.
    """
    knobs = _parse_or_ignore(text)
    if not knobs:
        return settings
    learning = {name: value for name, value in knobs.items() if name != _REFLEX}
    return settings.replace(
        learning=settings.learning.replace(**learning),
        tiers=apply_knobs_to_tiers(settings.tiers, text),
    )


def apply_knobs_to_tiers(tiers: TierSettings, text: str | None) -> TierSettings:
    """Return the tier thresholds of a namespace, with its knobs as stored (JSON)."""
    knobs = _parse_or_ignore(text)
    if _REFLEX not in knobs:
        return tiers
    # Rails may let a knob fall below the next threshold; no query fails because of that.
    return tiers.replace(reflex=max(knobs[_REFLEX], tiers.habitual))


@lru_cache(maxsize=1024)
def _parse_or_ignore(text: str | None) -> Mapping[str, Any]:
    """Parse stored knobs; None has none.

    Damaged ones are logged and ignored, so that queries still work.
    """
    try:
        return _parse_knobs(text)
    except ValueError as error:
        _log.warning("stored knobs are damaged and ignored: %s", error)
        return {}


def _parse_knobs(text: str | None) -> dict[str, Any]:
    parsed = {} if text is None else json.loads(text)
    if not isinstance(parsed, dict):
        msg = f"they must be a JSON object, not {text!r:.100}"
        raise InvalidInputError(msg)
    return _WIDEST.validate_knobs(parsed)
