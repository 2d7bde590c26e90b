"""Typed edges as outcomes make them in a memory: undone, switched off, and between turns."""

import pytest

from crabpath_retrievers import Feedback

QUERY = "text 5 word5"


def typed(memory, namespace="default"):
    """Weight of every typed edge that a namespace has learned, by ends and kind."""
    kinds = ["temporal", "same_action", "caused_success", "caused_failure", "irrelevant"]
    graph = memory.graph.to_networkx([*kinds, "region_transition"], namespace=namespace)
    return {(*ends, kind): weight for *ends, kind, weight in graph.edges(keys=True, data="weight")}


def judge(memory, text, outcome, *, used=True, feedback_id=None, namespace="default"):
    """Ask, and say that the best document that is no entry was used; returns its id."""
    answer = memory.retrieve(text, k=4, namespace=namespace)
    best = max(answer.turn.seeds, key=lambda seed: seed.score).node
    node = next(one.node.id for one in answer.documents if one.node.id != best)
    given = {"used": [node]} if used else {}
    given |= {"feedback_id": feedback_id} if feedback_id else {}
    receipt = memory.record(Feedback(answer.turn.id, outcome, **given))
    assert receipt.status == "applied"
    return node


def ids(listed):
    return {one.id for one in listed}


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_success_and_a_failure_are_undone_in_any_order(open_memory):
    """With everything that they moved: also what the later one moved on."""
    with open_memory() as memory:
        judge(memory, QUERY, 1.0, feedback_id="first")
        after_first = typed(memory)
        assert after_first
        judge(memory, "text 5 word6", -1.0, feedback_id="second")
        assert typed(memory) != after_first
        memory.undo("second")
        assert typed(memory) == pytest.approx(after_first)
        judge(memory, "text 5 word6", -1.0, feedback_id="third")
        memory.undo("first")
        memory.undo("third")
        assert typed(memory) == {}


def test_use_is_found_by_its_edges(memory, graph, namespace):
    """From the best entry to what was used; what the failure ignored is needless."""
    node = judge(memory, QUERY, 1.0, namespace=namespace)
    assert node in ids(graph.neighbors("d5", "caused_success"))
    node = judge(memory, QUERY, -1.0, namespace=namespace)
    failed = graph.neighbors("d5", "caused_failure")
    assert [(one.id, one.weight < 0) for one in failed] == [(node, True)]
    needless = graph.neighbors("d5", "irrelevant")
    assert needless
    assert node not in ids(needless)
    assert all(-0.3 <= one.weight < 0 for one in needless)


def test_a_relevant_document_that_was_not_returned_is_learned_from_too(memory, graph, namespace):
    turn = memory.retrieve(QUERY, k=2, namespace=namespace).turn
    assert "d60" not in [item.node for item in turn.returned]
    memory.record(Feedback(turn.id, 1.0, relevant=["d60"]))
    assert "d60" in ids(graph.neighbors("d5", "caused_success"))


def test_outcomes_alone_move_only_regions(memory, graph, namespace):
    """They add up and turn around, each by a share of the way from where the edge stands."""
    home, weights = memory.regions.assign(QUERY), []
    for outcome in (1.0, 1.0, -1.0):
        judge(memory, QUERY, outcome, used=False, namespace=namespace)
        listed = graph.neighbors(home, "region_transition")
        assert ids(listed) <= set(memory.regions.assignments().values())
        assert len(typed(memory, namespace)) == len(listed)
        weights.append(listed[0].weight)
    assert 0 < weights[0] < weights[1] > weights[2]
    assert weights[1] < 2 * weights[0]


def test_what_one_turn_used_comes_before_what_the_next_one_uses(memory, graph, namespace):
    failed = judge(memory, "text 20 word20", -1.0, namespace=namespace)
    first = judge(memory, QUERY, 1.0, namespace=namespace)
    assert first not in ids(graph.neighbors(failed, "temporal"))
    other = judge(memory, "text 40 word40", 1.0, namespace=f"{namespace}-other")
    second = judge(memory, "text 60 word60", 1.0, namespace=namespace)
    assert second in ids(graph.neighbors(first, "temporal"))
    assert other not in ids(graph.neighbors(second, "temporal", direction="in")) - {first}


@pytest.mark.parametrize(("between", "window"), [(10, {}), (1, {"window_seconds": 1e-9})])
def test_beyond_the_window_turns_do_not_follow_on_each_other(open_memory, between, window):
    with open_memory(**window) as memory:
        first = judge(memory, QUERY, 1.0)
        for _ in range(between):
            memory.retrieve("text 70")
        second = judge(memory, "text 60 word60", 1.0)
        assert second not in ids(memory.graph.neighbors(first, "temporal"))


def test_an_episode_of_documents_makes_edges_that_its_id_takes_back(open_memory):
    """Order and outcome from state to state, and from region to region."""
    with open_memory() as memory:
        memory.regions.learn_episode(["d1", "d2", "d3"], reward=1.0, episode_id="good")
        before = typed(memory)
        memory.regions.learn_episode(["d1", "d2"], reward=-1.0, episode_id="bad")
        kinds = {n.edge_type: n.weight for n in memory.graph.neighbors("d1") if n.id == "d2"}
        assert kinds["temporal"] == pytest.approx(0.51)
        assert kinds["caused_success"] == pytest.approx(0.3)
        assert kinds["caused_failure"] == pytest.approx(-0.3)
        reached = memory.graph.traverse("d1", ["caused_success"])
        assert [(one.id, one.hops) for one in reached][:2] == [("d2", 1), ("d3", 2)]
        regions = memory.regions.assignments()
        hubs = memory.graph.neighbors(regions["d2"], "region_transition")
        assert regions["d3"] in ids(hubs)
        memory.undo("bad")
        assert typed(memory) == pytest.approx(before)
        memory.undo("good")
        assert typed(memory) == {}
        memory.regions.learn_episode(["d1", "d2", "d3"], reward=1.0)
        memory.forget(ids=["d2"])
        assert memory.graph.traverse("d1", ["temporal", "caused_success"]) == []


def test_an_episode_of_vectors_makes_edges_between_regions_alone(memory, namespace):
    """One in words makes none: its states are those of an agent."""
    texts = ["text 5", "text 9"]
    given = {"actions": ["go"], "namespace": namespace, "reward": 1.0}
    memory.regions.learn_episode(texts=texts, **given)
    assert typed(memory, namespace) == {}
    memory.regions.learn_episode(memory.embedder.embeddings.embed_documents(texts), **given)
    ((source, target, _),) = typed(memory, namespace)
    assert {source, target} <= {*memory.regions.assignments().values()}


def test_snapshots_hold_typed_edges(memory, namespace):
    judge(memory, QUERY, 1.0, namespace=namespace)
    before, kept = typed(memory, namespace), memory.namespaces.snapshot(namespace)
    judge(memory, "text 60 word60", -1.0, namespace=namespace)
    memory.namespaces.restore(kept, namespace=namespace)
    assert typed(memory, namespace) == pytest.approx(before)
