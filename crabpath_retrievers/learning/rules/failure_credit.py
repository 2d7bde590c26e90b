"""Failure credit: which of the documents that a chain followed answer for its failure.

The context-aware decay of [CVX RFC-013] (docs/bibliography.md). The reward of a document is
``exp(-decay)``; decays add up in nats, so that each can be undone.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn

_MIN_FACTOR = 0.7  # one failure lowers the reward of a document by at most 30 %
# Share of a failure that a followed document answers for: every second one has another cause.
_BLAME_SHARE = math.log(0.825) / math.log(_MIN_FACTOR)
_MAX_RELEVANCE = 0.99  # upper bound on the ranker's probability of relevance
_FOLLOWED_ODDS = 100.0  # factor on the odds of relevance of a document that the chain followed
_FALSE_REPORT_RATE = 0.2  # P(a reported failure was none)
_HALF_BLAME_WINS = 2.0  # number of successes that halves the blame of a failure


@dataclass(frozen=True, slots=True)
class DocumentRecord:
    """Facts about a document that a failed turn returned.

    Attributes:
        wins: How often it was used in a success.
        tasks: Types of task that it is meant for; empty if not stated.
    """

    wins: float = 0.0
    tasks: frozenset[str] = frozenset()


def compute_responsibility(record: DocumentRecord, task: str | None) -> float:
    """Return how far a followed document answers for a failure, in [0, 1].

    0 if the document is meant for other types of task. The more successes, the less one failure
    counts (a Beta posterior moves by 1/(n + s)).

    Args:
        record: The document's record.
        task: Type of the task of the turn.
    """
    if task and record.tasks and task not in record.tasks:
        return 0.0
    return _BLAME_SHARE * _HALF_BLAME_WINS / (_HALF_BLAME_WINS + record.wins)


def infer_fault(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return P(document misled | chain failed) of each followed document, by node id.

    Bayes' rule for a chain that succeeds if and only if all documents that it followed are
    relevant, with the ranker's probabilities p: ``(1 - p) / (1 - Π p)``. A document followed alone
    has 1.

    Args:
        turn: The turn with its returned documents.
        credit: Its credit.
    """
    relevance = {
        item.node: min(_MAX_RELEVANCE, item.probability)
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) < 0
    }
    all_relevant = math.prod(relevance.values())
    return {node: (1.0 - p) / (1.0 - all_relevant) for node, p in relevance.items()}


def infer_relevance(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return P(document relevant | a failure was reported) of each followed document, by node id.

    Bayes' rule as in :func:`infer_fault`, with two changes: 20 % of reported failures are taken to
    be none, and being followed raises the odds of relevance by a factor of 100. The more likely all
    of them were relevant, the more likely the failure had another cause.

    Args:
        turn: The turn with its returned documents.
        credit: Its credit.
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


def assign_hindsight_credit(
    turn: Turn, credit: Credit, fair: Credit, before: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float]:
    """Return the credit of a failed turn's documents for its own question, in [-1, 1] by node id.

    If the chain followed several documents, each gets positive credit as far as it was likely
    relevant, since most failures lack a further document. A document followed alone gets its share
    of the blame. Documents without which the question succeeded before get 0. Documents that were
    not followed get negative credit, the mean of the positive one, so that other documents take
    their place. Without a followed document the result is empty.

    Args:
        turn: The turn with its returned documents.
        credit: Its credit.
        fair: The same, with the blame shared out.
        before: Credit that earlier successes of the question gave, by node id.
    """
    relevance = infer_relevance(turn, credit)
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


def share_blame(credit: Credit, records: Mapping[str, DocumentRecord], turn: Turn) -> Credit:
    """Return the credit of a failed turn with the blame shared out by responsibility."""
    fault_by_node = infer_fault(turn, credit)
    fair = {
        node: value
        * fault_by_node[node]
        * compute_responsibility(records.get(node, DocumentRecord()), turn.task_type)
        if node in fault_by_node
        else value
        for node, value in credit.documents.items()
    }
    return replace(credit, documents=fair)


def compute_reward_decay(fair: Credit) -> dict[str, float]:
    """Return the reward decay after a failure, in nats by node id; empty after a success.

    Documents that were followed decay by their share of the blame.

    Args:
        fair: The credit, with the blame shared out.
    """
    full_nats = -math.log(_MIN_FACTOR) * fair.weight
    return {node: full_nats * -value for node, value in fair.documents.items() if value < 0}
