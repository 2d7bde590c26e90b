"""Graph, Bayesian and causal search."""

import math

import numpy as np
import pytest

from crabpath_retrievers import CrabPath, EmbeddingMismatchError, Feedback, InvalidInputError

QUERY = "text 5 word5"
SEARCHES = ["search", "bayesian_search", "causal_search"]
NAN = float("nan")


def ids(hits):
    return [hit.node.id for hit in hits]


@pytest.fixture
def others(memory):
    """Documents by similarity to the query, least similar last."""
    return ids(memory.graph.search(QUERY, 80, {}))


def test_without_edges_it_is_similarity_alone(graph, others):
    """The document with the same words first, with its cosine."""
    best = graph.search(QUERY, 3)
    assert ids(best) == others[:3] == ids(graph.causal_search(QUERY, 3))
    assert best[0].node.id == "d5"
    assert best[0].score == best[0].similarity == pytest.approx(1.0, abs=1e-3)
    assert best[0].contributions == ()


def test_what_an_edge_leads_to_is_found_and_scored_by_the_formula(graph, join, others):
    """The least similar document comes in by an edge: cosine + boost · w · cosine(source)."""
    last = others[-1]
    join((others[0], last, 0.9), (others[1], last, 0.95))
    elsewhere = graph.search(QUERY, 80, {"caused_success": 4.0}, namespace="elsewhere")
    assert not any(hit.contributions for hit in elsewhere)
    hits = {hit.node.id: hit for hit in graph.search(QUERY, 5, {"caused_success": 4.0})}
    hit = hits[last]
    (spoke,) = hit.contributions
    assert spoke[:2] == (others[0], "caused_success")
    assert spoke.share == pytest.approx(4.0 * 0.9 * hits[others[0]].similarity)
    assert hit.score == pytest.approx(hit.similarity + spoke.share)


def test_each_type_speaks_once_and_edges_below_zero_lower(graph, join, others):
    target = others[1]
    join((others[0], target, 0.5))
    join((others[0], target, -0.8), kind="caused_failure")
    boosts = {"caused_success": 0.1, "caused_failure": 0.5}
    before = {hit.node.id: hit.score for hit in graph.search(QUERY, 80, {})}
    hits = graph.search(QUERY, 80, boosts)
    hit = next(hit for hit in hits if hit.node.id == target)
    top = before[others[0]]
    assert hit.score == pytest.approx(before[target] + 0.1 * 0.5 * top - 0.5 * 0.8 * top)
    assert {one.edge_type for one in hit.contributions} == set(boosts)
    assert [one.score for one in hits] == sorted((one.score for one in hits), reverse=True)


def test_the_score_is_the_weighted_sum_of_five_factors(graph):
    """And all but the first of them lie between 0 and 1."""
    weights = np.array([0.7, 0.1, 0.2, 0.3, 0.4], np.float32)
    hits = graph.bayesian_search(QUERY, 10, weights)
    assert len(hits) == 10
    for hit in hits:
        assert hit.score == pytest.approx(float(np.dot(weights, hit.factors)))
        assert all(0 <= factor <= 1 for factor in hit.factors[1:])
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_region_match_is_that_of_the_finest_counted_level(memory, graph):
    here, all_regions = memory.regions.assign(QUERY), memory.regions.assignments()
    matches = {h.node.id: h.factors.region_match for h in graph.bayesian_search(QUERY, 80)}
    assert matches == {node: float(home == here) for node, home in all_regions.items()}
    assert 0 < sum(matches.values()) < len(matches)


def factors_of(graph, node, **options):
    hits = graph.bayesian_search(QUERY, 80, **options)
    return next(hit.factors for hit in hits if hit.node.id == node)


