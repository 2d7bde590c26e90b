"""Episode credit: the credit that a turn gives its documents for the same question later.

A bound on how far one user can contradict other users about the same question.

In a namespace that several users teach, nobody alone reverses what another one has taught: credit
that contradicts others, or competes with it, adds up to at most a share of theirs, however often it
is given. With a share above one half two users outweigh one.

Relevance of returned documents in a turn without stated use.
"""

import math
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.turn import Turn

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

    Args:
        turn: The turn with its returned documents and their probabilities.
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

    Positive for documents used in a success. Negative for documents that were blamed, or returned
    and not used: for this question only, and not if that was only inferred. If only the outcome is
    known, a success credits each returned document by its calibrated relevance, and a failure
    blames each by the complement: the expectation step of a mixture over which documents were
    relevant (Dempster, Laird & Rubin 1977, §3).

    Args:
        turn: The turn with its returned documents and their probabilities.
        credit: Its credit; its weight scales everything.
        followed: Credit of followed documents that replaces theirs.
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
    """Return the credit after a success: all needed documents are among those returned."""
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
    """Return the credit after a failure: a needed document is not among those returned."""
    blamed = {
        node: _FAILURE_WEIGHT * credit.outcome * (1.0 - p)
        for node, p in calibrate_relevance(turn).items()
    }
    missing = {node: v for node, v in before.items() if v > 0 and node not in blamed}
    total = sum(missing.values())
    return blamed | {
        node: _FAILURE_WEIGHT * -credit.outcome * value / total for node, value in missing.items()
    }


CreditByUser = Mapping[str, Mapping[str, float]]
"""Credit for a question: by user, then by node id."""


def limit_user_share(
    credit_stated: Mapping[str, float], user: str, voices: CreditByUser, share: float
) -> float:
    """Return the share of a user's credit for a question that counts, in [0, 1].

    Args:
        credit_stated: The user's credit by node id, if counted in full; below 0 against a document.
        user: The user.
        voices: Credit that users gave before.
        share: Upper bound on a user's contradicting credit, relative to the credit of others.
    """
    others_credit = _sum_support(voices, user)
    if not others_credit:
        return 1.0
    strongest, own_credit = max(others_credit.values()), voices.get(user, {})
    allowed = 1.0
    for node, credit in credit_stated.items():
        own_before = own_credit.get(node, 0.0)
        if credit > 0 and node not in others_credit:
            allowed = min(allowed, (share * strongest - max(0.0, own_before)) / credit)
        elif credit < 0 and node in others_credit:
            allowed = min(allowed, (share * others_credit[node] + min(0.0, own_before)) / -credit)
    return max(0.0, allowed)


def _sum_support(voices: CreditByUser, user: str) -> dict[str, float]:
    """Sum the positive credit of other users, by node id."""
    credit_by_node: dict[str, float] = {}
    for name, credit_stated in voices.items():
        for node, credit in credit_stated.items() if name != user else ():
            if credit > 0:
                credit_by_node[node] = credit_by_node.get(node, 0.0) + credit
    return credit_by_node
