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
- Only what was judged competes: documents that were shown and not used fall as the used one rises,
  and STOP with them. What nobody judged keeps its weight, and so does what another edge led to and
  what was credited or blamed there: the credit of a document is not reversed at its neighbours.
- ℓ counts from the credited document back to its seed: the decision that led to it has γ^0.
  [CrabPath] writes γ^ℓ from the start of the path; its results have γ = 1.
- A route that would have led to a used document, had a past turn not made it an entry, is a
  demonstration: its edges are credited as if the walk had taken them. STOP does not fall for an
  edge that was not on offer.
- Where documents are named, each is compared with those that are not, and b is 0.
- A reflex is no decision: a success teaches it nothing, and blame lowers it.
- A choice of a chat model is a demonstration: its probability under the model is unknown, so the
  policy takes a step towards it, or away from it, by the gradient of its own logged probability,
  without importance weights (advantage-weighted imitation: Peng et al. 2019, with unit weights).

Credit of decisions: which followed edges led to which documents, with what credit.
"""

from collections import defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.core.changes import LearnedDelta
from crabpath_retrievers.core.feedback import Credit, advantage
from crabpath_retrievers.core.records import EdgeKind, Tier, Turn, WalkStep
from crabpath_retrievers.core.text import Floats

FollowedEdge = tuple[str, str]
"""A followed edge: ids of source and target."""

EdgeCredit = tuple[float, int]
"""z in [-1, 1] of the document that counts of those reached through an edge, and the number of
edges between that one and the document."""


def get_known_credit(turn: Turn, credit: Credit) -> dict[str, float]:
    """Return the credit in [-1, 1] of the returned documents for which it is known, by node id.

    If only the outcome is known, it is the credit of every returned document.
    """
    nodes = [item.node for item in turn.returned]
    if not credit.documents:
        return dict.fromkeys(nodes, credit.outcome)
    return {node: credit.documents[node] for node in nodes if node in credit.documents}


def assign_edge_credit(
    routes: Iterable[Sequence[FollowedEdge]],
    known: Mapping[str, float],
    decided: Container[FollowedEdge],
) -> dict[FollowedEdge, EdgeCredit]:
    """Return the credit of every decided edge of some routes.

    Of several documents behind one edge the best credited counts: a decision that found one useful
    document did not fail because of the others. If none was useful, the most blamed one counts: a
    document on the way that was not judged excuses nothing.

    Args:
        known: Credit of these documents, by node id.
        decided: Edges that were followed, or would have led to a used document; others get none.
    """
    credit_by_move: dict[FollowedEdge, EdgeCredit] = {}
    for route in routes:
        for passed, move in enumerate(route, start=1):
            if move in decided:
                merit = known[route[-1][1]], len(route) - passed
                best = credit_by_move.get(move, merit)
                credit_by_move[move] = max(best, merit, key=_rank_merit)
    return credit_by_move


def list_other_routes(turn: Turn, credit: Credit) -> Iterator[tuple[FollowedEdge, ...]]:
    """Yield the routes to used documents that the walk considered and did not take.

    Each runs along followed edges to some node, and from there along one candidate edge that was
    not followed. No route visits its own document before its end. A used document that is a seed
    gets none, unless turns of the same question had used it before.
    """
    seeds = {seed.node for seed in turn.seeds}
    used = {
        item.node
        for item in turn.returned
        if credit.documents.get(item.node, 0.0) > 0
        and (item.node not in seeds or "again" in item.features)
    }
    routes: dict[str, tuple[FollowedEdge, ...]] = dict.fromkeys(seeds, ())
    for step in turn.steps:
        for target in (*step.reflexes, *step.chosen):
            routes.setdefault(target, (*routes.get(step.node, ()), (step.node, target)))
    for step in turn.steps:
        route = routes.get(step.node, ())
        passed = {step.node, *(source for source, _ in route)}
        for edge in step.candidates:
            if edge.target in used and edge.target not in (*passed, *step.chosen):
                yield (*route, (step.node, edge.target))


def _rank_merit(merit: EdgeCredit) -> tuple[bool, float, int]:
    """Return a sort key: use before blame before no judgement; of equal credit the nearest."""
    credit, hops = merit
    return credit > 0, abs(credit), -hops


_HABITUAL, _REFLEX = Tier.HABITUAL.value, Tier.REFLEX.value
_MAX_STEP = 2.0  # width of the range of weights


class Action(NamedTuple):
    """An edge, or STOP without a target, with its score r + w."""

    target: str | None
    kind: str
    score: float


class DrawnAction(NamedTuple):
    """An action drawn at a node, the other actions left, and its gain γ^ℓ (z_ℓ - b).

    ``is_offered``: whether the walk could have taken the action.
    """

    node: str
    drawn: Action
    rivals: tuple[Action, ...]
    gain: float
    temperature: float
    is_offered: bool


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

    A positive credit never lowers an edge that led to it, a negative one never raises it. Decisions
    that led to no document of known credit change nothing. The changes of every decision sum to 0.
    Weights are those that decided, after damping.

    Args:
        baseline: b, the usual credit, in [-1, 1].
        stop: Score of STOP before anything was learned (``PolicySettings.stop_score``).
        share: Factor on every change, in (0, 1]; below 1 if the credit of documents is inferred.

    Returns:
        One change per edge that changes, in the order of the decisions; at most 2 per draw.
    """
    rate = settings.learning_rate * share * credit.weight
    totals: defaultdict[tuple[str, str | None, str], float] = defaultdict(float)
    for draw in _list_draws(turn, credit, baseline, settings, stop):
        for action, delta in apply_gradient(draw, rate):
            if action.target is not None or draw.is_offered:
                totals[draw.node, action.target, action.kind] += delta
    return [LearnedDelta(*edge, delta) for edge, delta in totals.items() if delta]