def test_use_raises_success_and_recency_which_then_fades_by_turn(memory, graph, namespace):
    """exp(-.01 n) after n more turns; .4 is the mean of the prior 2 and 3."""
    never = factors_of(graph, "d5")
    assert (never.recency, never.reward, never.usage_success) == (0, 1, pytest.approx(0.4))
    turn = memory.retrieve(QUERY, k=4, namespace=namespace).turn
    memory.record(Feedback(turn.id, 1.0, used=["d5"]))
    fresh = factors_of(graph, "d5")
    assert fresh.recency == pytest.approx(1.0)
    assert fresh.usage_success == pytest.approx(0.5)
    for i in range(3):
        memory.retrieve(f"text {20 + i}", namespace=namespace)
    memory.store.flush()
    assert factors_of(graph, "d5").recency == pytest.approx(math.exp(-0.03))
    assert factors_of(graph, "d5", namespace=f"{namespace}-other").recency == 0
    turn = memory.retrieve(QUERY, k=4, namespace=namespace).turn
    memory.record(Feedback(turn.id, -1.0, used=["d5"]))  # a failure that was followed
    assert 0.7 <= factors_of(graph, "d5").reward < 1


def test_causal_search_tells_what_came_before_and_after_in_order(graph, join, namespace):
    """Along the strongest edges, with the weight of each; a cycle is not walked twice."""
    join(
        ("d5", "d6", 0.9),
        ("d5", "d7", 0.2),
        ("d6", "d8", 0.7),
        ("d8", "d5", 0.6),
        ("d4", "d5", 0.8),
        ("d3", "d4", 0.5),
        ("d5", "d9", -0.9),
        kind="temporal",
    )
    (hit,) = graph.causal_search(QUERY, 1)
    assert hit.node.id == "d5"
    assert [one.id for one in hit.successors] == ["d6", "d8"]
    assert [one.weight for one in hit.successors] == pytest.approx([0.9, 0.7])
    assert [one.id for one in hit.predecessors] == ["d4", "d3"]
    (hit,) = graph.causal_search(QUERY, 1, temporal_context=1)
    assert [one.id for one in hit.successors] == ["d6"]
    assert [one.id for one in hit.predecessors] == ["d4"]
    (hit,) = graph.causal_search(QUERY, 1, namespace=f"{namespace}-other")
    assert hit.successors == hit.predecessors == ()


BOOSTS = [{"nothing": 0.3}, {"temporal": NAN}, {"temporal": "1"}, ["temporal"], "temporal"]
FOUR = (1.0, 0.3, 0.5, 0.2)
ENDS = (NAN, float("inf"), "0.4", None)
WEIGHTS = [FOUR, (1.0,) * 6, *((*FOUR, end) for end in ENDS), "12345", None, 1.0, []]
REFUSED = [
    *(("search", (3, boost), None) for boost in BOOSTS),
    *(("bayesian_search", (3, weights), "weight") for weights in WEIGHTS),
    *(("causal_search", (3, hops), "temporal_context") for hops in (0, 1.5, None)),
    *((name, (k,), "k must be") for name in SEARCHES for k in (0, -1, 2.5, "3", None, 10**9)),
]


@pytest.mark.parametrize(("name", "given", "says"), REFUSED, ids=map(str, REFUSED))
def test_unusable_numbers_are_refused(graph, name, given, says):
    with pytest.raises(InvalidInputError, match=says):
        getattr(graph, name)(QUERY, *given)


@pytest.mark.parametrize("name", SEARCHES)
async def test_every_search_takes_any_text_or_vector_and_records_no_turn(
    memory, graph, name, namespace
):
    """A vector asks as its text does, whatever its length; async is the same."""
    before = memory.store.walk.get_clock(namespace)
    search, found = getattr(graph, name), ids(getattr(graph, name)(QUERY, 4))
    assert ids(search(3 * memory.embedder.query(QUERY), 4)) == found
    assert ids(await getattr(memory.aio.graph, name)(QUERY, 4, namespace=namespace)) == found
    for text in ("", "🦀 ﷽", "x" * 50_000):
        assert len(search(text, 2)) == 2
    memory.store.flush()
    assert memory.store.walk.get_clock(namespace) == before
    with pytest.raises(EmbeddingMismatchError):
        search([1.0, 2.0], 4)
    for bad in ([0.0] * 16, [NAN] * 16, [], None):
        with pytest.raises(InvalidInputError):
            search(bad, 4)


def test_an_empty_memory_finds_nothing(memory):
    with CrabPath.open(embeddings=memory.embedder.embeddings) as empty:
        assert [getattr(empty.graph, name)(QUERY, 3) for name in SEARCHES] == [[], [], []]
