"""Off-policy estimates of the order without exploration, from logged turns."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from crabpath_lab.statistics import bootstrap_interval, bootstrap_ratio
from crabpath_retrievers.errors import InvalidInputError


class LoggedTurn(NamedTuple):
    """A turn with exploration, beside what the same ranker returns without it.

    Attributes:
        propensities: Probability of being returned by id of each returned chunk, in (0, 1]; None
            where it is unknown.
        used: Ids of the returned chunks that the feedback names as used.
        greedy: Ids of the chunks that would be returned without exploration, and that exploration
            could return.
        uncovered: Number of chunks that would be returned, and that exploration never returns.
        relevant: How many of ``greedy`` are relevant by the labels; no estimate reads it.
    """

    propensities: Mapping[str, float | None]
    used: frozenset[str]
    greedy: Sequence[str]
    uncovered: int
    relevant: int


def estimate_greedy_uses(turns: Iterable[LoggedTurn], *, seed: int = 0) -> dict[str, Any] | None:
    """Estimate from logged turns how many documents would be used without exploration.

    ``ips`` is the mean of ``Σ used / propensity`` over the greedy documents that were returned
    (Horvitz & Thompson 1952), ``snips`` divides it by ``Σ 1 / propensity`` and multiplies by the
    mean number of greedy documents (Swaminathan & Joachims 2015); each has a 95 % bootstrap
    interval over questions. ``true`` is the same mean by the labels. ``uncovered`` is the mean
    number of greedy documents that no estimate covers, ``left_out`` the number of turns without
    a known propensity.

    Returns:
        The record, or None without any turn of known propensities.
    """
    every = list(turns)
    known = [t for t in every if all(t.propensities.get(c, 1.0) is not None for c in t.greedy)]
    if not known:
        return None
    weights = [_weigh_returned(turn) for turn in known]
    total = np.array([sum(of.values()) for of in weights])
    used = np.array(
        [
            sum(weight for chunk, weight in of.items() if chunk in turn.used)
            for turn, of in zip(known, weights, strict=True)
        ],
        dtype=np.float64,
    )
    size = float(np.mean([len(turn.greedy) for turn in known]))
    ratio, ratio_ci95 = bootstrap_ratio(used * size, total, seed=seed)
    return {
        "turns": len(known),
        "left_out": len(every) - len(known),
        "ips": round(float(used.mean()), 4),
        "ips_ci95": bootstrap_interval(used, seed=seed),
        "snips": ratio,
        "snips_ci95": ratio_ci95,
        "true": round(float(np.mean([turn.relevant for turn in known])), 4),
        "explored": round(float(np.mean([len(turn.used) for turn in known])), 4),
        "uncovered": round(float(np.mean([turn.uncovered for turn in known])), 4),
    }


def _weigh_returned(turn: LoggedTurn) -> dict[str, float]:
    """Weigh the greedy chunks that were returned by ``1 / propensity``, by id."""
    weights = {}
    for chunk in turn.greedy:
        chance = turn.propensities.get(chunk)
        if chance is None:
            continue
        if not 0.0 < chance <= 1.0 + 1e-9:  # a sum of shares may round above 1
            msg = f"a propensity must be above 0 and at most 1, not {chance}"
            raise InvalidInputError(msg)
        weights[chunk] = 1.0 / chance
    return weights
