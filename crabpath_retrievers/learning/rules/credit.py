"""Credit of documents for the question of their turn: of an episode, after a failure, by its giver.

Failure credit says which of the documents that a chain followed answer for its failure. It is the
context-aware decay of [CVX RFC-013] (docs/bibliography.md): the reward of a document is
``exp(-decay)``; decays add up in nats, so that each can be undone.

Where several givers teach a namespace, nobody alone reverses what another one has taught: credit
that contradicts others, or competes with it, adds up to at most a share of theirs, however often it
is given. With a share above one half two givers outweigh one, where both have proved right: they
have agreed with others on other questions. All who have not, and nobody, count as one giver
together, since names cost nothing (the Sybil attack: Douceur 2002).
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.records import Turn

_EXPECTED_SHARE = 0.5  # least expected share of relevant documents among those returned
_MIN_PROBABILITY = 1e-9
_MAX_LOG_ODDS = 22.0  # above those of 1 - _MIN_PROBABILITY
_BISECTIONS = 50  # of at most 43, to 4e-14


def calibrate_relevance(turn: Turn) -> dict[str, float]:
    """Calibrate the ranker's probabilities of relevance for one turn, in (0, 1) by node id.

    The ranker is calibrated on questions whose words occur in their documents; elsewhere all its
    probabilities are near 0, but in the right order. Their log odds are shifted by one constant
    until half of the documents are expected to be relevant, unless more are (prior correction: King
    & Zeng 2001, §4.1).
    """
    if not turn.returned:
        return {}
    probabilities = [
        min(1.0 - _MIN_PROBABILITY, max(_MIN_PROBABILITY, item.probability))
        for item in turn.returned
    ]
    expected = _EXPECTED_SHARE * len(probabilities)
    if sum(probabilities) < expected:
        log_odds = [math.log(p / (1.0 - p)) for p in probabilities]
        probabilities = _shift_log_odds(log_odds, expected)
    return dict(zip((item.node for item in turn.returned), probabilities, strict=True))


def _shift_log_odds(log_odds: Sequence[float], expected: float) -> list[float]:
    """Shift log odds by one constant, ≥ 0, until their probabilities sum to ``expected``."""
    low, high = 0.0, _MAX_LOG_ODDS - min(log_odds)
    for _ in range(_BISECTIONS):
        shift = (low + high) / 2
        probabilities = [1.0 / (1.0 + math.exp(-value - shift)) for value in log_odds]
        low, high = (shift, high) if sum(probabilities) < expected else (low, shift)
    return probabilities


_FAILURE_WEIGHT = 0.5  # a failure without stated use may be none, or have another cause


def assign_episode_credit(
    turn: Turn,
    credit: Credit,
    followed: Mapping[str, float] = MappingProxyType({}),
    *,
    before: Mapping[str, float] = MappingProxyType({}),
) -> dict[str, float]:
    """Return the credit in [-1, 1], by node id, that an episode stores for its question.

    Used documents of a success get positive credit. Blamed ones, and returned ones that were not
    used, get negative credit, for this question only, and not if that was only inferred. If only
    the outcome is known, a success credits each returned document by its calibrated relevance, and
    a failure blames each by the complement: the expectation step of a mixture over which documents
    were relevant (Dempster, Laird & Rubin 1977, §3). Empty if the credit tells nothing.

    Args:
        followed: Credit, by node id, that replaces the credit of documents that the chain followed.
        before: Credit that the question stored before, by node id.
    """
    if not credit.is_informative:
        return {}
    if credit.documents:
        credit_by_node = {
            node: value or (0.0 if node in credit.inferred else -1.0)
            for node, value in credit.documents.items()
        }
        credit_by_node |= followed
    elif credit.outcome > 0:
        credit_by_node = _credit_success(turn, credit, before)
    else:
        credit_by_node = _credit_failure(turn, credit, before)
    return {
        node: value * credit.weight
        for node, value in credit_by_node.items()
        if value * credit.weight
    }


def _credit_success(turn: Turn, credit: Credit, before: Mapping[str, float]) -> dict[str, float]:
    """Return the credit of documents after a success of which only the outcome is known.

    It is assumed that all needed documents were returned. Each returned one gets its calibrated
    relevance, and the blame that it had in ``before`` back; others lose the positive credit that
    they had in ``before``. Everything is multiplied by the outcome.
    """
    returned = {
        node: credit.outcome * (p - min(0.0, before.get(node, 0.0)))
        for node, p in calibrate_relevance(turn).items()
    }
    return returned | {
        node: -credit.outcome * value
        for node, value in before.items()
        if value > 0 and node not in returned
    }


def _credit_failure(turn: Turn, credit: Credit, before: Mapping[str, float]) -> dict[str, float]:
    """Return the credit of documents after a failure of which only the outcome is known.

    It is assumed that a needed document was not returned. Each returned one gets half of the
    outcome, times the complement of its calibrated relevance. Documents with positive credit in
    ``before`` that were not returned share half of the outcome as positive credit.
    """
    blamed = {
        node: _FAILURE_WEIGHT * credit.outcome * (1.0 - p)
        for node, p in calibrate_relevance(turn).items()
    }
    missing = {node: v for node, v in before.items() if v > 0 and node not in blamed}
    total = sum(missing.values())
    return blamed | {
        node: _FAILURE_WEIGHT * -credit.outcome * value / total for node, value in missing.items()
    }


CreditByGiver = Mapping[str | None, Mapping[str, float]]
"""Credit for a question: by giver, None for nobody, then by node id."""

_TOLERANCE = 1e-6  # of sums of credit
_PROOF = 3  # questions on which a giver has agreed with others


def limit_share(
    stated: Mapping[str, float],
    giver: str | None,
    voices: CreditByGiver,
    share: float,
    *,
    proven: bool,
) -> float:
    """Return the share of a giver's credit for a question that counts, at least 0.

    The share is infinite if nothing contradicts others. Protected are documents whose support by
    others is above ``share`` of the greatest support. Credit against protected documents, and
    credit for other documents, may add up to ``share`` of the support of the protected ones. A
    giver who has proved right has that much alone; all other givers have it together.

    Args:
        stated: The giver's credit by node id, if counted in full; below 0 against a document.
        giver: The giver; None for nobody.
        share: Upper bound on contradicting credit, relative to the credit of others.
        proven: Whether the giver has proved right on other questions.
    """
    total = _sum_credit(voices.values(), 1.0)
    least = share * max(total.values(), default=0.0) * (1.0 + _TOLERANCE)
    support = _sum_credit((voices[name] for name in voices if name != giver), 1.0)
    held = {node: support[node] for node in support if total[node] > least}
    if not held:
        return math.inf
    fellows = [voices.get(giver, {})] if proven else [*voices.values()]
    gained, lost = _sum_credit(fellows, 1.0), _sum_credit(fellows, -1.0)
    strongest, allowed = max(held.values()), math.inf
    for node, credit in stated.items():
        if credit > 0 and total.get(node, 0.0) <= least:
            allowed = min(allowed, (share * strongest - gained.get(node, 0.0)) / credit)
        elif credit < 0 and node in held:
            allowed = min(allowed, (share * held[node] - lost.get(node, 0.0)) / -credit)
    return max(0.0, allowed)


def split_voices(
    documents: Mapping[str, float], by_giver: Mapping[str, Mapping[str, float]]
) -> CreditByGiver:
    """Split the credit for a question by giver.

    ``documents`` has the total by node id, ``by_giver`` the credit of named givers. What is left of
    the total is that of nobody, None; the name is absent if nothing is left.
    """
    rest = dict(documents)
    for credit in by_giver.values():
        for node, value in credit.items():
            rest[node] = rest.get(node, 0.0) - value
    nobody = {node: value for node, value in rest.items() if abs(value) > _TOLERANCE}
    voices: dict[str | None, Mapping[str, float]] = dict(by_giver.items())
    return {**voices, None: nobody} if nobody else voices


def has_proved_right(giver: str, voices: Iterable[Mapping[str, Mapping[str, float]]]) -> bool:
    """Whether a giver agrees with other named givers on enough questions, and on most.

    ``voices`` has, for each question, the credit that named givers gave.
    """
    agreed = against = 0
    for by_giver in voices:
        held = _sum_credit((by_giver[name] for name in by_giver if name != giver), 1.0)
        least = max(held.values(), default=0.0) / 2
        best = {node for node, credit in held.items() if credit > least}
        own = by_giver.get(giver, {})
        agrees = any(own.get(node, 0.0) > 0 for node in best)
        agreed += agrees
        against += bool(best and own) and not agrees
    return agreed >= _PROOF and agreed > against


def _sum_credit(voices: Iterable[Mapping[str, float]], sign: float) -> dict[str, float]:
    """Sum the credit of several givers by node id: that of the given ``sign``, as positive numbers.

    ``sign`` is 1 for credit above 0, -1 for credit below.
    """
    total: dict[str, float] = {}
    for credit in voices:
        for node, value in credit.items():
            if sign * value > 0:
                total[node] = total.get(node, 0.0) + sign * value
    return total


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

    It is 0 if the document is meant for other types of task than ``task``; None is for any. The
    more successes the document has, the less one failure counts (a Beta posterior moves by 1/(n +
    s)).
    """
    if task and record.tasks and task not in record.tasks:
        return 0.0
    return _BLAME_SHARE * _HALF_BLAME_WINS / (_HALF_BLAME_WINS + record.wins)


