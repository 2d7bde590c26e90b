"""Value iteration: the value of each region under the best actions from there on."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from crabpath_retrievers.changes.regions import TransitionCount

_MAX_ROUNDS = 10_000
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class ValueFunction:
    """The fixed point of the Bellman optimality equation.

    Attributes:
        values: By key of the region: P(success) under the best actions, in [0, 1].
        actions: By key of the region: the best action.
        rounds: Number of sweeps.
    """

    values: Mapping[int, float]
    actions: Mapping[int, str]
    rounds: int


def run_value_iteration(
    steps: Sequence[TransitionCount], success: Mapping[tuple[int, str], float], discount: float
) -> ValueFunction:
    """Compute the value of every region under the best actions, as a chance of success.

    ``V(s) = max_a e R + (1 - e) ((1 - γ) R + γ Σ_s' P(s' | s, a) V(s'))``, ``e = P(end | s, a)``.
    Bellman (1957, ch. XI) with the reward R = P(success | s, a) of [CVX RFC-013] at every step,
    scaled so that values are probabilities. A step to an unknown region, or to one without counted
    actions, counts as the last one.

    Args:
        steps: Transition counts of one level and task; those without action are ignored.
        success: P(success | region, action) of every region and action among them.
        discount: γ in (0, 1).
    """
    tried = [step for step in steps if step.action and step.trials > 0]
    if not tried:
        return ValueFunction({}, {}, 0)
    regions = sorted({step.region for step in tried})
    index_of_region = {region: index for index, region in enumerate(regions)}
    moves = sorted({(step.region, step.action) for step in tried})
    index_of_move = {move: index for index, move in enumerate(moves)}
    move = np.array([index_of_move[step.region, step.action] for step in tried])
    next_index = np.array([index_of_region.get(step.next, 0) for step in tried])
    continuing = np.array([s.trials - s.ends if s.next in index_of_region else 0.0 for s in tried])
    total = np.bincount(move, [step.trials for step in tried])
    next_probability = continuing / total[move]
    end_probability = 1.0 - np.bincount(move, next_probability)
    success_of = np.array([success[pair] for pair in moves])
    reward = success_of * (end_probability + (1.0 - end_probability) * (1.0 - discount))
    region_index = np.array([index_of_region[region] for region, _ in moves])
    values = np.zeros(len(regions))
    change, rounds = 1.0, 0
    while change >= _TOLERANCE and rounds < _MAX_ROUNDS:
        action_values = reward + discount * np.bincount(
            move, next_probability * values[next_index], len(moves)
        )
        new = np.zeros(len(regions))
        np.maximum.at(new, region_index, action_values)
        change = float(np.abs(new - values).max())
        values, rounds = new, rounds + 1
    best = {
        moves[index][0]: moves[index][1]
        for index in np.argsort(action_values, kind="stable").tolist()
    }
    return ValueFunction(dict(zip(regions, values.tolist(), strict=True)), best, rounds)
