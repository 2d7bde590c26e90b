"""The softmax policy over edges and STOP, and the router that follows it.

π(a | i) = exp((r_ia + w_ia)/τ) / Σ_{j ∈ N(i) ∪ {STOP}} exp((r_ij + w_ij)/τ)

This is softmax action selection (Sutton & Barto 2018, §13.1) with relevance plus learned weight as
preference [CrabPath]. Several edges may be followed from one node: sampling without replacement
until STOP (Plackett–Luce), which equals the formula when one edge is chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any, NamedTuple, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.core.query import require_result
from crabpath_retrievers.core.records import Decider, ModelUsage, Node, NodeHead, WalkEdge
from crabpath_retrievers.core.text import Floats

_ROUNDING = 1e-3  # of probabilities that sum to 1


class ActionStatistics(NamedTuple):
    """Success of an action in the region of a query.

    Attributes:
        action: Kind of an edge, ``search``, or a label of the user.
        success: P(success), in (0, 1).
        trials: Number of times that the action was taken.
    """

    action: str
    success: float
    trials: float


@dataclass(frozen=True, slots=True)
class RouterChoice:
    """The habitual edges of one node, for a router to decide.

    Attributes:
        source: Id of the node.
        edges: Edges that may be followed, ``n`` of them, at least one.
        relevance: r, cosine of query and target, shape ``[n]``, in [-1, 1].
        weights: w, effective weight after damping, shape ``[n]``, in [-1, 1].
        stop_weight: Learned weight of STOP at this node.
        inhibited: Inhibitory edges of this node.
    """

    source: str
    edges: tuple[WalkEdge, ...]
    relevance: Floats
    weights: Floats
    stop_weight: float
    inhibited: tuple[WalkEdge, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """The decisions of one hop.

    Attributes:
        query: Text of the query.
        choices: One per node of the frontier that has habitual edges.
        budget: Most edges to follow from one node.
        callbacks: Callbacks of the host framework, for routers that run models.
        calls: Model calls that this turn has made so far.
        read: Reads nodes by id, as far as the namespace may see them; it blocks.
        policy: Policy of the memory, for routers that leave part of the decision to it.
        recalled: Strongest evidence for a document from turns of the same query, in [0, 1].
        entries: At the first hop, the entry nodes with their energy, best first; else empty.
        tried: Success of actions in the query's region; it may block.
    """

    query: str
    choices: tuple[RouterChoice, ...] = ()
    budget: int = 6
    callbacks: Any = None
    calls: int = 0
    read: Callable[[Sequence[str]], Mapping[str, Node]] = lambda _ids: {}
    policy: PolicySettings = field(default_factory=PolicySettings)
    recalled: float = 0.0
    entries: tuple[tuple[NodeHead, float], ...] = ()
    tried: Callable[[], Sequence[ActionStatistics]] = tuple


@dataclass(frozen=True, slots=True)
class Decision:
    """The edges to follow from one node.

    Attributes:
        followed: Indices into the edges of the choice, in order of preference.
        stopped: Whether STOP ended the choice, rather than the budget or a lack of edges.
        probabilities: π of each edge and, last, of STOP; shape ``[n + 1]``, sums to 1.
        decided_by: Decision channel.
    """

    followed: tuple[int, ...]
    stopped: bool
    probabilities: Floats
    decided_by: Decider


class RoutingResult(NamedTuple):
    """The result of a router.

    Attributes:
        decisions: One per choice of the request, in order.
        chosen: Keys of nodes that a model chose; they rank higher in this turn.
        dropped: Keys of nodes that a model rejected; they rank lower in this turn.
        usage: Calls, tokens and cost.
        notes: Remarks for the turn record.
    """

    decisions: Sequence[Decision]
    chosen: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    usage: ModelUsage = ModelUsage()
    notes: tuple[str, ...] = ()


class Router(Protocol):
    """Decides which habitual edges of a frontier to follow."""

    def route(self, request: RoutingRequest) -> RoutingResult:
        """Return one decision per choice of the request, in order."""

    async def aroute(self, request: RoutingRequest) -> RoutingResult:
        """As :meth:`route`, without blocking the event loop."""


def require_valid(router: Router, request: RoutingRequest, routed: RoutingResult) -> None:
    """Refuse a router's result that does not answer its request."""
    require = partial(require_result, router)
    require("RoutingResult([...])", routed, fits=isinstance(routed, RoutingResult))
    decisions, choices, usage = routed.decisions, request.choices, routed.usage
    fits = isinstance(decisions, (list, tuple)) and all(isinstance(d, Decision) for d in decisions)
    fits = fits and len(decisions) == len(choices)
    require(f"one Decision for each of {len(choices)} choices, in order", decisions, fits=fits)
    for choice, decision in zip(choices, decisions, strict=True):
        _require_valid_decision(require, decision, len(choice.edges), request.budget)
    numbers = [getattr(usage, name, None) for name in ModelUsage.__slots__]
    fits = all(isinstance(number, (int, float)) and 0 <= number < np.inf for number in numbers)
    require("ModelUsage of finite numbers from 0 on as usage", usage, fits=fits)
    fits = isinstance(routed.notes, tuple) and all(isinstance(note, str) for note in routed.notes)
    require("notes that are a tuple of texts", routed.notes, fits=fits)
    keys = routed.chosen, routed.dropped
    fits = all(isinstance(found, frozenset) for found in keys)
    require("chosen and dropped nodes as frozensets of keys", keys, fits=fits)


