"""Reliability of a namespace's memories: how often the documents that they support are used.

Whether tasks repeat is a property of the stream of questions, and no single query shows it. On
questions that have nothing in common, documents used for a similar question are not used again.
"""

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.turn import ReturnedDocument, Turn

MEMORY_FEATURES = ("episode", "usage")
"""Ranker features that carry feedback on other questions."""

ADVICE_FEATURE = "advice"
"""Ranker feature with the advice of the region MDP."""

_RETURNED, _UNLIKELY = "returned", "unlikely"
_UNLIKELY_BELOW = 0.05  # probability below which a document without memory support is unlikely
_PRIOR = (0.5, 5.0)  # prior (used, all): less than half reliable before any evidence
_PRIOR_RATE = 0.25  # prior share of returned documents that an answer uses
_PRIOR_COUNT = 20.0  # weight of that prior, in documents
_PRIOR_NATS = 3.0  # prior against advice: nats of evidence for a factor of one half
_EPSILON = 1e-6  # bound on a probability before its logarithm is taken
_NONE: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Reliability:
    """Per memory feature: its support for documents that were used, and for all with known use.

    Attributes:
        spoken: ``(used, all)`` by feature: sums of its value where it is above 0, times the weight
            of the feedback; also of all ``returned`` documents and of the ``unlikely`` ones among
            them, with 1 for each. For ``advice``: the log-likelihood, in nats, that it gained where
            it was right and lost where it was wrong.
    """

    spoken: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def factor(self, memory: str) -> float:
        """Return the factor for the weight of a memory feature, in [0, 1].

        The mean of a Beta posterior over "a supported document is used", on a scale from 0 (as
        rarely as unlikely documents) to 1 (as often as any returned document). Feedback that is
        often wrong marks unlikely documents as used and so does not make a memory reliable.
        """
        used, known = self.spoken.get(memory, _NONE)
        rate = (used + _PRIOR[0]) / (known + _PRIOR[1])
        usual_rate, floor = (
            self._estimate_rate(_RETURNED, _PRIOR_RATE),
            self._estimate_rate(_UNLIKELY, 0.0),
        )
        return max(0.0, min(1.0, (rate - floor) / max(usual_rate - floor, _UNLIKELY_BELOW)))

    def get_advice_weight(self) -> float:
        """Return the factor for the weight of the region MDP's advice, in [0, 1].

        The posterior probability that use depends on region and action type together, against the
        model without that interaction (Bayesian model averaging: Hoeting et al. 1999, §2), from
        predictions made before their outcomes.
        """
        gained, lost = self.spoken.get(ADVICE_FEATURE, _NONE)
        return 1.0 / (1.0 + math.exp(min(700.0, _PRIOR_NATS - gained + lost)))

    def _estimate_rate(self, of: str, first: float) -> float:
        used, known = self.spoken.get(of, _NONE)
        return (used + first * _PRIOR_COUNT) / (known + _PRIOR_COUNT)

    def plus(self, amount: Mapping[str, tuple[float, float]], sign: float = 1.0) -> "Reliability":
        """Return the reliability with the evidence of one feedback, or without it (``sign`` -1)."""
        total = dict(self.spoken)
        for memory, (used, known) in amount.items():
            before = total.get(memory, _NONE)
            total[memory] = (
                max(0.0, before[0] + sign * used),
                max(0.0, before[1] + sign * known),
            )
        return Reliability(total)


def measure_memories(turns: Iterable[tuple[Turn, Credit]]) -> dict[str, tuple[float, float]]:
    """Return the evidence of feedback about the memories that supported documents of its turns.

    Args:
        turns: Turns with their credit; only documents with a credit of their own count.
    """
    totals: dict[str, tuple[float, float]] = {}
    for turn, credit in turns:
        for item in turn.returned:
            if item.node in credit.documents:
                value = max(0.0, credit.documents[item.node])
                for memory, strength in _list_strengths(item):
                    used, known = totals.get(memory, _NONE)
                    amount = strength * credit.weight
                    totals[memory] = (used + amount * value, known + amount)
    return totals


def measure_advice(
    turns: Iterable[tuple[Turn, Credit]], weight: float, counted: float
) -> dict[str, tuple[float, float]]:
    """Return the evidence of feedback about the advice in its turns; see ``Reliability``.

    Args:
        turns: Turns with their credit; documents of known use count.
        weight: Weight of the feature at full reliability, in log-odds.
        counted: Factor that the weight had when the documents were ranked, in [0, 1].
    """
    gained = lost = 0.0
    for turn, credit in turns:
        for item in turn.returned:
            known, advice = credit.documents.get(item.node), item.features.get(ADVICE_FEATURE, 0.0)
            if not advice or known is None or not (known or item.node not in credit.inferred):
                continue
            probability = min(1.0 - _EPSILON, max(_EPSILON, item.probability))
            log_odds_without = (
                math.log(probability / (1.0 - probability)) - counted * weight * advice
            )
            used = max(0.0, known)
            gain = _log_likelihood(log_odds_without + weight * advice, used) - _log_likelihood(
                log_odds_without, used
            )
            gained += credit.weight * max(0.0, gain)
            lost += credit.weight * max(0.0, -gain)
    return {ADVICE_FEATURE: (gained, lost)} if gained or lost else {}


def _log_likelihood(odds: float, used: float) -> float:
    """Return the log-likelihood in nats of use, in [0, 1], under these log-odds."""
    return used * odds - math.log1p(math.exp(min(700.0, odds)))


def _list_strengths(item: ReturnedDocument) -> Iterator[tuple[str, float]]:
    """Yield what one returned document counts for, with its strength."""
    yield _RETURNED, 1.0
    memory_values = [(memory, item.features.get(memory, 0.0)) for memory in MEMORY_FEATURES]
    if not any(value > 0 for _, value in memory_values) and item.probability < _UNLIKELY_BELOW:
        yield _UNLIKELY, 1.0
    yield from ((memory, value) for memory, value in memory_values if value > 0)
