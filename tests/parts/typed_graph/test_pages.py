"""Pages of the edges of a node, setting edges that queries follow, and who moved a weight."""

import time
from functools import partial
from itertools import pairwise

import pytest
from hub import make_hub

from crabpath_retrievers import EdgeKind, Feedback, InvalidInputError, NotFoundError
from tests.seams import make_change

HUB = 100_000


def time_best(call):
    """Least processor time of five calls, in seconds: other work of the machine does not count."""
    best = float("inf")
    for _ in range(5):
        begun = time.process_time()
        call()
        best = min(best, time.process_time() - begun)
    return best


def test_a_hub_answers_as_fast_as_a_page_is_read(open_memory):
    """Of 100,000 edges a page takes at most 200 ms, with those that a namespace has learned."""
    with open_memory() as memory:
        own = memory.graph.edges("d1").total
        make_hub(memory, HUB)
        memory.graph.add_edge("d1", "far7", "taught", 0.95, namespace="ann")
        memory.graph.add_edge("d1", "far8", "inhibits", -0.9, namespace="ann")
        page = memory.graph.edges("d1", namespace="ann")
        assert [(e.target, e.weight) for e in page.edges[:2]] == [("far7", 0.95), ("far8", -0.9)]
        assert [e.weight for e in page.edges[2:]] == pytest.approx([0.7995] * 48)
        assert (page.total, page.next_offset) == (HUB + own + 2, 50)
        assert memory.graph.edges("d1").total == HUB + own
        strong = memory.graph.edges("d1", "mention", min_weight=0.79)
        assert strong.total == HUB // 1000 * 20
        for options in ({}, {"tier": "habitual"}, {"min_weight": 0.5}, {"offset": 20_000}):
            call = lambda given=options: memory.graph.edges("d1", namespace="ann", **given)  # noqa: E731
            assert time_best(call) < 0.2


@pytest.mark.both_databases
@pytest.mark.parametrize("size", [3, 40, 1000])
def test_weights_that_moved_stand_where_they_belong_on_every_page(open_memory, size):
    """Edges of the text became stronger and weaker, or negative, in one namespace."""
    with open_memory() as memory:
        make_hub(memory, 300)
        (hub,) = memory.store.learned.keys(["d1"]).values()
        far = memory.store.learned.keys([f"far{n}" for n in range(1, 301)])
        deltas = {f"far{n}": (-0.9, -0.2, 0.1, 0.4)[n % 4] for n in range(1, 301, 7)}
        moved = [
            make_change("WeightDelta", hub, far[node], EdgeKind.MENTION, by)
            for node, by in deltas.items()
        ]
        memory.store.apply([make_change("AdjustWeights", "ann", tuple(moved), "by hand")])
        memory.graph.add_edge("d1", "d2", "taught", 0.35, namespace="ann")
        expected = {f"far{n}": 0.3 + n / 2000 + deltas.get(f"far{n}", 0.0) for n in range(1, 301)}
        expected["d2"] = 0.35
        found, offset = [], 0
        while offset is not None:
            page = memory.graph.edges("d1", offset=offset, limit=size, namespace="ann")
            assert page.total == len(expected)
            assert offset + len(page.edges) == (page.next_offset or page.total)
            found += page.edges
            offset = page.next_offset
        assert {edge.target: edge.weight for edge in found} == pytest.approx(expected)
        assert len(found) == len(expected)
        sizes = [abs(edge.weight) for edge in found]
        assert sizes == sorted(sizes, reverse=True)
        for tier in ("habitual", "dormant", "inhibitory", "reflex"):
            page = memory.graph.edges("d1", tier=tier, limit=1000, namespace="ann")
            assert list(page.edges) == [edge for edge in found if edge.tier == tier]
            assert page.total == len(page.edges)


@pytest.mark.both_databases
def test_pages_together_are_all_edges_once(atlas, namespace):
    """Strongest first whatever the sign, and equal ones in the same order on every page."""
    edges = partial(atlas.graph.edges, "d1", namespace=namespace)
    for n in range(2, 30):
        kind, weight = ("taught", 0.5) if n % 2 else ("inhibits", -n / 100)
        atlas.graph.add_edge("d1", f"d{n}", kind, weight, namespace=namespace)
    whole = edges(limit=1000)
    assert whole.total == len(whole.edges) > 28
    assert whole.next_offset is None
    sizes = [abs(edge.weight) for edge in whole.edges]
    assert sizes == sorted(sizes, reverse=True)
    paged, offset = [], 0
    while offset is not None:
        page = edges(limit=7, offset=offset)
        paged += page.edges
        assert page.total == whole.total
        offset = page.next_offset
    assert tuple(paged) == whole.edges
    tiers = {
        tier: edges(tier=tier, limit=1000)
        for tier in ("reflex", "habitual", "dormant", "inhibitory")
    }
    assert sum(page.total for page in tiers.values()) == whole.total
    assert all(edge.tier == tier for tier, page in tiers.items() for edge in page.edges)
    assert {e.target for e in tiers["inhibitory"].edges} == {f"d{n}" for n in range(2, 30, 2)}
    assert edges(offset=1000).edges == ()


