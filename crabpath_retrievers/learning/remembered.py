"""Episode credit: the credit that a turn gives its documents for the same question later."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from crabpath_retrievers.learning.believed import calibrate_relevance
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

_FAILURE_WEIGHT = 0.5  # a failure without stated use may be none, or have another cause


def assign_episode_credit(
    turn: Turn,
    credit: Credit,
    followed: Mapping[str, float] = MappingProxyType({}),
    *,
    before: Mapping[str, float] = MappingProxyType({}),
    all_experience: bool = False,
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
        all_experience: Whether failures are stored like successes: the ablation against which [CVX
            RFC-013] argues (docs/bibliography.md).
    """
    if not credit.outcome:
        return {}
    if all_experience and credit.outcome < 0:
        documents = {node: abs(value) for node, value in credit.documents.items()}
        as_success = replace(credit, outcome=-credit.outcome, documents=documents)
        return assign_episode_credit(turn, as_success)
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
