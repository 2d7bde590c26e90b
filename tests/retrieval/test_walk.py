"""The walk over graphs made by hand: tiers, budgets, damping and the record of every decision."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crabpath_retrievers import Decision, EdgeKind, RoutingRequest, RoutingResult, SoftmaxRouter
from crabpath_retrievers.config import PolicySettings, TierSettings, WalkSettings
from crabpath_retrievers.core.records import NodeHead, OutgoingEdge
from crabpath_retrievers.integration import run
from crabpath_retrievers.retrieval.walk import Walker

QUERY = np.array([1, 0], dtype=np.float32)
RELEVANT, IRRELEVANT = (1.0, 0.0), (0.0, 1.0)
# With weight .5 a relevant node (1.5) beats STOP (.75), another one (.5) does not.
POLICY = PolicySettings(temperature=0.2, stop_score=0.75)


@dataclass
class Graph:
    """A graph in memory: ``edges[source][target] = weight`` by small numbers."""

    edges: dict[int, dict[int, float]]
    relevant: frozenset[int] = frozenset()
    stops: dict[int, float] = field(default_factory=dict)
    mentions: dict[int, int] = field(default_factory=dict)
    kind: EdgeKind = EdgeKind.LINK
    reads: list[list[int]] = field(default_factory=list)

    def head(self, key: int) -> NodeHead:
        vector = RELEVANT if key in self.relevant else IRRELEVANT
        array = np.array(vector, dtype=np.float32)
        return NodeHead(key, f"n{key}", f"Node {key}", self.mentions.get(key, 0), array)

    def read(self, keys: Sequence[int]) -> tuple[list[OutgoingEdge], dict[int, float]]:
        """Pointers that leave the nodes, as a store reads them."""
        self.reads.append(list(keys))
        pointers = [
            OutgoingEdge(source, self.head(target), self.kind, weight, weight)
            for source in keys
            for target, weight in self.edges.get(source, {}).items()
        ]
        return pointers, self.stops

    def walker(self, router=None, read=None, on_hop=None, **budgets: float) -> Walker:
        return Walker(
            RoutingRequest("question"),
            QUERY,
            read_edges=read or self.read,
            router=router or SoftmaxRouter(POLICY),
            walk=WalkSettings(**budgets),
            tiers=TierSettings(),
            temperature=POLICY.temperature,
            on_hop=on_hop,
        )

    def walk(self, *entries: int, energy: float = 1.0, router=None, **budgets: float):
        return run(self.walker(router, **budgets).steps([(self.head(e), energy) for e in entries]))


class Scripted:
    """A router that follows the first pointer and keeps the requests."""

    def __init__(self):
        self.requests = []

    def route(self, request):
        self.requests.append(request)
        return RoutingResult([self._first(len(choice.edges)) for choice in request.choices])

    def _first(self, number):
        """The first of ``number`` pointers, all and STOP equally likely."""
        equal = np.full(number + 1, 1 / (number + 1))
        return Decision(followed=(0,), stopped=True, probabilities=equal, decided_by="chat_model")

    async def aroute(self, request):
        return self.route(request)


def visited(walk):
    return list(walk.visits)


def test_a_reflex_is_followed_at_once():
    """From weight .8 no router is asked; the step says so."""
    router = Scripted()
    walk = Graph({1: {2: 0.8}}).walk(1, router=router)
    assert (visited(walk), router.requests) == ([1, 2], [])
    (step,) = walk.steps
    assert (step.reflexes, step.chosen, step.decided_by) == (("n2",), (), "reflex")
    assert step.candidates[0].probability == 1.0
    assert step.stop_probability == 0.0


def test_a_habitual_pointer_is_decided_by_the_policy():
    """Of two equal weights the relevant node is followed, the other loses to STOP."""
    walk = Graph({1: {2: 0.5, 3: 0.5}}, relevant=frozenset({3})).walk(1)
    assert visited(walk) == [1, 3]
    (step,) = walk.steps
    assert (step.node, step.hop, step.chosen, step.decided_by) == ("n1", 0, ("n3",), "policy")
    assert step.stopped
    # exp of (1.5, .5, .75)/.2 over their sum: 3.75 and 5 below the best, e^-3.75 = .0235,
    # e^-5 = .0067; 1/1.0302 = .9706.
    found = {c.target: c.probability for c in step.candidates}
    assert found == pytest.approx({"n3": 0.9706, "n2": 0.0065}, abs=1e-4)
    assert step.stop_probability == pytest.approx(0.0228, abs=1e-4)


def test_the_record_holds_every_candidate_and_probabilities_sum_to_one():
    """Reflex, habitual and inhibitory pointers are recorded with weight, relevance and tier."""
    graph = Graph({1: {2: 0.9, 3: 0.5, 4: 0.4, 5: -0.3, 6: 0.1}}, relevant=frozenset({3}))
    (step,) = graph.walk(1, max_hops=1).steps
    assert {c.target: (c.weight, c.relevance, c.tier) for c in step.candidates} == {
        "n2": (0.9, 0.0, "reflex"),
        "n3": (0.5, 1.0, "habitual"),
        "n4": (0.4, 0.0, "habitual"),
        "n5": (-0.3, 0.0, "inhibitory"),
    }
    habitual = sum(c.probability for c in step.candidates if c.tier == "habitual")
    assert habitual + step.stop_probability == pytest.approx(1, abs=1e-4)
    assert step.temperature == POLICY.temperature


def test_of_parallel_pointers_the_strongest_decides():
    """Two reasons for one edge are one candidate."""
    graph = Graph({1: {2: 0.9}})
    weak = OutgoingEdge(1, graph.head(2), EdgeKind.SIBLING, 0.4, 0.4)
    walker = Graph({}).walker(read=lambda keys: ([weak, *graph.read(keys)[0]], {}), max_hops=1)
    (step,) = run(walker.steps([(graph.head(1), 1.0)])).steps
    assert [(c.kind, c.weight) for c in step.candidates] == [("link", 0.9)]


def test_a_name_that_many_mention_supports_each_of_them_less():
    """Evidence back from a node with 3 mentions is worth 1/√(1 + 3) = half."""
    graph = Graph({1: {2: 0.5}}, mentions={1: 3}, kind=EdgeKind.MENTIONED_BY)
    (arrival,) = graph.walk(1).support
    assert (arrival.strength, arrival.hop) == (pytest.approx(0.25), 1)


def random_edges(seed: int, degree: int) -> dict[int, dict[int, float]]:
    """Up to ``degree`` pointers of any weight from each of 41 nodes."""
    rng = np.random.default_rng(seed)
    return {
        source: dict(
            zip(
                rng.integers(0, 41, degree).tolist(),
                rng.uniform(-1, 1, degree).tolist(),
                strict=True,
            )
        )
        for source in range(41)
    }


EDGES = st.builds(random_edges, st.integers(0, 9999), st.integers(0, 16))
ENTRIES = st.lists(st.integers(0, 40), min_size=1, max_size=8, unique=True)


@settings(max_examples=40)
@given(EDGES, ENTRIES, st.frozensets(st.integers(0, 40)), st.none() | st.integers(0, 99))
def test_what_any_walk_satisfies(edges, entries, relevant, seed):
    """Budgets hold, no node is entered twice, and every route runs along real edges."""
    rng = None if seed is None else np.random.default_rng(seed)
    walk = Graph(edges, relevant).walk(*entries, router=SoftmaxRouter(POLICY, rng))
    entered = [target for step in walk.steps for target in (*step.reflexes, *step.chosen)]
    assert len(walk.visits) <= 24
    assert len(entered) == len(set(entered))
    assert {f"n{e}" for e in entries}.isdisjoint(entered)
    assert {v.head.id for v in walk.visits.values()} == {*entered, *(f"n{e}" for e in entries)}
    assert all(len(s.reflexes) + len(s.chosen) <= 6 and s.hop < 3 for s in walk.steps)
    for visit in walk.visits.values():
        route = [int(edge.source[1:]) for edge in visit.path] + [visit.head.key]
        assert route[0] in entries
        assert len(visit.path) == visit.hop <= 3
        assert all(edges[a][b] >= 0.3 for a, b in pairwise(route))
    for arrival in walk.support:
        assert any(edges[source].get(arrival.target.key, 0) > 0 for source in walk.visits)
    assert all(0 <= advice <= 1 for _, advice in walk.inhibition.values())


def test_stop_counts_although_another_node_was_faster():
    """Both entries choose node 3; the second finds it taken, and STOP still ended its choice."""
    walk = Graph({1: {3: 0.5}, 2: {3: 0.5, 4: 0.5}}, relevant=frozenset({3})).walk(1, 2)
    assert (walk.steps[1].chosen, walk.steps[1].stopped) == ((), True)


def test_hops_are_reported_while_they_happen():
    """What was considered, what was followed, and who decided."""
    graph, hops = Graph({1: {2: 0.5, 4: 0.9}, 2: {3: 0.9}}), []
    walker = graph.walker(Scripted(), on_hop=hops.append)
    run(walker.steps([(graph.head(1), 1.0)]))
    assert [(hop.number, hop.decided_by) for hop in hops[:2]] == [(1, "chat_model"), (2, "reflex")]
    assert hops[0].frontier == ("n1",)
    assert {edge.target for edge in hops[0].followed} == {"n2", "n4"}


def test_stop_has_a_learned_weight():
    """Learned at +1 it silences a pointer that would have been followed; learning needs it."""
    graph = Graph({1: {2: 0.5}}, relevant=frozenset({2}))
    assert visited(graph.walk(1)) == [1, 2]
    assert visited(replace(graph, stops={1: 1.0}).walk(1)) == [1]
    assert replace(graph, stops={1: 0.25}).walk(1).steps[0].stop_weight == 0.25


@pytest.mark.parametrize(
    ("weight", "energy", "support", "advice"),
    [(0.29, 1, [0.29], None), (-0.5, 0.6, [], 0.3), (-1, 9, [], 1), (-1, -1, [], 0)],
)
def test_pointers_that_are_never_followed(weight, energy, support, advice):
    """Below .3 one supports its target a little; an inhibitory one advises against it, 0 to 1."""
    walk = Graph({1: {2: weight}}, relevant=frozenset({2})).walk(1, energy=energy)
    assert visited(walk) == [1]
    assert [arrival.strength for arrival in walk.support] == pytest.approx(support)
    assert [given for _, given in walk.inhibition.values()] == (
        [] if advice is None else [pytest.approx(advice)]
    )
    assert all(step.chosen + step.reflexes == () for step in walk.steps)


def test_inhibition_vetoes_nothing_and_does_not_add_up():
    """A node is entered along one pointer though two advise against it; the stronger counts."""
    walk = Graph({1: {3: -0.9}, 2: {3: 0.9}, 4: {3: -0.2}}).walk(1, 2, 4)
    assert visited(walk) == [1, 2, 4, 3]
    assert walk.inhibition[3][1] == pytest.approx(0.9)


def test_a_router_sees_one_request_per_hop():
    """All nodes of a frontier, titles advised against, and at first where the walk begins."""
    router = Scripted()
    graph = Graph({1: {3: 0.5, 9: -0.5}, 2: {4: 0.5}, 3: {5: 0.5}})
    walk = graph.walk(1, 2, router=router, energy=0.9)
    first, second = router.requests
    assert [choice.source for choice in first.choices] == ["n1", "n2"]
    assert first.choices[0].inhibited[0].target.title == "Node 9"
    assert (first.query, first.budget) == ("question", 6)
    assert [(head.key, energy) for head, energy in first.entries] == [(1, 0.9), (2, 0.9)]
    assert second.entries == ()
    assert {step.decided_by for step in walk.steps} == {"chat_model"}


FIVE_STARS = {e: dict.fromkeys(range(10 * e, 10 * e + 10), 0.9) for e in range(1, 6)}


@pytest.mark.parametrize(
    ("edges", "entries", "nodes"),
    [
        (FIVE_STARS, range(1, 6), 24),  # ten reflexes each would reach 55
        ({1: {50: 0.9}}, range(1, 31), [*range(1, 25)]),
        ({key: {key + 1: 0.9} for key in range(1, 10)}, [1], [1, 2, 3, 4]),  # three hops
        # The strongest of twenty pointers come first, six of them.
        (
            {1: {target: 0.8 + target / 1000 for target in range(2, 22)}},
            [1],
            [1, *range(21, 15, -1)],
        ),
        # Where two routes meet the first one stays; a cycle and a loop end.
        ({1: {2: 0.9, 3: 0.8}, 2: {4: 0.9}, 3: {4: 0.9}, 4: {1: 0.9, 4: 0.9}}, [1], [1, 2, 3, 4]),
    ],
    ids=["24 nodes", "24 entries", "3 hops", "6 of one node", "each once"],
)
def test_budgets_of_a_walk(edges, entries, nodes):
    graph = Graph(edges)
    walk = graph.walk(*entries)
    assert len(walk.visits) == nodes if isinstance(nodes, int) else visited(walk) == nodes
    assert len(graph.reads) <= 3  # a hop is one read


def test_reflexes_and_decisions_share_the_budget_of_a_node():
    edges = {2: 0.9, 3: 0.9, **dict.fromkeys(range(4, 12), 0.5)}
    step = Graph({1: edges}, relevant=frozenset(range(4, 12))).walk(1).steps[0]
    assert (len(step.reflexes), len(step.chosen), step.stopped) == (2, 4, False)


def test_energy_and_path_follow_the_route():
    """Energy is the entry's times the weights: .5 · .9 · .8 = .36; the path names both hops."""
    visit = Graph({1: {2: 0.9}, 2: {3: 0.8}}).walk(1, energy=0.5).visits[3]
    assert (visit.hop, visit.energy) == (2, pytest.approx(0.36))
    assert [(e.source, e.target, e.weight, e.tier) for e in visit.path] == [
        ("n1", "n2", 0.9, "reflex"),
        ("n2", "n3", 0.8, "reflex"),
    ]


def test_a_reused_edge_is_damped_and_a_cycle_without_new_nodes_ends():
    """With λ = .9 the edge counts 1, .9, .81 (still reflex) and then .729."""
    graph = Graph({1: {2: 1.0}, 2: {1: 1.0}})
    walk = graph.walk(1, max_visits_per_node=9, damping=0.9, max_hops=7, max_empty_hops=9)
    weights = [step.candidates[0].weight for step in walk.steps if step.node == "n1"]
    assert weights == pytest.approx([1.0, 0.9, 0.81, 0.729])
    graph.reads.clear()
    graph.walk(1, max_visits_per_node=99, damping=1.0, max_hops=9)
    assert len(graph.reads) == 3  # hop 1 enters node 2; hops 2 and 3 enter nothing new
