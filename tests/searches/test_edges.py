"""Setting typed edges, listing and following them."""

import pytest

from crabpath_retrievers import Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.typed_search import follow

BAD_NUMBERS = [float("nan"), float("inf"), 1.5, "0.5", None, True]


def test_neighbours_come_strongest_first_whatever_their_sign(joined):
    """By absolute weight; of the types asked for; and from the other end."""
    memory = joined(("d1", "d2", 0.4), ("d1", "d3", -0.9), ("d4", "d1", 0.2))
    joined(("d1", "d5", 0.6), kind="temporal")
    listed = memory.graph.neighbors("d1", ["caused_success", "temporal"])
    assert [(one.id, one.edge_type) for one in listed] == [
        ("d3", "caused_success"),
        ("d5", "temporal"),
        ("d2", "caused_success"),
    ]
    assert [one.weight for one in listed] == pytest.approx([-0.9, 0.6, 0.4])
    assert [one.id for one in memory.graph.neighbors("d1", "temporal")] == ["d5"]
    assert [one.id for one in memory.graph.neighbors("d1", "caused_success", 0.5)] == ["d3"]
    assert [one.id for one in memory.graph.neighbors("d1", "caused_success", direction="in")] == [
        "d4"
    ]


def test_setting_an_edge_again_gives_it_the_new_weight(joined):
    """Not the sum; 0 takes it away."""
    memory = joined(("d1", "d2", 0.4), ("d1", "d2", -0.7))
    assert memory.graph.neighbors("d1", "caused_success")[0].weight == pytest.approx(-0.7)
    joined(("d1", "d2", 0.0))
    assert memory.graph.neighbors("d1", "caused_success") == []


def test_an_edge_is_undone_by_its_id(joined):
    """What stood before stands again; the same id twice changes nothing."""
    memory = joined(("d1", "d2", 0.4))
    for weight in (0.9, -0.9):
        memory.graph.add_edge("d1", "d2", "caused_success", weight, edge_id="mine")
    assert memory.graph.neighbors("d1", "caused_success")[0].weight == pytest.approx(0.9)
    assert memory.undo("mine").status == "undone"
    assert memory.graph.neighbors("d1", "caused_success")[0].weight == pytest.approx(0.4)


def test_an_id_of_another_namespace_is_refused(memory):
    """It would be undone with that one."""
    memory.graph.add_edge("d1", "d2", "temporal", 0.5, namespace="ada", edge_id="mine")
    with pytest.raises(InvalidInputError, match="taken"):
        memory.graph.add_edge("d1", "d2", "temporal", 0.5, edge_id="mine")


def test_a_snapshot_brings_edges_back(joined):
    """They stand in the overlay as all that is learned."""
    memory = joined(("d1", "d2", 0.4))
    kept = memory.namespaces.snapshot()
    joined(("d1", "d3", 0.8), ("d1", "d2", -0.5))
    memory.namespaces.restore(kept)
    (only,) = memory.graph.neighbors("d1", "caused_success")
    assert only.id == "d2"
    assert only.weight == pytest.approx(0.4)


def test_a_frozen_namespace_is_told_nothing(memory):
    """The receipt says so, and nothing changes."""
    memory.namespaces.freeze()
    receipt = memory.graph.add_edge("d1", "d2", "temporal", 0.5)
    assert receipt.status == "refused"
    assert "frozen" in receipt.note
    assert memory.graph.neighbors("d1", "temporal") == []


def test_namespaces_see_their_own_edges_alone(joined):
    """Neither lists nor follows those of another."""
    memory = joined(("d1", "d2", 0.4), namespace="ada")
    assert memory.graph.neighbors("d1", "caused_success") == []
    assert memory.graph.traverse("d1", "caused_success") == []
    assert memory.graph.neighbors("d1", "caused_success", namespace="ada")


def test_notes_of_another_namespace_are_neither_start_nor_end(memory):
    """They do not exist there, and a textual or taught edge does not tell of them."""
    note = memory.teach("Ada keeps this to herself.", related=["d1"], namespace="ada")
    own = memory.graph.neighbors("d1", direction="in", namespace="ada")
    own += memory.graph.neighbors("d1", namespace="ada")
    assert note in {one.id for one in own}
    for namespace in ("default", "bob"):
        listed = memory.graph.neighbors("d1", direction="in", namespace=namespace)
        listed += memory.graph.neighbors("d1", namespace=namespace)
        assert note not in {one.id for one in listed}
        with pytest.raises(NotFoundError):
            memory.graph.neighbors(note, namespace=namespace)
        with pytest.raises(NotFoundError):
            memory.graph.add_edge("d1", note, "temporal", 0.5, namespace=namespace)
        with pytest.raises(NotFoundError):
            memory.graph.traverse(note, "temporal", namespace=namespace)


@pytest.mark.parametrize(
    "kind", ["causedsuccess", "CAUSED_SUCCESS", "", None, 3, "link", "inhibits"]
)
def test_unknown_types_and_those_of_the_text_cannot_be_set(memory, kind):
    """The message lists what can; nothing is guessed."""
    with pytest.raises(InvalidInputError, match="temporal, same_action, caused_success"):
        memory.graph.add_edge("d1", "d2", kind, 0.5)