def score_function(scores: Sequence[float], temperature: float) -> Floats:
    """Return τ ∇ log π of the first action: e_a - π, shape ``[n]``, in [-1, 1], summing to 0.

    The score function of a softmax policy (Sutton & Barto 2018, §13.3). It vanishes as π(a)
    approaches 1. The scores are r + w of every action left, the drawn one first.
    """
    values = np.asarray(scores, dtype=np.float64)
    with np.errstate(over="ignore"):  # a score that underflows has probability 0
        mass = np.exp((values - values.max()) / temperature)
    score: Floats = -mass / mass.sum()
    score[0] = -score[1:].sum()  # 1 - π is inexact as π approaches 1
    return score


def apply_gradient(draw: DrawnAction, rate: float) -> Iterator[tuple[Action, float]]:
    """Yield ``(action, change of its weight)`` for a draw and the other actions that were left.

    ``rate`` is η times the weight of the credit.
    """
    actions = (draw.drawn, *draw.rivals)
    score = score_function([action.score for action in actions], draw.temperature)
    step = max(-_MAX_STEP, min(_MAX_STEP, rate * draw.gain / draw.temperature))
    yield from zip(actions, (step * score).tolist(), strict=True)


def _list_draws(
    turn: Turn, credit: Credit, baseline: float, settings: LearningSettings, stop: float
) -> Iterator[DrawnAction]:
    """Yield the draws of a turn of which the credit is known.

    ``baseline`` is the usual credit, in [-1, 1]; ``stop`` is the score of STOP before learning.
    """
    known = get_known_credit(turn, credit)
    if credit.outcome < 0:  # which blames what is irrelevant like what was used
        known |= dict.fromkeys(credit.irrelevant, credit.outcome)
    others = [*list_other_routes(turn, credit)]
    decided = {(s.node, target) for s in turn.steps for target in (*s.chosen, *s.reflexes)}
    decided.update(route[-1] for route in others)
    routes = [
        tuple((edge.source, edge.target) for edge in item.path)
        for item in turn.returned
        if item.node in known and item.path
    ]
    credit_by_move = assign_edge_credit([*routes, *others], known, decided)
    # What is named is compared with what is not; outcomes only with each other.
    usual = 0.0 if credit.documents else baseline
    gains = {
        move: settings.discount**hops * advantage(value, usual)
        for move, (value, hops) in credit_by_move.items()
    }
    led = {target for (_, target), (value, _) in credit_by_move.items() if value}
    passed = {n for n, z in known.items() if not z} - led - credit.inferred
    for step in turn.steps:
        # A node visited twice decides twice; the path comes from the first visit.
        actions = {
            c.target: Action(c.target, c.kind, c.relevance + c.weight)
            for c in step.candidates
            if c.tier == _HABITUAL
            or (c.tier == _REFLEX and gains.get((step.node, c.target), 0) < 0)
        }
        gain_by_target = {target: gains.pop((step.node, target), 0.0) for target in actions}
        yield from _list_step_draws(step, actions, gain_by_target, passed, stop)


def _list_step_draws(
    step: WalkStep,
    actions: Mapping[str, Action],
    gain_by_target: Mapping[str, float],
    passed: Container[str],
    stop: float,
) -> Iterator[DrawnAction]:
    # A habitual edge without probability led to a node that was closed to the walk.
    open_to = {c.target for c in step.candidates if c.probability > 0}.union(step.chosen)
    rivals = tuple(a for target, a in actions.items() if target in passed and target in open_to)
    stop_action = Action(None, EdgeKind.STOP.label, stop + step.stop_weight)
    for target, gain in gain_by_target.items():
        if gain:
            others, offered = (*rivals, stop_action), target in open_to
            yield DrawnAction(step.node, actions[target], others, gain, step.temperature, offered)
    best = max((gain_by_target.get(target, 0.0) for target in step.chosen), default=0.0)
    # STOP leads to no document, so it cannot be blamed; in a success it shares the credit.
    if step.stopped and best > 0:
        yield DrawnAction(step.node, stop_action, rivals, best, step.temperature, is_offered=True)
