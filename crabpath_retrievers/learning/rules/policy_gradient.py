"""Full-trajectory REINFORCE over the decisions of one turn.

ΔW = η Σ_ℓ γ^ℓ (z_ℓ - b) ∇ log π(a_ℓ | s_ℓ),   ∇ log π(a | i) = (e_a - π_i)/τ

REINFORCE with a baseline (Williams 1992; Sutton & Barto 2018, §13.4) over whole paths (Gu 2016),
as in [CrabPath] (docs/bibliography.md), with four specifications:

- Several edges may be followed from one node: draws without replacement until STOP
  (Plackett-Luce). Each is one action ℓ with its own z. No answer depends on the order of these
  draws, so each is compared with the actions left after all of them, and followed edges do not
  compete with each other. For one edge, and then STOP, that is the gradient of the logged
  probability. In the order of the draws, a second edge drawn from (.50, .49, STOP .01) would fall
  by .47/τ in a success, although no success may lower what it credits.
- An edge to a node that another edge led to, and that was credited or blamed there, does not
  compete either: the credit of a document is not reversed at its neighbours.
- ℓ counts from the credited document back to its seed: the decision that led to it has γ^0.
  [CrabPath] writes γ^ℓ from the start of the path; its results have γ = 1.
- An edge that was considered and not followed, to a document that the host calls relevant and the
  turn did not return, is a demonstration too.
- A reflex is no decision and has no gradient. A choice of a chat model is a demonstration: its
  probability under the model is unknown, so the policy takes a step towards it, or away from it,
  by the gradient of its own logged probability, without importance weights (advantage-weighted
  imitation: Peng et al. 2019, with unit weights).

Credit of decisions: which followed edges led to which documents, with what credit.
"""

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.baseline import advantage
from crabpath_retrievers.core.changes.learned import LearnedDelta
from crabpath_retrievers.core.feedback import Credit
from crabpath_retrievers.core.graph import EdgeKind, Tier
from crabpath_retrievers.core.text import Floats
from crabpath_retrievers.core.turn import Turn, WalkStep

FollowedEdge = tuple[str, str]
"""A followed edge: ids of source and target."""


class EdgeCredit(NamedTuple):
    """Credit of one followed edge.

    Attributes:
        credit: z of the document that counts of those reached through it, in [-1, 1].
        hops: Edges between it and that document; 0 if it led to the document itself.
    """

    credit: float
    hops: int


