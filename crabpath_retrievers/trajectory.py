"""The record of one retrieval: every decision, its alternatives and its probabilities.

Acting writes these records; learning reads them (design: act, record, learn, maintain).
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, overload

from crabpath_retrievers.usage import Usage

Decider = Literal["reflex", "policy", "chat_model"]
Origin = Literal["seed", "walk"]


@dataclass(frozen=True, slots=True)
class Candidate:
    """One pointer offered at a node.

    Attributes:
        target: Id of the node it leads to.
        kind: Label of the edge kind.
        weight: Effective weight in [-1, 1], after decay and damping.
        relevance: Cosine of query and target, in [-1, 1].
        probability: π(target | node) over the habitual pointers and STOP, in [0, 1];
            1 for a reflex, 0 for a pointer that was not offered (dormant or inhibitory).
        tier: Value of :class:`~crabpath_retrievers.graph.Tier`.
    """

    target: str
    kind: str
    weight: float
    relevance: float
    probability: float
    tier: str


@dataclass(frozen=True, slots=True)
class Step:
    """The decision taken at one node.

    Attributes:
        node: Id of the node whose pointers were considered.
        hop: Distance of ``node`` from its seed.
        candidates: What could be chosen.
        chosen: Targets followed by decision, in the order they were drawn.
        reflexes: Targets followed at once, without a decision.
        stopped: Whether STOP ended the choice (otherwise the budget or the choices did).
        stop_weight: Learned weight of STOP at this node.
        stop_probability: π(STOP | node).
        temperature: τ of the policy.
        decided_by: Who chose.
    """

    node: str
    hop: int
    candidates: tuple[Candidate, ...]
    chosen: tuple[str, ...]
    reflexes: tuple[str, ...]
    stopped: bool
    stop_weight: float
    stop_probability: float
    temperature: float
    decided_by: Decider


class LateSteps(Sequence[Step]):
    """Steps that are described when somebody first reads them, not while an answer waits."""

    __slots__ = ("_described", "_taken")

    def __init__(self, taken: Iterable[Callable[[], Step]]) -> None:
        """Describe every decision of ``taken`` by calling it."""
        self._taken = tuple(taken)
        self._described: tuple[Step, ...] | None = None

    @property
    def all(self) -> tuple[Step, ...]:
        """The steps."""
        taken = self._taken  # first: another thread may clear it, but describes before it does
        if self._described is None:
            self._described = tuple(describe() for describe in taken)
            self._taken = ()
        return self._described

    @overload
    def __getitem__(self, index: int) -> Step: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Step]: ...
    def __getitem__(self, index: int | slice) -> Step | Sequence[Step]:
        """One step, or several."""
        return self.all[index]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.all)

    def __eq__(self, other: object) -> bool:
        """Whether the steps are the same, late or not."""
        return isinstance(other, Sequence) and self.all == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """An entry node with the scores that made it one."""

    node: str
    score: float
    similarity: float
    lexical: float
    name: float
    hinted: bool = False


@dataclass(frozen=True, slots=True)
class PathEdge:
    """One hop of the route to a document."""

    source: str
    target: str
    kind: str
    weight: float
    tier: str
    probability: float


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop of a walk, as it is told while it happens.

    Attributes:
        number: 1 for the first.
        frontier: Ids of the nodes whose pointers were considered.
        followed: Pointers that were followed.
        decided_by: The chat model, if it decided any of it; else the policy; else ``reflex``.
    """

    number: int
    frontier: tuple[str, ...]
    followed: tuple[PathEdge, ...]
    decided_by: Decider


@dataclass(frozen=True, slots=True)
class Returned:
    """A document of the answer, in rank order.

    Attributes:
        probability: Ranker's probability of relevance, in [0, 1].
        origin: ``seed`` when search found it, ``walk`` when only a pointer led to it.
        path: Route by which the walk reached it from a seed; empty for a search hit.
        support: Strongest pointer to it from a visited node, followed or not; None without one.
        features: Ranker inputs by name; their weighted sum is the log-odds.
        propensity: How likely a draw of the ranker's weights was to return it, in [0, 1], given
            what the walk found; None when nothing was drawn.
    """

    node: str
    probability: float
    origin: Origin
    path: tuple[PathEdge, ...]
    features: dict[str, float]
    support: PathEdge | None = None
    propensity: float | None = None