def _require_valid_decision(
    require: Callable[..., None], decision: Decision, count: int, budget: int
) -> None:
    """Refuse a decision between ``count`` edges that breaks what :class:`Decision` says."""
    followed, chances = decision.followed, decision.probabilities
    fits = isinstance(followed, (list, tuple))
    fits = fits and all(isinstance(index, (int, np.integer)) for index in followed)
    fits = fits and len({*followed} & {*range(count)}) == len(followed)
    require(f"followed with distinct indices below {count}", followed, fits=fits)
    fits = len(followed) <= budget
    require(f"at most {budget} edges to follow, the budget", followed, fits=fits)
    fits = isinstance(chances, np.ndarray) and chances.shape == (count + 1,)
    fits = fits and chances.dtype.kind == "f" and chances.min() >= 0.0
    what = f"{count + 1} probabilities in an array, of each edge and of STOP, that sum to 1"
    require(what, chances, fits=fits and abs(chances.sum() - 1.0) < _ROUNDING)
    fits = isinstance(decision.stopped, bool) and not (decision.stopped and len(followed) == budget)
    require("stopped as a bool, False where the budget ends a choice", decision.stopped, fits=fits)
    deciders = get_args(Decider)
    fits = decision.decided_by in deciders
    require(f"decided_by as one of {deciders}", decision.decided_by, fits=fits)


def action_probabilities(logits: Floats, sizes: NDArray[np.intp]) -> Floats:
    """Compute the softmax of each run of ``logits``, shape ``[Σ sizes]``; stable for large values.

    Args:
        sizes: Number of actions of each choice, at least 1.
    """
    starts = sizes.cumsum() - sizes
    shifted = np.exp(logits - np.maximum.reduceat(logits, starts).repeat(sizes))
    probabilities: Floats = shifted / np.add.reduceat(shifted, starts).repeat(sizes)
    return probabilities


class SoftmaxRouter:
    """Follows the edges with a higher score than STOP, or samples them. Needs no model."""

    def __init__(self, settings: PolicySettings, rng: np.random.Generator | None = None) -> None:
        """Keep the settings.

        Args:
            settings: Temperature and the score of STOP.
            rng: Samples the choices (Gumbel top-k: Kool et al. 2019, §2.3); None makes the router
                greedy.
        """
        self._settings = settings
        self._rng = rng

    def route(self, request: RoutingRequest) -> RoutingResult:
        """Return one decision per choice of the request, in order."""
        choices, budget = request.choices, request.budget
        if not choices:
            return RoutingResult(())
        sizes = np.array([len(choice.edges) + 1 for choice in choices])
        logits = self._logits(choices)
        scores = logits if self._rng is None else logits + self._rng.gumbel(size=logits.size)
        keys, probabilities = scores.tolist(), action_probabilities(logits, sizes)
        ends = sizes.cumsum().tolist()
        runs = [slice(start, end) for start, end in pairwise([0, *ends])]
        return RoutingResult([_decide(keys[run], probabilities[run], budget) for run in runs])

    def _logits(self, choices: Sequence[RouterChoice]) -> Floats:
        """Compute logits of the edges and, last, of STOP, one choice after the other."""
        parts: list[Floats] = []
        for choice in choices:
            stop = self._settings.stop_score + choice.stop_weight
            parts += [choice.relevance + choice.weights, np.array([stop])]
        return np.concatenate(parts) / self._settings.temperature

    async def aroute(self, request: RoutingRequest) -> RoutingResult:
        """As :meth:`route`, which is short enough not to block the event loop."""
        return self.route(request)


def _decide(keys: Sequence[float], probabilities: Floats, budget: int) -> Decision:
    """Follow the edges whose key is at least that of STOP, the last of ``keys``.

    At most ``budget`` edges are followed, those with the highest keys; ``probabilities`` are
    recorded.
    """
    *edges, threshold = keys
    above = sorted(
        [index for index, key in enumerate(edges) if key >= threshold],
        key=lambda index: -edges[index],
    )
    return Decision(
        followed=tuple(above[:budget]),
        stopped=len(above) < min(budget, len(edges)),
        probabilities=probabilities,
        decided_by="policy",
    )