@pytest.mark.parametrize("weight", BAD_NUMBERS)
def test_a_weight_is_a_number_within_its_range(memory, weight):
    """From -1 to 1."""
    with pytest.raises(InvalidInputError, match="weight"):
        memory.graph.add_edge("d1", "d2", "temporal", weight)


@pytest.mark.parametrize("node", ["nothing", "", "🦀" * 5000])
def test_unknown_nodes_are_named(memory, node):
    """Wherever they are given."""
    for call in (
        lambda: memory.graph.add_edge(node, "d2", "temporal", 0.5),
        lambda: memory.graph.add_edge("d2", node, "temporal", 0.5),
        lambda: memory.graph.neighbors(node),
        lambda: memory.graph.traverse(node, "temporal"),
    ):
        with pytest.raises(NotFoundError, match="there is no document"):
            call()


def test_an_edge_to_itself_is_refused(memory):
    """It would say nothing."""
    with pytest.raises(InvalidInputError, match="itself"):
        memory.graph.add_edge("d1", "d1", "temporal", 0.5)


@pytest.mark.parametrize(
    "options",
    [
        {"edge_type": "nothing"},
        {"edge_type": []},
        {"edge_type": ["temporal", "nothing"]},
        {"edge_type": 7},
        {"min_weight": float("nan")},
        {"min_weight": 2},
        {"direction": "both"},
        {"direction": None},
    ],
)
def test_neighbours_refuse_what_they_cannot_read(memory, options):
    """Each with a sentence."""
    with pytest.raises(InvalidInputError):
        memory.graph.neighbors("d1", **options)


@pytest.mark.parametrize("hops", [0, -1, 1.5, "3", None, True])
def test_hops_are_whole_numbers(memory, hops):
    """From 1 on."""
    with pytest.raises(InvalidInputError, match="max_hops"):
        memory.graph.traverse("d1", "temporal", hops)


def test_traversal_counts_fewest_hops_and_ends_in_cycles(joined):
    """d4 is two hops away by d2 or d3, not three by d2 and d5; the way back is not taken."""
    memory = joined(
        ("d1", "d2", 0.5),
        ("d1", "d3", -0.9),
        ("d2", "d4", 0.8),
        ("d3", "d4", 0.6),
        ("d2", "d5", 0.5),
        ("d5", "d4", 1.0),
        ("d4", "d6", 0.5),
        ("d6", "d1", 1.0),
    )
    reached = memory.graph.traverse("d1", ["caused_success"], max_hops=9)
    assert [(one.id, one.hops) for one in reached] == [
        ("d3", 1),
        ("d2", 1),
        ("d4", 2),
        ("d5", 2),
        ("d6", 3),
    ]
    by_id = {one.id: one for one in reached}
    # |-.9 · .6| is more than .5 · .8.
    assert by_id["d4"].path == ("d1", "d3", "d4")
    assert by_id["d4"].weight == pytest.approx(-0.54)
    assert by_id["d6"].path == ("d1", "d3", "d4", "d6")
    assert by_id["d6"].edge_types == ("caused_success",) * 3
    assert by_id["d6"].weight == pytest.approx(-0.27)


def test_traversal_stops_at_its_hops_and_at_weak_edges(joined):
    """A chain of three, of which the second edge is weak."""
    memory = joined(("d1", "d2", 0.5), ("d2", "d3", -0.1), ("d3", "d4", 0.9))
    assert [one.id for one in memory.graph.traverse("d1", "caused_success", 2)] == ["d2", "d3"]
    assert [one.id for one in memory.graph.traverse("d1", "caused_success", 9, 0.2)] == ["d2"]


def test_traversal_follows_several_types(joined):
    """Each step names its own."""
    memory = joined(("d1", "d2", 0.5))
    joined(("d2", "d3", 0.5), kind="temporal")
    (last,) = [
        one for one in memory.graph.traverse("d1", ["caused_success", "temporal"]) if one.hops == 2
    ]
    assert last.edge_types == ("caused_success", "temporal")
    assert [one.id for one in memory.graph.traverse("d1", "caused_success")] == ["d2"]


def test_traversal_is_bounded_and_keeps_the_strongest(joined, monkeypatch):
    """Three nodes here instead of five hundred."""
    monkeypatch.setattr(follow, "MAX_REACHED", 3)
    memory = joined(*((("d1", f"d{i}", i / 10)) for i in range(2, 9)), ("d8", "d9", 1.0))
    assert [one.id for one in memory.graph.traverse("d1", "caused_success")] == ["d8", "d7", "d6"]


async def test_the_same_without_blocking(memory):
    """Each has its twin."""
    assert (await memory.aio.graph.add_edge("d1", "d2", "temporal", 0.5)).status == "applied"
    assert [one.id for one in await memory.aio.graph.neighbors("d1", "temporal")] == ["d2"]
    assert [one.id for one in await memory.aio.graph.traverse("d1", "temporal")] == ["d2"]


def test_an_edge_fades_with_what_is_learned(open_memory):
    """Half of it is left after a half-life of one turn."""
    with open_memory(half_life=1.0, typed=False) as memory:
        memory.graph.add_edge("d1", "d2", "temporal", 0.8)
        turn = memory.retrieve("text 5", k=2).turn.id
        memory.record(Feedback(turn, 1.0))
        assert memory.graph.neighbors("d1", "temporal")[0].weight == pytest.approx(0.4)
