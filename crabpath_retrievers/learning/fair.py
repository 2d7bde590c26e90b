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

_WORST, _RANGE = 0.7, 0.25  # of the factor, from a region where all fails to one where all succeeds
_BLIND = 0.85
_SURE = 0.99  # highest probability of relevance that the ranker is believed
_FOLLOWED = 100.0  # by how much following a document raises the odds that it is relevant
_WRONG = 0.2  # share of failures told that may be none
_STEADY = 2.0  # successes after which a failure takes half of what it would take before any


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
    return _WORST + _RANGE * quality


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
    unfair = math.log(factor(quality)) / math.log(_WORST)
    return unfair * _STEADY / (_STEADY + standing.wins)


def faults(turn: Turn, credit: Credit) -> dict[str, float]:
    """P(it misled | the chain failed) of each document that a failure followed, by node id.

    Bayes' rule for a chain that succeeds when all that it followed is relevant, with the ranker's
    probabilities p: ``(1 - p) / (1 - Π p)``. What was likely right is hardly to blame beside what
    was not; a document that was followed alone is to blame for sure.

    Args:
        turn: What was returned.
        credit: What became of it.
    """
    believed = {
        item.node: min(_SURE, item.probability)
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) < 0
    }
    all_right = math.prod(believed.values())
    return {node: (1.0 - right) / (1.0 - all_right) for node, right in believed.items()}


def likely_right(turn: Turn, credit: Credit) -> dict[str, float]:
    """P(it is relevant | the chain is said to have failed) of what it followed, by node id.

    By Bayes' rule as in :func:`faults`, but a fifth of what is told is wrong, and that a chain
    followed a document speaks for it. The more likely all of them were right, the likelier it is
    that something else went wrong: a failure says little against two documents that are sure.

    Args:
        turn: What was returned.
        credit: What became of it.
    """
    right = {
        item.node: _FOLLOWED * p / (1.0 + (_FOLLOWED - 1.0) * p)
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) < 0
        for p in (min(_SURE, item.probability),)
    }
    together = math.prod(right.values())
    misreported = together * _WRONG / (together * _WRONG + (1.0 - together) * (1.0 - _WRONG))
    return {
        node: misreported + (1.0 - misreported) * (one - together) / (1.0 - together)
        for node, one in right.items()
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
    right = likely_right(turn, credit)
    if not right:
        return {}
    if len(right) == 1:
        followed = {node: fair.documents[node] for node in right}
    else:
        needless = {node for node in right if before and before.get(node, 0.0) <= 0}
        followed = {
            node: 0.0 if node in needless else chance * -credit.documents[node]
            for node, chance in right.items()
        }
    room = sum(max(0.0, value) for value in followed.values()) / len(followed)
    return followed | {node: -room for node, value in credit.documents.items() if not value}


def shared_out(
    credit: Credit, standings: Mapping[str, Standing], quality: float, turn: Turn
) -> Credit:
    """The credit of a failed turn, each blame as far as its document answers for the failure."""
    if credit.outcome >= 0:
        return credit
    fault = faults(turn, credit)
    fair = {
        node: value
        * fault[node]
        * responsibility(standings.get(node, Standing()), quality, turn.task_type)
        if node in fault
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
        each = -math.log(_BLIND) * fair.weight * -fair.outcome
        return {item.node: each for item in turn.returned}
    full = -math.log(_WORST) * fair.weight
    return {node: full * -value for node, value in fair.documents.items() if value < 0}
