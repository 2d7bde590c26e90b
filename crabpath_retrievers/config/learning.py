"""Settings of learning, episodes, notes and regions."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field

from crabpath_retrievers.config.base import (
    Count,
    Neighbours,
    Positive,
    Share,
    Texts,
    ValidatedSettings,
    complete_mapping,
    to_tuple,
)

_SOURCES: Mapping[str, float] = MappingProxyType(
    {"human": 1.0, "self": 0.6, "harvested": 0.3, "teacher": 0.1}
)
Apply = Literal["inline", "background", "external"]
"""When stored feedback is learned from."""

APPLY = get_args(Apply)


class EpisodeSettings(ValidatedSettings):
    """Episodes: turns whose query and used documents are remembered."""

    neighbours: Neighbours = 20
    """Most similar episodes that a query recalls; each counts by how alike its query is."""
    same_query_similarity: Share = 0.9
    """Least similarity of an episode of the same query; what it did not use is returned later."""
    same_query_term_share: Share = 0.8
    """Least share of the query's terms, by information, in such an episode."""
    max_scanned: Count = 500
    """Latest episodes that are compared where the vector index holds none."""


class NoteSettings(ValidatedSettings):
    """Notes: what a namespace is taught, and when an answer becomes a note."""

    neighbours: Neighbours = 8
    """Nearest notes that a query finds."""
    max_scanned: Count = 500
    """Latest notes that are compared where the vector index holds none."""
    probation_turns: Count = 14
    """Turns since its last use from which a note on probation is not found."""
    duplicate_similarity: Share = 0.92
    """Least similarity of two notes that are one note."""
    min_words: Count = 3
    """Fewest words of a question that makes a note."""
    min_alphanumeric_share: Share = 0.6
    """Least share of letters and digits in such a question, without its spaces."""
    blocked_phrases: Texts = ()
    """Phrases: a question that contains one makes no note."""


class RegionSettings(ValidatedSettings):
    """Regions of the documents, and the Markov decision process over them."""

    max_hubs: Count = 512
    """Hubs of the finest level in which transitions are counted."""
    prior_trials: Positive = 8.0
    """Trials that the estimate of a coarser region counts for in a finer one."""
    discount: Annotated[float, Field(gt=0, lt=1)] = 0.9
    """γ of value iteration, per transition."""


class LearningSettings(ValidatedSettings):
    """Learning from outcomes; every mechanism can be switched off."""

    policy_gradient: bool = True
    """Whether the policy gradient moves edge weights."""
    hebbian: bool = True
    """Whether documents that are used together are connected."""
    ranker: bool = True
    """Whether feedback updates the weights of the ranker."""
    usage: bool = True
    """Whether uses of each document are counted."""
    episodes: bool = True
    """Whether turns are remembered as episodes."""
    decay: bool = True
    """Whether learned weights decay to their floor."""
    regions: bool = True
    """Whether transitions between regions are counted."""
    influence: bool = False
    """Whether maintenance searches for sources whose use predicts that of others."""
    learning_rate: Annotated[float, Field(ge=0, le=100)] = 0.2
    """η, step size of the policy gradient."""
    discount: Annotated[float, Field(gt=0, le=1)] = 0.9
    """γ, per hop from the document that gets the credit."""
    half_life: Positive = 2000.0
    """Turns after which a learned weight is half-way back at its floor."""
    hebbian_rate: Share = 0.1
    """h: the edge between two documents used together moves by ``h · (1 - w)``."""
    passive_rate: Share = 0.0
    """The same for all documents that are returned together, whatever the outcome; 0 for none. The
    CrabPath paper has 0.06. Each question then waits for a transaction."""
    skip_penalty: Share = 0.0
    """What an edge loses, to 0 at most, when a walk could have followed it and did not, whatever
    the outcome; 0 for nothing. The CrabPath v2 specification has 0.02."""
    typed_rate: Share = 0.3
    """Share of the way to its bound that one turn moves a typed edge."""
    promotion_threshold: Count = 2
    """Distinct turns of joint use after which a pair becomes an edge."""
    inhibition_threshold: Count = 2
    """Distinct failed turns after which a pair becomes an inhibitory edge."""
    window_turns: Count = 1
    """Turns that feedback without a turn id concerns at most: the last one of its conversation, and
    those before it that nobody has judged. Agents that retrieve several times for one answer set it
    higher, or give turn ids."""
    window_seconds: Positive = 900.0
    """Seconds before it within which these turns were made."""
    turn_decay: Annotated[float, Field(ge=0, le=1000)] = 0.3
    """λ per turn: a turn gets a share of such feedback in proportion to ``exp(-λ · turns ago)``."""
    sources: Annotated[
        Mapping[str, Share], AfterValidator(complete_mapping("source of feedback", _SOURCES))
    ] = Field(default_factory=lambda: _SOURCES)
    """Weight of feedback by its source, in [0, 1]. Sources that are not given keep their
    default."""
    prior_strength: Positive = 30.0
    """Precision of the ranker's prior for weights of names and edges: the larger, the slower they
    are learned. All other weights are fixed."""
    usage_prior: Annotated[
        tuple[Positive, Positive],
        BeforeValidator(to_tuple),
    ] = (2.0, 3.0)
    """Uses and non-uses that every document starts with (Beta)."""
    apply: Apply = "inline"
    """When stored feedback is learned from: before ``record`` returns (``inline``), by a thread of
    this process (``background``), or by ``crabpath learn`` (``external``)."""
    neurogenesis: bool = False
    """Whether a successful answer to a novel question becomes a note on probation. Off, because an
    answer may be wrong without anybody noticing, and it would be returned beside the documents."""
    gate: bool = True
    """Whether a namespace whose feedback shows that learning lost is answered by the ranking before
    any lesson, until feedback shows otherwise; it goes on learning."""
    trial_share: Share = 0.0
    """Share of recorded turns whose answers are drafted by two rankings in turn, that by what was
    learned and the one before any lesson: what was used of them then proves what learning gained,
    and users see a little of both."""
    max_user_share: Annotated[float | None, Field(ge=0, le=1)] = 0.6
    """Greatest share of what others said about a query that counts against it, of one user who has
    proved right, or of all other feedback together; None for no bound. Namespaces in which one
    user, or nobody, gives feedback have no bound."""
