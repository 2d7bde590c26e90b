"""What is remembered of a turn: which of its documents to bring, or to leave out, next time."""

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from crabpath_retrievers.learning.believed import believed
from crabpath_retrievers.outcome import Credit
from crabpath_retrievers.trajectory import Turn

_FAILURE_WEIGHT = 0.5  # a bare failure may be none, or have another cause


def remembered(
    turn: Turn,
    credit: Credit,
    followed: Mapping[str, float] = MappingProxyType({}),
    *,
    before: Mapping[str, float] = MappingProxyType({}),
    all_experience: bool = False,
) -> dict[str, float]:
    """Credit in [-1, 1], by node id, with which a turn speaks when its question comes again.

    Above 0 for what was used in a success. Below 0 for what was blamed, or returned and not used:
    that is held against a document for this question only, and not where it was only inferred.
    Where nothing finer than the outcome is known, a success speaks for each returned document as
    far as the ranker believed in it, a failure against it as far as it did not: the expectation
    step of a mixture over which of the documents mattered (Dempster, Laird & Rubin 1977, §3).

    Args:
        turn: What was returned, with the ranker's probabilities.
        credit: What became of it; its weight scales everything.
        before: What the question said of documents before, by node id.
        followed: What it says of documents that it followed, where that is not their credit.
        all_experience: Whether a failure speaks for what it followed as a success does, which is
            what document 004 E warns of.
    """
    if not credit.outcome:
        return {}
    if all_experience and credit.outcome < 0:
        documents = {node: abs(value) for node, value in credit.documents.items()}
        as_success = replace(credit, outcome=-credit.outcome, documents=documents)
        return remembered(turn, as_success)
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
    """What a bare success says: all that was needed is among what was returned."""
    returned = {
        node: credit.outcome * (p - min(0.0, before.get(node, 0.0)))
        for node, p in believed(turn).items()
    }
    return returned | {
        node: -credit.outcome * value
        for node, value in before.items()
        if value > 0 and node not in returned
    }


def _credit_failure(turn: Turn, credit: Credit, before: Mapping[str, float]) -> dict[str, float]:
    """What a bare failure says: something that was needed is not among what was returned."""
    blamed = {
        node: _FAILURE_WEIGHT * credit.outcome * (1.0 - p) for node, p in believed(turn).items()
    }
    missing = {node: v for node, v in before.items() if v > 0 and node not in blamed}
    total = sum(missing.values())
    return blamed | {
        node: _FAILURE_WEIGHT * -credit.outcome * value / total for node, value in missing.items()
    }
