"""Settings of learning, episodes, notes and regions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from crabpath_retrievers.config.base import Texts, ValidatedSettings, to_tuple
from crabpath_retrievers.core.text import format_value
from crabpath_retrievers.errors import InvalidInputError

_SOURCES: Mapping[str, float] = MappingProxyType(
    {"human": 1.0, "self": 0.6, "harvested": 0.3, "teacher": 0.1}
)
Apply = Literal["inline", "background", "external"]
"""When stored feedback is learned from."""

APPLY = get_args(Apply)


_Positive = Annotated[float, Field(gt=0, le=1_000_000_000)]


class EpisodeSettings(ValidatedSettings):
    """Episodes: turns whose query and used documents are remembered."""

    neighbours: int = Field(
        default=5, ge=1, le=10_000, description="Most similar episodes that a query recalls."
    )
    min_similarity: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Least cosine of an episode whose used documents are preferred.",
    )
    min_term_share: float = Field(
        default=0.5,
        ge=0,
        le=1,
        description="Least share of the query's terms, by information, in such an episode.",
    )
    same_query_similarity: float = Field(
        default=0.9,
        ge=0,
        le=1,
        description="Least cosine of an episode of the same query, whose unused documents are "
        "returned later.",
    )
    same_query_term_share: float = Field(
        default=0.8,
        ge=0,
        le=1,
        description="Least share of the query's terms, by information, in such an episode.",
    )
    duplicate_similarity: float = Field(
        default=0.92, ge=0, le=1, description="Least cosine of two turns that are one episode."
    )
    max_scanned: int = Field(
        default=500,
        ge=1,
        le=1_000_000_000,
        description="Latest episodes that are compared where the vector index holds none.",
    )


class NoteSettings(ValidatedSettings):
    """Notes: what a namespace is taught, and when an answer becomes a note."""

    neighbours: int = Field(
        default=8, ge=1, le=10_000, description="Nearest notes that a query finds."
    )
    max_scanned: int = Field(
        default=500,
        ge=1,
        le=1_000_000_000,
        description="Latest notes that are compared where the vector index holds none.",
    )
    probation_turns: int = Field(
        default=14,
        ge=1,
        le=1_000_000_000,
        description="Turns since its last use from which a note on probation is not found.",
    )
    duplicate_similarity: float = Field(
        default=0.92, ge=0, le=1, description="Least cosine of two notes that are one note."
    )
    min_words: int = Field(
        default=3, ge=1, le=1_000_000, description="Fewest words of a question that makes a note."
    )
    min_alphanumeric_share: float = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Least share of letters and digits in such a question, without its spaces.",
    )
    blocked_phrases: Texts = Field(
        default=(), description="Phrases: a question that contains one makes no note."
    )


class RegionSettings(ValidatedSettings):
    """Regions of the documents, and the Markov decision process over them."""

    max_hubs: int = Field(
        default=512,
        ge=1,
        le=1_000_000,
        description="Hubs of the finest level in which transitions are counted.",
    )
    prior_trials: float = Field(
        default=8.0,
        gt=0,
        le=1_000_000_000,
        description="Trials that the estimate of a coarser region counts for in a finer one.",
    )
    discount: float = Field(
        default=0.9, gt=0, lt=1, description="γ of value iteration, per transition."
    )


def _complete_sources(given: Mapping[str, float]) -> Mapping[str, float]:
    for name in given:
        if name not in _SOURCES:
            msg = f"there is no source of feedback {format_value(name)}: use {', '.join(_SOURCES)}"
            raise InvalidInputError(msg)
    return MappingProxyType({**_SOURCES, **given})


class LearningSettings(ValidatedSettings):
    """Learning from outcomes; every mechanism can be switched off."""

    policy_gradient: bool = Field(
        default=True, description="Whether the policy gradient moves edge weights."
    )
    hebbian: bool = Field(
        default=True, description="Whether documents that are used together are connected."
    )
    ranker: bool = Field(
        default=True, description="Whether feedback updates the weights of the ranker."
    )
    usage: bool = Field(default=True, description="Whether uses of each document are counted.")
    episodes: bool = Field(default=True, description="Whether turns are remembered as episodes.")
    decay: bool = Field(default=True, description="Whether learned weights decay to their floor.")
    regions: bool = Field(
        default=True, description="Whether transitions between regions are counted."
    )
    influence: bool = Field(
        default=False,
        description="Whether maintenance searches for sources whose use predicts that of others.",
    )
    region_baseline: bool = Field(
        default=True,
        description="Whether the baseline of the policy gradient is that of the region instead of "
        "the namespace.",
    )
    reward_decay: Literal["context", "blind", "none"] = Field(
        default="context",
        description="How a failure lowers the reward of documents: ``context`` asks whether a "
        "document was used, for which task, where, and how often it helped; ``blind`` takes 15 % "
        "from all that were returned, for comparison; or ``none``.",
    )
    experience: Literal["wins", "all"] = Field(
        default="wins",
        description="Episodes that count for the documents that they used: ``wins`` only, or "
        "``all`` for comparison.",
    )
    credit_rule: Literal["full", "myopic", "heuristic"] = Field(
        default="full",
        description="Decisions that get credit: the ``full`` trajectory (REINFORCE, Williams "
        "1992); for comparison the last decision only (``myopic``) or the chosen edge only "
        "(``heuristic``).",
    )
    learning_rate: float = Field(
        default=0.2, ge=0, le=100, description="η, step size of the policy gradient."
    )
    discount: float = Field(
        default=0.9, gt=0, le=1, description="γ, per hop from the document that gets the credit."
    )
    half_life: float = Field(
        default=2000.0,
        gt=0,
        le=1_000_000_000,
        description="Turns after which a learned weight is half-way back at its floor.",
    )
    hebbian_rate: float = Field(
        default=0.1,
        ge=0,
        le=1,
        description="h: the edge between two documents used together moves by ``h · (1 - w)``.",
    )
    typed_rate: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="Share of the way to its bound that one turn moves a typed edge.",
    )
    promotion_threshold: int = Field(
        default=2,
        ge=1,
        le=1_000_000,
        description="Distinct turns of joint use after which a pair becomes an edge.",
    )
    inhibition_threshold: int = Field(
        default=2,
        ge=1,
        le=1_000_000,
        description="Distinct failed turns after which a pair becomes an inhibitory edge.",
    )
    window_turns: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="Turns before it that feedback without a turn id may concern.",
    )
    window_seconds: float = Field(
        default=900.0,
        gt=0,
        le=1_000_000_000,
        description="Seconds before it that feedback without a turn id may concern.",
    )
    turn_decay: float = Field(
        default=0.3,
        ge=0,
        le=1000,
        description="λ per turn: a turn gets a share of such feedback in proportion to "
        "``exp(-λ · turns ago)``.",
    )
    sources: Annotated[
        Mapping[str, Annotated[float, Field(ge=0, le=1)]], AfterValidator(_complete_sources)
    ] = Field(
        default_factory=lambda: _SOURCES,
        description="Weight of feedback by its source, in [0, 1]. Sources that are not given keep "
        "their default.",
    )
    prior_strength: float = Field(
        default=30.0,
        gt=0,
        le=1_000_000_000,
        description="Precision of the ranker's prior for weights of names and edges: the larger, "
        "the slower they are learned. All other weights are fixed.",
    )
    usage_prior: Annotated[
        tuple[_Positive, _Positive],
        BeforeValidator(to_tuple),
    ] = Field(
        default=(2.0, 3.0), description="Uses and non-uses that every document starts with (Beta)."
    )
    apply: Apply = Field(
        default="inline",
        description="When stored feedback is learned from: before ``record`` returns "
        "(``inline``), by a thread of this process (``background``), or by ``crabpath learn`` "
        "(``external``).",
    )
    neurogenesis: bool = Field(
        default=False,
        description="Whether a successful answer to a novel question becomes a note on probation. "
        "Off, because an answer may be wrong without anybody noticing, and it would be returned "
        "beside the documents.",
    )
    max_user_share: float | None = Field(
        default=0.6,
        ge=0,
        le=1,
        description="Greatest share of all feedback of one user in what is learned about a query "
        "that other users judged too; None for no bound. Feedback without a user, and "
        "namespaces with one user, have no bound.",
    )
