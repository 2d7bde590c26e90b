"""Finds learned weights that decay has reduced to nothing (CrabPath v2 specification)."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from crabpath_retrievers.changes.maintenance import DroppedWeight
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage.upkeep_queries import LearnedWeight


class FadedWeights(NamedTuple):
    """Weights to drop.

    Attributes:
        at_floor: Weights of text edges that have decayed to the prior.
        pruned: Edges made by learning alone that have decayed to about 0.
    """

    at_floor: list[DroppedWeight]
    pruned: list[DroppedWeight]


def find_faded_weights(
    weights: Iterable[LearnedWeight],
    exponent: float,
    half_life: float,
    settings: MaintenanceSettings,
) -> FadedWeights:
    """Find the weights that no walk follows any more.

    Weights changed within the last ``age`` turns stay, and so do edges to nodes of the highest
    authority, which do not decay.

    Args:
        weights: Learned weights of one namespace.
        exponent: Accumulated decay exponent of the namespace now.
        half_life: Half-life of a weight, in turns, above 0.
        settings: Bounds below which a weight is dropped.
    """
    aged = settings.min_age_turns * math.log(2.0) / half_life
    faded = FadedWeights([], [])
    for weight in weights:
        rate = DECAY_RATES[weight.authority]
        if not rate or exponent - weight.decay_at < aged:
            continue
        now = effective_weight(weight.weight, weight.floor or 0.0, weight.decay_at, exponent, rate)
        drop = DroppedWeight(weight.source, weight.target, weight.kind, weight.decay_at)
        if weight.floor is not None:
            if abs(now - weight.floor) < settings.faded_distance:
                faded.at_floor.append(drop)
        elif -settings.min_inhibition < now < settings.min_weight:
            faded.pruned.append(drop)
    return faded
