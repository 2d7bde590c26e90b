"""Full-trajectory REINFORCE over the decisions of one turn.

ΔW = η Σ_ℓ γ^ℓ (z_ℓ - b) ∇ log π(a_ℓ | s_ℓ),   ∇ log π(a | i) = (e_a - π_i)/τ

(documents 000 §3.1-3.2 and 003 §3, after Gu 2016; Williams 1992). Four readings of it:

- Several pointers may be followed from one node: draws without replacement until STOP
  (Plackett-Luce). Each is one action ℓ with its own z. No answer depends on the order of these
  draws, so each is compared with what was left after all of them, and followed pointers are no
  competitors of each other. For one pointer, and then STOP, that is the gradient of the logged
  probability. In the order of the draws, a second pointer drawn from (.50, .49, STOP .01) would
  fall by .47/τ in a success, which P6 of the design forbids.
- A pointer to a node that another one led to, and that was credited or blamed there, is no
  competitor either: what an outcome says about a document is not turned round at its neighbours.
- ℓ counts from the document that is credited, back to its seed: the decision that led to it has
  γ^0. The papers write γ^ℓ from the start of the route; their results have γ = 1.
- A reflex is no decision and has no gradient. What a chat model chose is a demonstration: its own
  probability is unknown, so the policy takes a step towards it, or away from it, by the gradient of
  its own logged probability, without a correction for who drew (advantage-weighted imitation:
  Peng et al. 2019, with unit weights).
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.graph import EdgeKind, Tier
from crabpath_retrievers.learning.baseline import advantage
from crabpath_retrievers.learning.delta import LearnedDelta
from crabpath_retrievers.learning.routes import known_credit, merits
from crabpath_retrievers.outcome import Credit, learnable
from crabpath_retrievers.trajectory import Step, Turn

Floats = NDArray[np.float64]

_WIDEST = 2.0  # from one end of the range of weights to the other


class _Action(NamedTuple):
    """A pointer, or STOP without a target, with its score r + w."""

    target: str | None
    kind: str
    score: float


class _Draw(NamedTuple):
    """An action drawn at a node, what else was left, and its gain γ^ℓ (z_ℓ - b)."""

    node: str
    drawn: _Action
    rivals: tuple[_Action, ...]
    gain: float
    temperature: float


def policy_gradient(
    turn: Turn, credit: Credit, baseline: float, settings: LearningSettings, *, stop: float
) -> list[LearnedDelta]:
    """Changes of the weights that decided in one turn.

    A positive credit never lowers a pointer that led to it, a negative one never raises it, and
    decisions that led to no document of known credit are left alone. The changes at every node
    sum to 0 (not under the heuristic rule). Weights are those that decided, after damping.

    Args:
        turn: What was decided.
        credit: What became of it; its weight scales every change.
        baseline: b, in [-1, 1].
        settings: η, γ and the rule.
        stop: Score of STOP before anything was learned (``PolicySettings.stop``).

    Returns:
        One change per edge that changes, in the order of the decisions; at most 2 per draw.

    Raises:
        InvalidInputError: The baseline is no number in [-1, 1].
    """
    learnable(baseline, name="baseline")
    rate = settings.learning_rate * credit.weight
    total: defaultdict[tuple[str, str | None, str], float] = defaultdict(float)
    for draw in _draws(turn, credit, baseline, settings, stop):
        change = (
            _heuristic(draw, rate) if settings.credit_rule == "heuristic" else _gradient(draw, rate)
        )
        for action, delta in change:
            total[draw.node, action.target, action.kind] += delta
    return [LearnedDelta(*edge, delta) for edge, delta in total.items() if delta]


def score_function(scores: Sequence[float], temperature: float) -> Floats:
    """τ ∇ log π of the first action: e_a - π, shape ``[n]``, in [-1, 1], sums to 0.

    Document 003 §3. It vanishes as π(a) approaches 1.

    Args:
        scores: r + w of every action left, shape ``[n]``, the drawn one first.
        temperature: τ > 0.
    """
    values = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore"):  # a score infinitely far behind has no probability
        mass = np.exp((values - values.max()) / temperature)
    surprise: Floats = -mass / mass.sum()
    surprise[0] = -surprise[1:].sum()  # 1 - π loses its digits as π approaches 1
    return surprise


def _gradient(draw: _Draw, rate: float) -> Iterator[tuple[_Action, float]]:
    actions = (draw.drawn, *draw.rivals)
    surprise = score_function([action.score for action in actions], draw.temperature)
    step = max(-_WIDEST, min(_WIDEST, rate * draw.gain / draw.temperature))
    yield from zip(actions, (step * surprise).tolist(), strict=True)


def _heuristic(draw: _Draw, rate: float) -> Iterator[tuple[_Action, float]]:
    """The rule that document 003 §3 corrects: all of η (z - b) on the chosen pointer alone."""
    if draw.drawn.target is not None:
        yield draw.drawn, rate * draw.gain


def _draws(
    turn: Turn, credit: Credit, baseline: float, settings: LearningSettings, stop: float
) -> Iterator[_Draw]:
    """What was drawn, as far as something is known about it."""
    steps = [step for step in turn.steps if step.decided_by != "reflex"]
    decided = {(step.node, target) for step in steps for target in step.chosen}
    known = known_credit(turn, credit)
    found = merits(turn, known, decided, last_only=settings.credit_rule == "myopic")
    gains = {
        move: settings.discount**merit.hops * advantage(merit.credit, baseline)
        for move, merit in found.items()
    }
    judged = {node for node, value in known.items() if value}
    judged |= {target for (_, target), merit in found.items() if merit.credit}
    for step in steps:
        # A node that is entered twice decides twice; the first time made the route.
        earned = {target: gains.pop((step.node, target), 0.0) for target in step.chosen}
        yield from _draws_of(step, earned, judged, stop)


def _draws_of(
    step: Step, earned: Mapping[str, float], judged: set[str], stop: float
) -> Iterator[_Draw]:
    offered = _offered(step)
    closed = judged.union(earned)
    rivals = tuple(action for target, action in offered.items() if target not in closed)
    halt = _Action(None, EdgeKind.STOP.label, stop + step.stop_weight)
    for target, gain in earned.items():
        if gain and target in offered:
            yield _Draw(step.node, offered[target], (*rivals, halt), gain, step.temperature)
    best = max(earned.values(), default=0.0)
    # STOP led to no document for which it could be blamed; in a success it was part of the choice.
    if step.stopped and best > 0:
        yield _Draw(step.node, halt, rivals, best, step.temperature)


def _offered(step: Step) -> Mapping[str, _Action]:
    """The pointers that were open to decision, by target."""
    return {
        c.target: _Action(c.target, c.kind, c.relevance + c.weight)
        for c in step.candidates
        # A habitual pointer without probability led where the walk could not go any more.
        if c.tier == Tier.HABITUAL.value and (c.probability > 0 or c.target in step.chosen)
    }
