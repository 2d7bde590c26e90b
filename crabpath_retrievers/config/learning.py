"""Settings of what is learned and remembered, as frozen data; pass a changed copy."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from crabpath_retrievers.config.kinds import require_kinds
from crabpath_retrievers.errors import InvalidInputError
from crabpath_retrievers.text import shown

_SOURCES: Mapping[str, float] = MappingProxyType(
    {"human": 1.0, "self": 0.6, "harvested": 0.3, "teacher": 0.1}
)
APPLY = ("inline", "background", "external")
_CHOICES = {
    "apply": APPLY,
    "reward_decay": ("context", "blind", "none"),
    "experience": ("wins", "all"),
}


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
class RegionSettings:
    """Regions, and what is learned of the steps taken in them (document 004 A).

    Attributes:
        most: Hubs of the finest level in which steps are counted; finer ones are not.
        strength: Trials that the estimate of a coarser region counts for in a finer one.
        discount: γ of value iteration, in (0, 1).
    """

    most: int = 512
    strength: float = 8.0
    discount: float = 0.9

    def __post_init__(self) -> None:
        """Refuse what no estimate can be made with.

        Raises:
            InvalidInputError: ``strength`` is not finite or not above 0, or ``discount`` is not
                between 0 and 1.
        """
        require_kinds(self)
        if not 0.0 < self.strength < math.inf:
            msg = f"strength must be a number above 0, not {shown(self.strength)}"
            raise InvalidInputError(msg)
        if not 0.0 < self.discount < 1.0:
            msg = f"discount must be between 0 and 1, not {shown(self.discount)}"
            raise InvalidInputError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class LearningSettings:
    """Learning from outcomes; every mechanism can be switched off.

    Attributes:
        policy_gradient, hebbian, ranker, usage, episodes, decay, regions: Whether the mechanism
            learns.
        typed: Whether outcomes make typed edges (document 004 B).
        influence: Whether maintenance looks for sources whose use announces that of others.
        region_baseline: Whether the policy gradient compares with the region instead of the whole.
        reward_decay: What a failure takes from the reward of documents: ``context`` asks whether a
            document was followed, for which task, where, and how often it helped; ``blind`` takes
            15 % from all that were returned, for comparison (document 004 E); or ``none``.
        experience: Which turns speak for what they used: ``wins`` alone, or ``all`` for comparison.
        rule: Credit over the full trajectory; ``myopic`` (last decision only) and ``heuristic``
            (the chosen edge only) are for comparison (document 003 §3).
        rate: η, step of the policy gradient.
        discount: γ in (0, 1], per hop from the document that is credited.
        half_life: Turns after which a learned weight has come half-way back to its floor.
        hebbian_rate: h, an edge between two nodes used together moves by ``h · (1 - w)``.
        typed_rate: Share of the way to its bound that one turn moves a typed edge.
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
        giver_share: How much all that one user says of a question against, or beside, what other
            users said of it may weigh, relative to these, in [0, 1]; None for no bound. Feedback
            without a user, and namespaces that one user teaches, know no bound.
    """

    policy_gradient: bool = True
    hebbian: bool = True
    ranker: bool = True
    usage: bool = True
    episodes: bool = True
    decay: bool = True
    regions: bool = True
    typed: bool = True
    influence: bool = False
    region_baseline: bool = True
    reward_decay: Literal["context", "blind", "none"] = "context"
    experience: Literal["wins", "all"] = "wins"
    rule: Literal["full", "myopic", "heuristic"] = "full"
    rate: float = 0.2
    discount: float = 0.9
    half_life: float = 2000.0
    hebbian_rate: float = 0.1
    typed_rate: float = 0.3
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
    giver_share: float | None = 0.6

    def __post_init__(self) -> None:
        """Refuse ways to learn that do not exist.

        Raises:
            InvalidInputError: ``apply``, ``reward_decay`` or ``experience`` is none of its values,
                or ``giver_share`` not in [0, 1].
        """
        share = self.giver_share
        number = isinstance(share, (int, float)) and 0.0 <= share <= 1.0
        if share is not None and not number:
            msg = f"giver_share must be a number from 0 to 1, or None, not {shown(share)}"
            raise InvalidInputError(msg)
        for name, allowed in _CHOICES.items():
            value = getattr(self, name)
            if not isinstance(value, str) or value not in allowed:
                msg = f"{name} must be one of {', '.join(allowed)}, not {shown(value)}"
                raise InvalidInputError(msg)
