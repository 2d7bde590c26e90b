"""Context-aware decay: what a failure takes from the reward of the documents that it followed.

Document 004 E. The reward of a document is what exp(-decay) leaves of it; decay adds up, in nats,
so that it can be taken back.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

# The factor is 0.7 in a region where everything fails, 0.95 in one where everything succeeds.
_MIN_FACTOR, _FACTOR_RANGE = 0.7, 0.25
_BLIND_FACTOR = 0.85
_MAX_RELEVANCE = 0.99  # upper bound on the ranker's probability of relevance
_FOLLOWED_ODDS = 100.0  # factor on the odds of relevance of a document that the chain followed
_FALSE_REPORT_RATE = 0.2  # P(a reported failure was none)
_HALF_BLAME_WINS = 2.0  # number of successes that halves the blame of a failure


@dataclass(frozen=True, slots=True)
class Standing:
    """What is known of a document that a failed turn returned.

    Attributes:
        wins: How often it was used in a success.
        tasks: Types of the tasks that it is for; empty where it does not say.
    """

    wins: float = 0.0
    tasks: frozenset[str] = frozenset()


def factor(quality: float) -> float:
    """What is left of a reward after one failure, in [0.7, 0.95] (document 004 E).

    Args:
        quality: P(success) in the region of the query, in [0, 1].
    """
    return _MIN_FACTOR + _FACTOR_RANGE * quality


def responsibility(standing: Standing, quality: float, task: str | None) -> float:
    """How far a followed document answers for a failure, in [0, 1]; 1 in the worst region.

    0 where it is for other tasks. The better the region, the likelier something else was at
    fault; the more successes, the less one failure says (a Beta posterior moves by 1/(n + s)).

    Args:
        standing: Of the document.
        quality: P(success) in the region of the query.
        task: Type of the task of the turn.
    """
    if task and standing.tasks and task not in standing.tasks:
        return 0.0
    region_share = math.log(factor(quality)) / math.log(_MIN_FACTOR)
    return region_share * _HALF_BLAME_WINS / (_HALF_BLAME_WINS + standing.wins)


def faults(turn: Turn, credit: Credit) -> dict[str, float]:
    """P(it misled | the chain failed) of each document that a failure followed, by node id.

    Bayes' rule for a chain that succeeds when all that it followed is relevant, with the ranker's
    probabilities p: ``(1 - p) / (1 - Π p)``. What was likely right is hardly to blame beside what
    was not; a document that was followed alone is to blame for sure.

    Args:
        turn: What was returned.
        credit: What became of it.
    """
    relevance = {
        item.node: min(_MAX_RELEVANCE, item.probability)
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) < 0
    }
    all_relevant = math.prod(relevance.values())
    return {node: (1.0 - p) / (1.0 - all_relevant) for node, p in relevance.items()}


def likely_right(turn: Turn, credit: Credit) -> dict[str, float]:
    """P(it is relevant | the chain is said to have failed) of what it followed, by node id.

    By Bayes' rule as in :func:`faults`, but a fifth of what is told is wrong, and that a chain
    followed a document speaks for it. The more likely all of them were right, the likelier it is
    that something else went wrong: a failure says little against two documents that are sure.

    Args:
        turn: What was returned.
        credit: What became of it.
    """
    relevance = {
        item.node: _FOLLOWED_ODDS * p / (1.0 + (_FOLLOWED_ODDS - 1.0) * p)
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) < 0
        for p in (min(_MAX_RELEVANCE, item.probability),)
    }
    all_relevant = math.prod(relevance.values())
    misreported = (
        all_relevant
        * _FALSE_REPORT_RATE
        / (all_relevant * _FALSE_REPORT_RATE + (1.0 - all_relevant) * (1.0 - _FALSE_REPORT_RATE))
    )
    return {
        node: misreported + (1.0 - misreported) * (value - all_relevant) / (1.0 - all_relevant)
        for node, value in relevance.items()
    }


def hindsight(
    turn: Turn, credit: Credit, fair: Credit, before: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """What a failure says of its documents, for its own question, in [-1, 1] by node id.

    It speaks for several that it followed as far as they were right: most failures lack another
    one. What was followed alone answers for it. Of what successes of the question did without, it
    says nothing. What was not followed makes room for others as far as what was followed was
    right: beside a document that misled, it is the next to try. Where nothing was followed, nothing
    finer is known than the outcome says.

    Args:
        turn: What was returned.
        credit: What became of it.
        fair: The same, each blame as far as its document answers for the failure.
        before: What the question says of documents, by node id, where it succeeded before.
    """
    relevance = likely_right(turn, credit)
    if not relevance:
        return {}
    if len(relevance) == 1:
        followed = {node: fair.documents[node] for node in relevance}
    else:
        unneeded = {node for node in relevance if before and before.get(node, 0.0) <= 0}
        followed = {
            node: 0.0 if node in unneeded else chance * -credit.documents[node]
            for node, chance in relevance.items()
        }
    support = sum(max(0.0, value) for value in followed.values()) / len(followed)
    return followed | {node: -support for node, value in credit.documents.items() if not value}


def shared_out(
    credit: Credit, standings: Mapping[str, Standing], quality: float, turn: Turn
) -> Credit:
    """The credit of a failed turn, each blame as far as its document answers for the failure."""
    if credit.outcome >= 0:
        return credit
    fault_by_node = faults(turn, credit)
    fair = {
        node: value
        * fault_by_node[node]
        * responsibility(standings.get(node, Standing()), quality, turn.task_type)
        if node in fault_by_node
        else value
        for node, value in credit.documents.items()
    }
    return replace(credit, documents=fair)


def decays(turn: Turn, fair: Credit, settings: LearningSettings) -> dict[str, float]:
    """What a failure takes from rewards, in nats by node id; nothing after a success.

    ``context``: from documents that were followed, as far as they answer for it. ``blind``: 15 %
    from every document returned, whatever it did (document 004 E7c).

    Args:
        turn: What was returned.
        fair: What became of it, with its blame shared out.
        settings: The rule.
    """
    if fair.outcome >= 0 or settings.reward_decay == "none":
        return {}
    if settings.reward_decay == "blind":
        nats = -math.log(_BLIND_FACTOR) * fair.weight * -fair.outcome
        return {item.node: nats for item in turn.returned}
    full_nats = -math.log(_MIN_FACTOR) * fair.weight
    return {node: full_nats * -value for node, value in fair.documents.items() if value < 0}
