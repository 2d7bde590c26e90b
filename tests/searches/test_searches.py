"""Graph, Bayesian and causal search."""

import math

import numpy as np
import pytest

from crabpath_retrievers import CrabPath, EmbeddingMismatchError, Feedback, InvalidInputError

QUERY = "text 5 word5"


@pytest.fixture
def others(memory):
    """Documents by similarity to the query, least similar last."""
    return [hit.node.id for hit in memory.graph.search(QUERY, 80, {})]


def test_without_edges_it_is_similarity_alone(memory, others):
    """The document with the same words first, with its cosine."""
    best = memory.graph.search(QUERY, 3)
    assert [hit.node.id for hit in best] == others[:3]
    assert best[0].node.id == "d5"
    assert best[0].score == best[0].similarity == pytest.approx(1.0, abs=1e-3)
    assert best[0].contributions == ()


def test_what_an_edge_leads_to_is_found_and_scored_by_the_formula(joined, others):
    """The least similar document comes in by an edge: cosine + boost · w · cosine(source)."""
    last = others[-1]
    memory = joined((others[0], last, 0.9), (others[1], last, 0.95))
    hits = {hit.node.id: hit for hit in memory.graph.search(QUERY, 5, {"caused_success": 4.0})}
    hit = hits[last]
    (spoke,) = hit.contributions
    assert spoke[:2] == (others[0], "caused_success")
    assert spoke.share == pytest.approx(4.0 * 0.9 * hits[others[0]].similarity)
    assert hit.score == pytest.approx(hit.similarity + spoke.share)


def test_each_type_speaks_once_and_edges_below_zero_lower(joined, others):
    """One success and one failure: their sum decides."""
    target = others[1]
    memory = joined((others[0], target, 0.5))
    joined((others[0], target, -0.8), kind="caused_failure")
    boosts = {"caused_success": 0.1, "caused_failure": 0.5}
    before = {hit.node.id: hit.score for hit in memory.graph.search(QUERY, 80, {})}
    hits = memory.graph.search(QUERY, 80, boosts)
    hit = next(hit for hit in hits if hit.node.id == target)
    top = before[others[0]]
    assert hit.score == pytest.approx(before[target] + 0.1 * 0.5 * top - 0.5 * 0.8 * top)
    assert {one.edge_type for one in hit.contributions} == set(boosts)
    assert [one.score for one in hits] == sorted((one.score for one in hits), reverse=True)


def test_edges_of_other_namespaces_do_not_speak(joined, others):
    """Nor what they lead to."""
    memory = joined((others[0], others[-1], 1.0), namespace="ada")
    assert all(
        not hit.contributions for hit in memory.graph.search(QUERY, 80, {"caused_success": 4.0})
    )


@pytest.mark.parametrize(
    "boost",
    [{"nothing": 0.3}, {"temporal": float("nan")}, {"temporal": "1"}, ["temporal"], "temporal"],
)
def test_boosts_are_numbers_by_known_type(memory, boost):
    """Else a sentence."""
    with pytest.raises(InvalidInputError):
        memory.graph.search(QUERY, 3, boost)


def test_the_score_is_the_weighted_sum_of_five_factors(memory):
    """And all but the first of them lie between 0 and 1."""
    weights = (0.7, 0.1, 0.2, 0.3, 0.4)
    hits = memory.graph.bayesian_search(QUERY, 10, weights)
    assert len(hits) == 10
    for hit in hits:
        assert hit.score == pytest.approx(np.dot(weights, hit.factors))
        assert all(0 <= factor <= 1 for factor in hit.factors[1:])
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)


def test_what_was_never_used_has_no_recency_full_reward_and_the_prior(memory):
    """.4 is the mean of the prior 2 and 3."""
    factors = memory.graph.bayesian_search(QUERY, 1)[0].factors
    assert factors.recency == 0
    assert factors.reward == 1
    assert factors.usage_success == pytest.approx(0.4)


def test_region_match_is_that_of_the_finest_counted_level(memory):
    """As ``assign_region`` and ``region_assignments`` say."""
    here, all_regions = memory.regions.assign(QUERY), memory.regions.assignments()
    matches = {h.node.id: h.factors.region_match for h in memory.graph.bayesian_search(QUERY, 80)}
    assert matches == {node: float(home == here) for node, home in all_regions.items()}
    assert 0 < sum(matches.values()) < len(matches)


def used(memory, outcome, node, **options):
    """Ask, and say that this document was used."""
    turn = memory.retrieve(QUERY, k=4, **options).turn
    memory.record(Feedback(turn.id, outcome, used=[node]))


def factors_of(memory, node, **options):
    """The factors of one document."""
    return next(
        h.factors for h in memory.graph.bayesian_search(QUERY, 80, **options) if h.node.id == node
    )


def test_use_raises_success_and_recency_which_then_fades_by_turn(memory):
    """exp(-.01 n) after n more turns; another namespace knows nothing of it."""
    used(memory, 1.0, "d5")
    fresh = factors_of(memory, "d5")
    assert fresh.recency == pytest.approx(1.0)
    assert fresh.usage_success == pytest.approx(0.5)
    for i in range(3):
        memory.retrieve(f"text {20 + i}")
    memory.store.flush()
    assert factors_of(memory, "d5").recency == pytest.approx(math.exp(-0.03))
    assert factors_of(memory, "d5", namespace="ada").recency == 0