def get_known_credit(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return the credit in [-1, 1] of the returned documents for which it is known.

    If only the outcome is known, it is the credit of every returned document.
    """
    nodes = [item.node for item in turn.returned]
    if not credit.documents:
        return dict.fromkeys(nodes, credit.outcome)
    return {node: credit.documents[node] for node in nodes if node in credit.documents}


def assign_edge_credit(
    turn: Turn, known: Mapping[str, float], decided: Container[FollowedEdge]
) -> dict[FollowedEdge, EdgeCredit]:
    """Return the credit of every decided edge that led to a document with known credit.

    Of several documents behind one edge the best credited counts: a decision that found one useful
    document did not fail because of the others. Where none was useful, the most blamed one counts:
    what was not judged on the way to it excuses nothing. Edges that led to no such document have
    none.

    Args:
        turn: The turn with its returned documents and their paths.
        known: Credit by document.
        decided: Edges that were decided, not followed by reflex.
    """
    credit_by_move: dict[FollowedEdge, EdgeCredit] = {}
    for item in turn.returned:
        path = item.path if item.node in known else ()
        for passed, edge in enumerate(path, start=1):
            move = (edge.source, edge.target)
            if move in decided:
                merit = EdgeCredit(known[item.node], len(path) - passed)
                best = credit_by_move.get(move, merit)
                credit_by_move[move] = max(best, merit, key=_rank_merit)
    return credit_by_move


def _rank_merit(merit: EdgeCredit) -> tuple[bool, float, int]:
    """Order in which credits count: use, then blame, then what was not judged; nearest first."""
    return merit.credit > 0, abs(merit.credit), -merit.hops


_MAX_STEP = 2.0  # width of the range of weights


class Action(NamedTuple):
    """An edge, or STOP without a target, with its score r + w."""

    target: str | None
    kind: str
    score: float


class Draw(NamedTuple):
    """An action drawn at a node, the other actions left, and its gain γ^ℓ (z_ℓ - b)."""

    node: str
    drawn: Action
    rivals: tuple[Action, ...]
    gain: float
    temperature: float


def compute_policy_gradient(
    turn: Turn,
    credit: Credit,
    baseline: float,
    settings: LearningSettings,
    *,
    stop: float,
    share: float = 1.0,
) -> list[LearnedDelta]:
    """Compute the changes of the weights that decided in one turn.

    A positive credit never lowers an edge that led to it, a negative one never raises it, and
    decisions that led to no document of known credit are left alone. The changes at every node sum
    to 0. Weights are those that decided, after damping.

    Args:
        turn: The turn with its decisions.
        credit: Its credit; its weight scales every change.
        baseline: b, in [-1, 1].
        settings: η and γ.
        stop: Score of STOP before anything was learned (``PolicySettings.stop_score``).
        share: Factor on every change, in (0, 1]; below 1 if the credit of documents is inferred.

    Returns:
        One change per edge that changes, in the order of the decisions; at most 2 per draw.
    """
    rate = settings.learning_rate * share * credit.weight
    totals: defaultdict[tuple[str, str | None, str], float] = defaultdict(float)
    for draw in _list_draws(turn, credit, baseline, settings, stop):
        for action, delta in apply_gradient(draw, rate):
            totals[draw.node, action.target, action.kind] += delta
    return [LearnedDelta(*edge, delta) for edge, delta in totals.items() if delta]


def score_function(scores: Sequence[float], temperature: float) -> Floats:
    """Return τ ∇ log π of the first action: e_a - π, shape ``[n]``, in [-1, 1], summing to 0.

    The score function of a softmax policy (Sutton & Barto 2018, §13.3). It vanishes as π(a)
    approaches 1.

    Args:
        scores: r + w of every action left, shape ``[n]``, the drawn one first.
        temperature: τ > 0.
    """
    values = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore"):  # a score that underflows has probability 0
        mass = np.exp((values - values.max()) / temperature)
    score: Floats = -mass / mass.sum()
    score[0] = -score[1:].sum()  # 1 - π is inexact as π approaches 1
    return score


def apply_gradient(draw: Draw, rate: float) -> Iterator[tuple[Action, float]]:
    """Yield the changes of the weights that one draw decided, at a rate η · credit weight."""
    actions = (draw.drawn, *draw.rivals)
    score = score_function([action.score for action in actions], draw.temperature)
    step = max(-_MAX_STEP, min(_MAX_STEP, rate * draw.gain / draw.temperature))
    yield from zip(actions, (step * score).tolist(), strict=True)


def _list_draws(
    turn: Turn, credit: Credit, baseline: float, settings: LearningSettings, stop: float
) -> Iterator[Draw]:
    """Yield the draws of a turn of which the credit is known."""
    steps = [step for step in turn.steps if step.decided_by != "reflex"]
    decided = {(step.node, target) for step in steps for target in step.chosen}
    known = get_known_credit(turn, credit)
    if credit.outcome < 0:  # which blames what is irrelevant like what was used
        known |= dict.fromkeys(credit.irrelevant, credit.outcome)
    credit_by_move = assign_edge_credit(turn, known, decided)
    gains = {
        move: settings.discount**merit.hops * advantage(merit.credit, baseline)
        for move, merit in credit_by_move.items()
    }
    known_nodes = {node for node, value in known.items() if value}
    known_nodes |= {target for (_, target), merit in credit_by_move.items() if merit.credit}
    for step in steps:
        # A node visited twice decides twice; the path comes from the first visit.
        gain_by_target = {target: gains.pop((step.node, target), 0.0) for target in step.chosen}
        actions = _list_actions(step)
        for target in credit.added.intersection(actions):
            gain_by_target[target] = max(0.0, advantage(known[target], baseline))
        yield from _list_step_draws(step, actions, gain_by_target, known_nodes, stop)


def _list_step_draws(
    step: WalkStep,
    actions: Mapping[str, Action],
    gain_by_target: Mapping[str, float],
    known_nodes: set[str],
    stop: float,
) -> Iterator[Draw]:
    excluded = known_nodes.union(gain_by_target)
    rivals = tuple(action for target, action in actions.items() if target not in excluded)
    stop_action = Action(None, EdgeKind.STOP.label, stop + step.stop_weight)
    for target, gain in gain_by_target.items():
        if gain and target in actions:
            yield Draw(step.node, actions[target], (*rivals, stop_action), gain, step.temperature)
    best = max((gain_by_target[target] for target in step.chosen), default=0.0)
    # STOP leads to no document, so it cannot be blamed; in a success it shares the credit.
    if step.stopped and best > 0:
        yield Draw(step.node, stop_action, rivals, best, step.temperature)


def _list_actions(step: WalkStep) -> Mapping[str, Action]:
    """Return the edges that were open to decision, by target."""
    return {
        c.target: Action(c.target, c.kind, c.relevance + c.weight)
        for c in step.candidates
        # A habitual edge without probability led to a node that was closed to the walk.
        if c.tier == Tier.HABITUAL.value and (c.probability > 0 or c.target in step.chosen)
    }
