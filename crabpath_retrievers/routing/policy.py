"""The softmax policy over pointers and STOP, and the router that follows it.

π(a | i) = exp((r_ia + w_ia)/τ) / Σ_{j ∈ N(i) ∪ {STOP}} exp((r_ij + w_ij)/τ)   (document 000 §3.1)

Several pointers may be followed from one node: sampling without replacement until STOP
(Plackett–Luce), which is the formula above when one is chosen.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from crabpath_retrievers.config import PolicySettings
from crabpath_retrievers.graph import Node, NodeHead, Pointer
from crabpath_retrievers.routing.experience import Tried
from crabpath_retrievers.trajectory import Decider
from crabpath_retrievers.usage import Usage

Floats = NDArray[np.float64]


def _nothing(_ids: Sequence[str]) -> Mapping[str, Node]:
    return {}


@dataclass(frozen=True, slots=True)
class Choice:
    """The habitual pointers of one node.

    Attributes:
        source: Id of the node.
        pointers: What may be followed, ``n`` of them, at least one.
        relevance: r, cosine of query and target, shape ``[n]``, in [-1, 1].
        weights: w, effective and damped, shape ``[n]``, in [-1, 1].
        stop_weight: Learned weight of STOP at this node.
        inhibited: Inhibitory pointers of this node.
    """

    source: str
    pointers: tuple[Pointer, ...]
    relevance: Floats
    weights: Floats
    stop_weight: float
    inhibited: tuple[Pointer, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingRequest:
    """Everything that has to be decided in one hop.

    Attributes:
        query: What the user asked.
        choices: One per node of the frontier that has habitual pointers.
        budget: Most pointers to follow from one node.
        callbacks: Callbacks of the host framework, for routers that run models.
        calls: Calls of a model that this turn has made already.
        read: Reads nodes by id, as far as the namespace may see them; it blocks.
        policy: Of the memory, for routers that leave part of the decision to it.
        entries: Nodes where the walk begins, with their energy, best first; at its first hop.
        recalled: How strongly a success of the same question speaks for what it used, in [0, 1].
        tried: Which kinds of steps helped before where the query lies.
    """

    query: str
    choices: tuple[Choice, ...] = ()
    budget: int = 6
    callbacks: Any = None
    calls: int = 0
    read: Callable[[Sequence[str]], Mapping[str, Node]] = _nothing
    policy: PolicySettings = field(default_factory=PolicySettings)
    recalled: float = 0.0
    entries: tuple[tuple[NodeHead, float], ...] = ()
    tried: Callable[[], Sequence[Tried]] = tuple


@dataclass(frozen=True, slots=True)
class Decision:
    """What to follow from one node.

    Attributes:
        followed: Indices into the pointers of the choice, in order of preference.
        stopped: Whether STOP ended the choice, rather than the budget or a lack of pointers.
        probabilities: π of each pointer and, last, of STOP; shape ``[n + 1]``, sums to 1.
        decided_by: Who chose.
    """

    followed: tuple[int, ...]
    stopped: bool
    probabilities: Floats
    decided_by: Decider


class Routed(NamedTuple):
    """What a router decided.

    Attributes:
        decisions: One per choice of the request, in order.
        chosen: Keys of nodes that a model picked; they rank higher in this turn.
        dropped: Keys of nodes that it rejects; they rank lower.
        usage: What it cost.
        notes: What there is to say about it, for the record of the turn.
    """

    decisions: Sequence[Decision]
    chosen: frozenset[int] = frozenset()
    dropped: frozenset[int] = frozenset()
    usage: Usage = Usage()
    notes: tuple[str, ...] = ()


class Router(Protocol):
    """Decides the ambiguous pointers of a frontier."""

    def route(self, request: RoutingRequest) -> Routed:
        """One decision per choice of the request, in order."""

    async def aroute(self, request: RoutingRequest) -> Routed:
        """As :meth:`route`, without blocking the event loop."""


def action_probabilities(logits: Floats, sizes: NDArray[np.intp]) -> Floats:
    """Softmax of each run of ``logits``, shape ``[Σ sizes]``; stable for large values.

    Args:
        logits: Of all choices, one choice after the other.
        sizes: Number of actions of each choice, at least 1.
    """
    starts = sizes.cumsum() - sizes
    shifted = np.exp(logits - np.maximum.reduceat(logits, starts).repeat(sizes))
    probabilities: Floats = shifted / np.add.reduceat(shifted, starts).repeat(sizes)
    return probabilities


class SoftmaxRouter:
    """Follows what beats STOP, or samples when exploring. Needs no model."""

    def __init__(self, settings: PolicySettings, rng: np.random.Generator | None = None) -> None:
        """Create a router.

        Args:
            settings: Temperature and the score of STOP.
            rng: Given one, choices are sampled (Gumbel top-k: Kool et al. 2019, §2.3);
                without, the router is greedy.
        """
        self._settings = settings
        self._rng = rng

    def route(self, request: RoutingRequest) -> Routed:
        """One decision per choice of the request, in order."""
        choices, budget = request.choices, request.budget
        if not choices:
            return Routed(())
        sizes = np.array([len(choice.pointers) + 1 for choice in choices])
        logits = self._logits(choices)
        sampled = logits if self._rng is None else logits + self._rng.gumbel(size=logits.size)
        keys, probabilities = sampled.tolist(), action_probabilities(logits, sizes)
        ends = sizes.cumsum().tolist()
        runs = [slice(start, end) for start, end in pairwise([0, *ends])]
        return Routed([_decision(keys[run], probabilities[run], budget) for run in runs])

    def _logits(self, choices: Sequence[Choice]) -> Floats:
        """Scores of the pointers and, last, of STOP, one choice after the other."""
        parts: list[Floats] = []
        for choice in choices:
            stop = self._settings.stop_score + choice.stop_weight
            parts += [choice.relevance + choice.weights, np.array([stop])]
        return np.concatenate(parts) / self._settings.temperature

    async def aroute(self, request: RoutingRequest) -> Routed:
        """As :meth:`route`; it is a small computation and blocks nobody."""
        return self.route(request)


def _decision(keys: Sequence[float], probabilities: Floats, budget: int) -> Decision:
    """Follow the pointers whose key is at least that of STOP, which is the last one."""
    *pointers, threshold = keys
    beating = sorted(
        [index for index, key in enumerate(pointers) if key >= threshold],
        key=lambda index: -pointers[index],
    )
    return Decision(
        followed=tuple(beating[:budget]),
        stopped=len(beating) < min(budget, len(pointers)),
        probabilities=probabilities,
        decided_by="policy",
    )
