"""Claims that hold for every router."""

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from itertools import product

import numpy as np
import pytest

from crabpath_retrievers.core.records import EdgeKind, Node, NodeHead, Tier, WalkEdge
from crabpath_retrievers.routing import (
    Router,
    RouterChoice,
    RoutingRequest,
    RoutingResult,
    require_valid,
)

FRONTIERS: tuple[tuple[tuple[float, ...], ...], ...] = (
    ((0.7, 0.55, 0.5), (0.65, 0.6), (0.4, 0.5, 0.6)),
    ((0.6,),),
    ((-2.0, 2.0), (0.0, 0.0, 0.0)),
    (tuple(np.linspace(-1.0, 1.0, 40).tolist()),),
)
"""Scores r + w of the edges of each node: unclear ones, a single one, extremes, and many."""


def make_request(frontier: Sequence[Sequence[float]], budget: int = 2) -> RoutingRequest:
    """Make a request for the nodes of a frontier, given by the scores of their edges."""
    firsts = np.cumsum([1, *[len(scores) for scores in frontier]]).tolist()
    choices = [_make_choice(s, first) for s, first in zip(frontier, firsts, strict=False)]
    return RoutingRequest("Where is the harbour?", tuple(choices), budget, read=_read_nodes)


def _make_choice(scores: Sequence[float], first: int) -> RouterChoice:
    """Make the choice between edges to nodes ``first``, ``first + 1``, …; r and w are equal."""
    half = np.array(scores) / 2
    edges = tuple(_make_edge(first + i, weight) for i, weight in enumerate(half.tolist()))
    return RouterChoice(f"n0-{first}", edges, half, half, 0.0)


def _make_edge(key: int, weight: float) -> WalkEdge:
    vector = np.zeros(2, dtype=np.float32)
    source, target = (NodeHead(k, f"n{k}", f"Title {k}", 0, vector) for k in (0, key))
    return WalkEdge(source, target, EdgeKind.LINK, weight, weight, Tier.HABITUAL, 0.5, 1)


def _read_nodes(ids: Sequence[str]) -> dict[str, Node]:
    return {node_id: Node(node_id, node_id, "source", f"Text {node_id}.") for node_id in ids}


def _route(router: Router, request: RoutingRequest) -> RoutingResult:
    """Ask a router, and require an answer that fits."""
    routed = router.route(request)
    require_valid(router, request, routed)
    return routed


async def _route_async(router: Router, request: RoutingRequest) -> RoutingResult:
    routed = await router.aroute(request)
    require_valid(router, request, routed)
    return routed


class RouterTests:
    """Conformance of a :class:`~crabpath_retrievers.routing.Router`.

    Subclass it, and override the fixture ``make_router``.
    """

    @pytest.fixture
    def make_router(self) -> Callable[[], Router]:
        """Function that makes a router, each time in the same state; to be overridden."""
        raise NotImplementedError

    def test_every_choice_gets_its_decision(self, make_router: Callable[[], Router]) -> None:
        """Decisions are in order, about their own edges, within the budget, with probabilities."""
        for frontier, budget in product(FRONTIERS, (1, 2, 6)):
            _route(make_router(), make_request(frontier, budget))

    def test_async_decides_as_sync(self, make_router: Callable[[], Router]) -> None:
        """Both methods follow equal edges by one channel, with equal probabilities and remarks."""
        for request in map(make_request, FRONTIERS):
            blocking = _route(make_router(), request)
            native = asyncio.run(_route_async(make_router(), request))
            for one, other in zip(blocking.decisions, native.decisions, strict=True):
                for name in ("followed", "stopped", "decided_by"):
                    same = getattr(one, name) == getattr(other, name)
                    assert same, f"aroute and route agree on {name}: {other}, {one}"
                near = one.probabilities == pytest.approx(other.probabilities)
                assert near, f"aroute and route agree on probabilities: {other}, {one}"
            for name in ("chosen", "dropped", "notes"):
                same = getattr(native, name) == getattr(blocking, name)
                assert same, f"aroute and route agree on {name}: {native}, {blocking}"

    def test_nothing_to_decide_is_no_decision(self, make_router: Callable[[], Router]) -> None:
        """A request without choices gets no decisions, and costs nothing."""
        request = make_request(())
        for routed in (
            _route(make_router(), request),
            asyncio.run(_route_async(make_router(), request)),
        ):
            assert routed.usage.calls == 0, "a request without choices asks no model"

    def test_it_speaks_of_nodes_that_it_was_offered(
        self, make_router: Callable[[], Router]
    ) -> None:
        """Chosen and rejected nodes are targets of the given edges, and no node is both."""
        request = make_request(FRONTIERS[0])
        routed = _route(make_router(), request)
        offered = {edge.target.key for choice in request.choices for edge in choice.edges}
        named = routed.chosen | routed.dropped
        assert named <= offered, "chosen and dropped are keys of targets of the edges"
        assert not routed.chosen & routed.dropped, "no node is both chosen and dropped"

    def test_its_usage_can_be_stored(self, make_router: Callable[[], Router]) -> None:
        """Usage consists of whole numbers of at least 0, and remarks of texts."""
        routed = _route(make_router(), make_request(FRONTIERS[0]))
        json.dumps([asdict(routed.usage), routed.notes], allow_nan=False)

    def test_a_router_decides_again_and_again(self, make_router: Callable[[], Router]) -> None:
        """One router serves all turns, whatever it decided before."""
        router = make_router()
        for request in map(make_request, FRONTIERS):
            _route(router, request)