def test_a_page_has_the_weights_and_notes_of_its_namespace_alone(memory, namespace):
    secret = memory.teach("Ann keeps this.", related=["d1"], title="Secret", namespace=namespace)
    memory.graph.add_edge("d1", secret, "taught", 0.7, namespace=namespace)
    memory.graph.add_edge("d1", "d9", "temporal", 0.6, namespace=namespace)
    own = memory.graph.edges("d1", namespace=namespace)
    assert own.edges[0]._replace(weight=0.7) == (
        *("d1", secret, "Secret", "taught", 0.7, 0.0, "habitual"),
    )
    into = memory.graph.edges("d1", "taught", direction="in", namespace=namespace)
    assert [(edge.source, edge.target) for edge in into.edges] == [(secret, "d1")]
    typed = memory.graph.edges("d1", ["temporal", "taught"], namespace=namespace)
    assert [edge.target for edge in typed.edges] == [secret, "d9"]
    for other in ("default", f"{namespace}-other"):
        page = memory.graph.edges("d1", namespace=other, limit=1000)
        assert page.total == own.total - 1
        assert secret not in {edge.target for edge in page.edges}
        assert memory.graph.edges("d1", "taught", direction="in", namespace=other).total == 0
        assert memory.graph.changes(source="d1", namespace=other) == []
        with pytest.raises(NotFoundError):
            memory.graph.edges(secret, namespace=other)
    about = memory.graph.edges(secret, namespace=namespace).node
    assert (about.title, about.source, about.authority) == ("Secret", "", "overlay")


@pytest.mark.both_databases
def test_queries_follow_what_was_connected_and_lower_what_was_inhibited(open_memory):
    """One replaces the other; undo takes both back."""
    with open_memory() as memory:

        def find(question):
            answer = memory.retrieve(question, k=8, fill=True, record=False)
            return {item.node: item for item in answer.turn.returned}

        (entry, _), *_ = find("text 5 word5").items()
        assert "d77" not in find("text 5 word5")
        memory.graph.add_edge(entry, "d77", "taught", 1.0)
        reached = find("text 5 word5")["d77"]
        assert [edge.kind for edge in reached.path] == ["taught"]
        receipt = memory.graph.add_edge(entry, "d77", "inhibits", -1.0)
        page = memory.graph.edges(entry, ["taught", "inhibits"])
        assert [(e.kind, e.weight) for e in page.edges] == [("inhibits", -1.0)]
        lowered = find("text 5 word5").get("d77")
        assert lowered is None or lowered.probability < reached.probability
        memory.undo(receipt.feedback_id)
        page = memory.graph.edges(entry, ["taught", "inhibits"])
        assert [(e.kind, e.weight) for e in page.edges] == [("taught", 1.0)]


@pytest.mark.both_databases
def test_the_changes_of_an_edge_lead_to_its_weight(open_memory):
    """Each begins where decay had brought the one before; undone feedback is not among them."""
    with open_memory(half_life=20) as memory:
        memory.graph.add_edge("d1", "d2", "taught", 0.4, edge_id="set")
        for _ in range(6):
            turn = memory.retrieve("text 1 word1", k=3).turn
            said = Feedback(turn.id, 1.0, used=["d1", "d2"], user="ann")
            memory.record(said)
        (edge,) = [e for e in memory.graph.edges("d1", limit=1000).edges if e.kind == "taught"]
        moves = memory.graph.changes(source="d1", target="d2", edge_type="taught")[::-1]
        assert moves[0][:6] == ("d1", "d2", "taught", 0.0, pytest.approx(0.4), "set")
        assert moves[0].user is None
        for earlier, later in pairwise(moves):
            assert 0 < later.before < earlier.after
            assert earlier.created <= later.created
        assert edge.weight <= moves[-1].after
        memory.undo("set")
        assert "set" not in {m.feedback_id for m in memory.graph.changes(source="d1")}


@pytest.mark.both_databases
def test_who_moved_a_weight_and_by_how_much(atlas, namespace):
    """Weights of the text begin where the text put them; feedback names its user."""
    receipts = []
    for number in range(40):
        answer = atlas.retrieve(f"What does Page {number * 7 % 40} tell?", namespace=namespace)
        used = [document.node.id for document in answer.documents[:2]]
        said = Feedback(answer.turn.id, 1.0 if number % 4 else -1.0, used=used, user="bob")
        receipts.append(atlas.record(said))
    moves = [
        move
        for receipt in receipts
        for move in atlas.graph.changes(feedback_id=receipt.feedback_id, namespace=namespace)
    ]
    assert moves
    assert {move.user for move in moves} == {"bob"}
    text, now = {}, {}
    for node in {move.source for move in moves}:
        for edge in atlas.graph.edges(node, namespace=namespace, limit=1000).edges:
            text[edge.source, edge.target, edge.kind] = edge.prior
            now[edge.source, edge.target, edge.kind] = edge.weight
    for name in {move[:3] for move in moves} & text.keys():
        source, target, kind = name
        of_edge = atlas.graph.changes(
            source=source, target=target, edge_type=kind, namespace=namespace
        )
        assert of_edge[-1].before == pytest.approx(text[name])
        assert now[name] == pytest.approx(of_edge[0].after, abs=0.05)  # decay is slow
        assert {move for move in moves if move[:3] == name} == set(of_edge)
    assert atlas.graph.changes(source=moves[0].source) == []  # of another namespace
    latest = atlas.graph.changes(source=moves[-1].source, namespace=namespace, limit=1)
    assert len(latest) == 1
    with pytest.raises(InvalidInputError, match="give a source"):
        atlas.graph.changes(namespace=namespace)