def test_a_followed_failure_takes_from_the_reward(memory):
    """What exp(-decay) leaves."""
    used(memory, -1.0, "d5")
    assert 0.7 <= factors_of(memory, "d5").reward < 1


@pytest.mark.parametrize(
    "weights",
    [
        (1.0, 0.3, 0.5, 0.2),
        (1.0,) * 6,
        (1.0, 0.3, 0.5, 0.2, float("nan")),
        (1.0, 0.3, 0.5, 0.2, float("inf")),
        (1.0, 0.3, 0.5, 0.2, "0.4"),
        (1.0, 0.3, 0.5, 0.2, None),
        "12345",
        None,
        1.0,
        [],
    ],
)
def test_weights_are_five_finite_numbers(memory, weights):
    """Else a sentence that says so."""
    with pytest.raises(InvalidInputError, match="weight"):
        memory.graph.bayesian_search(QUERY, 3, weights)


def test_weights_may_come_from_numpy(memory):
    """As a fitted model gives them."""
    assert memory.graph.bayesian_search(QUERY, 2, np.array([1, 0, 0, 0, 0], np.float32))


def test_causal_search_tells_what_came_before_and_after_in_order(joined):
    """Along the strongest edges, with the weight of each; a cycle is not walked twice."""
    memory = joined(
        ("d5", "d6", 0.9),
        ("d5", "d7", 0.2),
        ("d6", "d8", 0.7),
        ("d8", "d5", 0.6),
        ("d4", "d5", 0.8),
        ("d3", "d4", 0.5),
        ("d5", "d9", -0.9),
        kind="temporal",
    )
    (hit,) = memory.graph.causal_search(QUERY, 1)
    assert hit.node.id == "d5"
    assert [one.id for one in hit.successors] == ["d6", "d8"]
    assert [one.weight for one in hit.successors] == pytest.approx([0.9, 0.7])
    assert [one.id for one in hit.predecessors] == ["d4", "d3"]
    (hit,) = memory.graph.causal_search(QUERY, 1, temporal_context=1)
    assert [one.id for one in hit.successors] == ["d6"]
    assert [one.id for one in hit.predecessors] == ["d4"]
    (hit,) = memory.graph.causal_search(QUERY, 1, namespace="ada")
    assert hit.successors == hit.predecessors == ()


def test_causal_hits_are_the_most_similar_ones(memory, others):
    """In order, each of them."""
    assert [hit.node.id for hit in memory.graph.causal_search(QUERY, 4)] == others[:4]


SEARCHES = ["search", "bayesian_search", "causal_search"]


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("k", [0, -1, 2.5, "3", None, True, 10**9])
def test_k_is_a_whole_number_from_one_on(memory, name, k):
    """In every search."""
    with pytest.raises(InvalidInputError, match="k must be"):
        getattr(memory.graph, name)(QUERY, k)


@pytest.mark.parametrize("context", [0, 1.5, None])
def test_the_context_is_a_whole_number_from_one_on(memory, context):
    """As hops are."""
    with pytest.raises(InvalidInputError, match="temporal_context"):
        memory.graph.causal_search(QUERY, 3, context)


@pytest.mark.parametrize("name", SEARCHES)
def test_a_vector_asks_as_its_text_does(memory, name):
    """Of any length but zero; one of another dimension is refused."""
    search = getattr(memory.graph, name)
    vector = memory.embedder.query(QUERY)
    listed = [hit.node.id for hit in search(3 * vector, 4)]
    assert listed == [hit.node.id for hit in search(QUERY, 4)]
    with pytest.raises(EmbeddingMismatchError):
        search([1.0, 2.0], 4)
    for bad in ([0.0] * 16, [float("nan")] * 16, [], None):
        with pytest.raises(InvalidInputError):
            search(bad, 4)


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("text", ["", "🦀 ﷽", "x" * 50_000])
def test_odd_texts_are_asked_as_any(memory, name, text):
    """Empty, unicode, huge."""
    assert len(getattr(memory.graph, name)(text, 2)) == 2


@pytest.mark.parametrize("name", SEARCHES)
async def test_searches_have_an_async_form_and_record_no_turn(memory, name):
    """The same answer; the clock stays."""
    before = memory.store.walk.get_clock("default")
    found = [hit.node.id for hit in await getattr(memory.aio.graph, name)(QUERY, 3)]
    assert found == [hit.node.id for hit in getattr(memory.graph, name)(QUERY, 3)]
    memory.store.flush()
    assert memory.store.walk.get_clock("default") == before


@pytest.mark.parametrize("name", SEARCHES)
def test_an_empty_memory_finds_nothing(memory, name):
    """It has no regions either."""
    with CrabPath.open(embeddings=memory.embedder.embeddings) as empty:
        assert getattr(empty.graph, name)(QUERY, 3) == []