def infer_fault(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return P(document misled | chain failed) of each followed document, by node id.

    The probability follows from Bayes' rule for a chain that succeeds if and only if all documents
    that it followed are relevant, with the ranker's probabilities p: ``(1 - p) / (1 - Π p)``. A
    document that was followed alone has 1. Followed are the documents with negative credit.
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

    Bayes' rule as in :func:`infer_fault`, with two changes: 20 % of reported failures are assumed
    to be false, and being followed raises the odds of relevance by a factor of 100. The more likely
    all of them were relevant, the more likely the failure had another cause.
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
    relevant, since most failures lack a further document. A document that was followed alone gets
    its share of the blame. Documents without which the question succeeded before get 0. Documents
    that were not followed get the mean of the positive credit as negative credit, so that other
    documents take their place. The result is empty if no document was followed. ``fair`` is the
    credit with the blame shared out; ``before`` is the credit that earlier successes of the
    question gave, by node id.
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
    """Return the credit of a failed turn with the blame shared out by responsibility.

    ``records`` are by node id; a document without one counts as never used and fit for all tasks.
    """
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

    ``fair`` is the credit with the blame shared out: each followed document decays by its share.
    """
    full_nats = -math.log(_MIN_FACTOR) * fair.weight
    return {node: full_nats * -value for node, value in fair.documents.items() if value < 0}
