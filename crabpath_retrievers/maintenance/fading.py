"""Which learned weights have faded away (document 001 §2.8)."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from crabpath_retrievers.changes.maintenance import Dropped
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.graph import DECAY_RATES, effective_weight
from crabpath_retrievers.storage.upkeep_queries import LearnedWeight


class Fading(NamedTuple):
    """What went: weights back at what the text says, and edges that learning alone had made."""

    settled: list[Dropped]
    pruned: list[Dropped]


def faded(
    weights: Iterable[LearnedWeight],
    exponent: float,
    half_life: float,
    settings: MaintenanceSettings,
) -> Fading:
    """The weights that nothing is left of; no walk follows them any more.

    What was moved within the last ``age`` turns stays, and so does what leads to a node of the
    highest authority.

    Args:
        weights: Of one namespace.
        exponent: Its accumulated decay exponent now.
        half_life: Of a weight, in turns.
        settings: What counts as nothing.
    """
    aged = settings.min_age_turns * math.log(2.0) / half_life
    found = Fading([], [])
    for one in weights:
        rate = DECAY_RATES[one.authority]
        if not rate or exponent - one.mark < aged:
            continue
        now = effective_weight(one.weight, one.floor or 0.0, one.mark, exponent, rate)
        gone = Dropped(one.source, one.target, one.kind, one.mark)
        if one.floor is not None:
            if abs(now - one.floor) < settings.faded_distance:
                found.settled.append(gone)
        elif -settings.min_inhibition < now < settings.min_weight:
            found.pruned.append(gone)
    return found
