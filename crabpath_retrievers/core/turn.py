"""The record of one retrieval: every decision, its alternatives and its probabilities.

Retrieval writes these records; learning reads them.

Usage of language models: calls, tokens and cost.
"""

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, overload
from uuid import UUID

SEARCH_ACTION = "search"
"""Action type of a returned document that no edge supports."""


def make_turn_id() -> str:
    """A new id of 32 hexadecimal digits that begins with its time: UUID version 7 (RFC 9562)."""
    random = bytearray(os.urandom(10))
    random[0] = 0x70 | random[0] & 0x0F
    random[2] = 0x80 | random[2] & 0x3F
    return f"{time.time_ns() // 1_000_000:012x}{random.hex()}"


def is_recent_id(name: str, seconds: float) -> bool:
    """Whether an id begins with a time that is at most so many seconds from now.

    Ids of :func:`make_turn_id` and of LangChain's runs begin with one; others are not recent.
    """
    try:
        made = int(name[:13].replace("-", "", 1)[:12], 16) / 1000
    except ValueError:
        return False
    return abs(time.time() - made) <= seconds


def may_name_turn(name: str) -> bool:
    """Whether an id has the form of those of turns and of hosts' runs, a UUID."""
    try:
        UUID(name)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True)
class ModelUsage:
    """Usage of language models in a turn.

    Attributes:
        calls: Requests to a model, including failed ones.
        cached_calls: Further requests that a cache of the host answered.
        failures: Requests without a usable answer.
        input_tokens, output_tokens: As counted by the model; estimated if it does not count.
        cost_usd: Cost by the prices that the user set; 0 without prices.
    """

    calls: int = 0
    cached_calls: int = 0
    failures: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    @property
    def tokens(self) -> int:
        """Input and output tokens."""
        return self.input_tokens + self.output_tokens

    def __add__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the sum of both."""
        return ModelUsage(*(getattr(self, name) + getattr(other, name) for name in self.__slots__))

    def __sub__(self, other: "ModelUsage") -> "ModelUsage":
        """Return the usage since ``other``."""
        return ModelUsage(*(getattr(self, name) - getattr(other, name) for name in self.__slots__))


Decider = Literal["reflex", "policy", "chat_model"]
Origin = Literal["seed", "walk"]


@dataclass(frozen=True, slots=True)
class ConsideredEdge:
    """One edge that was considered at a node.

    Attributes:
        target: Id of the target node.
        kind: Label of the edge kind.
        weight: Effective weight in [-1, 1], after decay and damping.
        relevance: Cosine of query and target, in [-1, 1].
        probability: π(target | node) over the habitual edges and STOP, in [0, 1];
            1 for a reflex, 0 for an edge that was not to be decided (dormant or inhibitory).
        tier: Value of :class:`~crabpath_retrievers.core.graph.Tier`.
    """

    target: str
    kind: str
    weight: float
    relevance: float
    probability: float
    tier: str


@dataclass(frozen=True, slots=True)
class WalkStep:
    """The decision taken at one node.

    Attributes:
        node: Id of the node.
        hop: Distance of the node from its seed.
        candidates: Edges that were considered.
        chosen: Targets followed by decision, in the order in which they were drawn.
        reflexes: Targets followed without a decision.
        stopped: Whether STOP ended the choice, rather than the budget or a lack of edges.
        stop_weight: Learned weight of STOP at this node.
        stop_probability: π(STOP | node), in [0, 1].
        temperature: τ of the policy.
        decided_by: Decision channel.
    """

    node: str
    hop: int
    candidates: tuple[ConsideredEdge, ...]
    chosen: tuple[str, ...]
    reflexes: tuple[str, ...]
    stopped: bool
    stop_weight: float
    stop_probability: float
    temperature: float
    decided_by: Decider


class LazySteps(Sequence[WalkStep]):
    """Steps that are built when they are first read, so that no answer waits for them."""

    __slots__ = ("_builders", "_steps")

    def __init__(self, builders: Iterable[Callable[[], WalkStep]]) -> None:
        """Call ``builders``, one per step, at first use."""
        self._builders = tuple(builders)
        self._steps: tuple[WalkStep, ...] | None = None

    @property
    def all(self) -> tuple[WalkStep, ...]:
        """The steps."""
        builders = self._builders  # read first: another thread clears it after setting the steps
        if self._steps is None:
            self._steps = tuple(build() for build in builders)
            self._builders = ()
        return self._steps

    @overload
    def __getitem__(self, index: int) -> WalkStep: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[WalkStep]: ...
    def __getitem__(self, index: int | slice) -> WalkStep | Sequence[WalkStep]:
        """One step, or a slice of them."""
        return self.all[index]

    def __len__(self) -> int:
        """Number of steps."""
        return len(self.all)

    def __eq__(self, other: object) -> bool:
        """Whether the steps are equal, built already or not."""
        return isinstance(other, Sequence) and self.all == tuple(other)

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class SeedRecord:
    """An entry node of the walk with its scores.

    Attributes:
        node: Id of the node.
        score: Entry score, in [0, 1].
        similarity: Cosine of query and node, in [-1, 1].
        lexical: BM25 score relative to the best match, in [0, 1].
        name: Rarity of the node's name when the query contains it, else 0.
        hinted: Whether the caller suggested it.
    """

    node: str
    score: float
    similarity: float
    lexical: float
    name: float
    hinted: bool = False


@dataclass(frozen=True, slots=True)
class PathEdge:
    """One edge of the route to a document.

    Attributes:
        source, target: Ids of the nodes.
        kind: Label of the edge kind.
        weight: Effective weight, in [-1, 1].
        tier: Value of :class:`~crabpath_retrievers.core.graph.Tier`.
        probability: Probability of following it, in [0, 1].
    """

    source: str
    target: str
    kind: str
    weight: float
    tier: str
    probability: float


@dataclass(frozen=True, slots=True)
class Hop:
    """One hop of a walk, passed to ``on_hop`` while the walk goes on.

    Attributes:
        number: 1 for the first hop.
        frontier: Ids of the nodes whose edges were considered.
        followed: Edges that were followed.
        decided_by: ``chat_model`` if it decided any of them, else ``policy``, else ``reflex``.
    """

    number: int
    frontier: tuple[str, ...]
    followed: tuple[PathEdge, ...]
    decided_by: Decider


@dataclass(frozen=True, slots=True)
class ReturnedDocument:
    """A document of the answer, in rank order.

    Attributes:
        probability: Ranker's probability of relevance, in [0, 1]; a reranker changes only places.
        origin: ``seed`` when search found it, ``walk`` when only an edge led to it.
        path: Route by which the walk reached it from a seed; empty for a search hit.
        support: Strongest edge to it from a visited node, followed or not; None without one.
        features: Inputs of the ranker by name. The weighted sum of those that do not count past
            turns is the log-odds before past uses, see :meth:`Ranker.log_odds`.
        propensity: Probability that a draw returns it, in [0, 1], given the candidates: of the
            ranker's weights, or of the explored places; None without exploration, and where a
            budget of tokens chose or, for drawn weights, a reranker.
        log_odds: Those of the logistic model, before its calibration and past uses; None in records
            of older releases.
        trials: Past uses and passes that the ranker counted, at least 0.
        superseded_by: Id of the newer version of it that stands before it; None without one.
    """

    node: str
    probability: float
    origin: Origin
    path: tuple[PathEdge, ...]
    features: dict[str, float]
    support: PathEdge | None = None
    propensity: float | None = None
    log_odds: float | None = None
    trials: float = 0.0
    superseded_by: str | None = None


DRAFT_ARM = "lift:draft"
"""Arm of the turns that were answered by two rankings in turn."""


@dataclass(frozen=True, slots=True)
class Turn:
    """The record of one retrieval.

    Concurrent turns of one namespace start with the same ``clock``; the stored record has the
    number that was assigned to each. ``routing`` holds remarks of the router: why a chat model
    chose as it did, or why it could not. ``session`` is the conversation, and ``arm`` the arm of
    its trial as ``trial:arm``. ``repeats`` has the returned document with the same wording, by the
    id of each document that was left out for it. ``frozen`` has the ids of the documents that the
    ranking before any lesson would have returned, best first; None where nothing was learned yet,
    and where a reranker or a budget of tokens chose. ``learned`` has those of the ranking by what
    was learned where not that alone answered; else None. ``teams`` says of the documents of an
    answer that both drafted which of them each is from: ``learned`` or ``frozen``, or ``both``
    where both have it at the same place. In the turn of a shadow, ``returned`` has what
    the present retriever showed, as far as the memory has it, and ``shadow`` the ids of what the
    memory would have returned, best first; None in other turns. ``shown`` has the id of all that
    was shown, in order, by the name that the present retriever has for it; without one it is that
    name itself.
    """

    id: str
    namespace: str
    clock: int
    created: float
    query: str
    seeds: tuple[SeedRecord, ...]
    steps: Sequence[WalkStep]
    visited: tuple[str, ...]
    returned: tuple[ReturnedDocument, ...]
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
    repeats: dict[str, str] = field(default_factory=dict)
    frozen: tuple[str, ...] | None = None
    learned: tuple[str, ...] | None = None
    teams: dict[str, str] = field(default_factory=dict)
    shadow: tuple[str, ...] | None = None
    shown: dict[str, str] = field(default_factory=dict)

    def find_shown(self, names: Iterable[str]) -> list[str]:
        """Names of documents, with ids of the memory in the place of the present retriever's."""
        return [self.shown.get(name, name) for name in names]

    @property
    def usage(self) -> ModelUsage:
        """Calls, tokens and cost of language models."""
        return ModelUsage(
            self.llm_calls,
            self.llm_cached_calls,
            self.llm_failures,
            self.llm_input_tokens,
            self.llm_output_tokens,
            self.cost_usd,
        )

    @property
    def follow_log(self) -> tuple[dict[str, Any], ...]:
        """Every edge followed: source, target, weight and decision channel."""
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

        Energy is the entry score of a seed; every edge multiplies it by its weight.
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
        return asdict(self.build_steps())

    def build_steps(self) -> "Turn":
        """Copy of the turn with its steps built, for serialisers."""
        return replace(self, steps=tuple(self.steps))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Turn":
        """The inverse of :meth:`to_dict`."""
        return cls(
            **{
                **data,
                "seeds": tuple(SeedRecord(**seed) for seed in data["seeds"]),
                "steps": tuple(_to_step(step) for step in data["steps"]),
                "visited": tuple(data["visited"]),
                "returned": parse_returned(data["returned"]),
                "guardrails": tuple(data["guardrails"]),
                "routing": tuple(data["routing"]),
                **{
                    name: None if data.get(name) is None else tuple(data[name])
                    for name in ("frozen", "learned", "shadow")
                },
            }
        )


def _to_step(data: dict[str, Any]) -> WalkStep:
    candidates = tuple(ConsideredEdge(**candidate) for candidate in data["candidates"])
    chosen, reflexes = tuple(data["chosen"]), tuple(data["reflexes"])
    return WalkStep(**{**data, "candidates": candidates, "chosen": chosen, "reflexes": reflexes})


def parse_returned(data: Iterable[dict[str, Any]]) -> tuple[ReturnedDocument, ...]:
    """Documents from their plain data, as in :meth:`Turn.to_dict`."""
    return tuple(_to_returned(item) for item in data)


def _to_returned(data: dict[str, Any]) -> ReturnedDocument:
    path = tuple(PathEdge(**edge) for edge in data["path"])
    support = data["support"] and PathEdge(**data["support"])
    return ReturnedDocument(**{**data, "path": path, "support": support})