@dataclass(frozen=True, slots=True)
class Turn:
    """Everything that one retrieval did (outputs of document 001 §2.10).

    Turns of one namespace that run at once all expect the same ``clock``; the stored record has
    the number that each one got. ``routing`` says what a router had to say: why a chat model chose
    as it did, or why it could not. ``session`` is the conversation that asked, ``arm`` the arm of a
    trial that it belongs to, as ``trial:arm``.
    """

    id: str
    namespace: str
    clock: int
    created: float
    query: str
    seeds: tuple[SeedRecord, ...]
    steps: Sequence[Step]
    visited: tuple[str, ...]
    returned: tuple[Returned, ...]
    guardrails: tuple[str, ...]
    novelty: dict[str, float | bool]
    explored: bool = False
    run_id: str | None = None
    llm_calls: int = 0
    llm_cached_calls: int = 0
    llm_failures: int = 0
    llm_input_tokens: int = 0
    llm_output_tokens: int = 0
    llm_tokens: int = 0
    cost_usd: float = 0.0
    routing: tuple[str, ...] = ()
    latency_ms: dict[str, float] = field(default_factory=dict)
    task_type: str | None = None
    session: str | None = None
    arm: str | None = None

    @property
    def usage(self) -> Usage:
        """What language models were used for it."""
        return Usage(
            self.llm_calls,
            self.llm_cached_calls,
            self.llm_failures,
            self.llm_input_tokens,
            self.llm_output_tokens,
            self.cost_usd,
        )

    @property
    def follow_log(self) -> tuple[dict[str, Any], ...]:
        """Every pointer followed: source, target, weight and decision channel."""
        log = []
        for step in self.steps:
            weights = {c.target: c.weight for c in step.candidates if c.tier != "inhibitory"}
            for channel, targets in (("reflex", step.reflexes), (step.decided_by, step.chosen)):
                log += [
                    {
                        "source": step.node,
                        "target": target,
                        "weight": weights[target],
                        "decision_channel": channel,
                    }
                    for target in targets
                ]
        return tuple(log)

    @property
    def trace(self) -> tuple[dict[str, Any], ...]:
        """Visited nodes with their depth and energy.

        Energy is the entry score of a seed; every pointer multiplies it by its weight.
        """
        reached = {seed.node: (0, seed.score) for seed in self.seeds}
        for step in self.steps:
            weights = {c.target: c.weight for c in step.candidates if c.tier != "inhibitory"}
            for target in step.reflexes + step.chosen:
                energy = reached[step.node][1] * weights[target]
                reached.setdefault(target, (step.hop + 1, energy))
        return tuple(
            {"node_id": node, "depth": reached[node][0], "energy": reached[node][1]}
            for node in self.visited
        )

    def to_dict(self) -> dict[str, Any]:
        """The record as plain, JSON-safe data."""
        return asdict(self.described())

    def described(self) -> "Turn":
        """The same turn with its steps as plain data, for writers that know no other."""
        return replace(self, steps=tuple(self.steps))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Turn":
        """The inverse of :meth:`to_dict`."""
        return cls(
            **{
                **data,
                "seeds": tuple(SeedRecord(**seed) for seed in data["seeds"]),
                "steps": tuple(_step(step) for step in data["steps"]),
                "visited": tuple(data["visited"]),
                "returned": tuple(_returned(item) for item in data["returned"]),
                "guardrails": tuple(data["guardrails"]),
                "routing": tuple(data["routing"]),
            }
        )


def _step(data: dict[str, Any]) -> Step:
    candidates = tuple(Candidate(**candidate) for candidate in data["candidates"])
    chosen, reflexes = tuple(data["chosen"]), tuple(data["reflexes"])
    return Step(**{**data, "candidates": candidates, "chosen": chosen, "reflexes": reflexes})


def _returned(data: dict[str, Any]) -> Returned:
    path = tuple(PathEdge(**edge) for edge in data["path"])
    support = data["support"] and PathEdge(**data["support"])
    return Returned(**{**data, "path": path, "support": support})
