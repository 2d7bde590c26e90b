"""Setting typed edges, listing, following and exporting them."""

import re
import sys
from functools import partial
from pathlib import Path

import networkx as nx
import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from markdown_it import MarkdownIt

from crabpath_retrievers import (
    EdgeKind,
    Feedback,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
)
from tests.seams import get_engine, set_bounds

NAN, INF = float("nan"), float("inf")
SUCCESS = "caused_success"


def ids(listed):
    return [one.id for one in listed]


def test_neighbours_come_strongest_first_whatever_their_sign(graph, join):
    join(("d1", "d2", 0.4), ("d1", "d3", -0.9), ("d4", "d1", 0.2))
    join(("d1", "d5", 0.6), kind="temporal")
    listed = graph.neighbors("d1", [SUCCESS, "temporal"])
    assert [(one.id, one.edge_type) for one in listed] == [
        ("d3", SUCCESS),
        ("d5", "temporal"),
        ("d2", SUCCESS),
    ]
    assert [one.weight for one in listed] == pytest.approx([-0.9, 0.6, 0.4])
    assert ids(graph.neighbors("d1", "temporal")) == ["d5"]
    assert ids(graph.neighbors("d1", SUCCESS, 0.5)) == ["d3"]
    assert ids(graph.neighbors("d1", SUCCESS, direction="in")) == ["d4"]


@pytest.mark.parametrize("is_replaced", [True, False])
def test_a_page_of_a_node_that_goes_meanwhile(open_memory, is_replaced):
    """It is that of the node in its place, or says that there is none."""
    seen = []

    def change(_connection, _cursor, statement, *_more):
        if "crabpath_contents.source" in statement and not seen:
            seen.append(statement)
            memory.forget(["d1"])
            if is_replaced:
                memory.add_documents([Document("other", id="d1")], split=False, progress=None)

    with open_memory() as memory:
        sa.event.listen(get_engine(memory.store, reads=True), "before_cursor_execute", change)
        if is_replaced:
            assert memory.graph.edges("d1").node.id == "d1"
        else:
            with pytest.raises(NotFoundError, match="'d1'"):
                memory.graph.edges("d1")
        assert seen


def test_setting_an_edge_again_gives_it_the_new_weight_and_0_takes_it_away(graph, join):
    join(("d1", "d2", 0.4), ("d1", "d2", -0.7))
    assert graph.neighbors("d1", SUCCESS)[0].weight == pytest.approx(-0.7)
    join(("d1", "d2", 0.0))
    assert graph.neighbors("d1", SUCCESS) == []


def test_an_edge_is_undone_by_its_id(memory, graph, join, namespace):
    """The same id twice changes nothing; in another namespace it is another edge's."""
    join(("d1", "d2", 0.4))
    for weight in (0.9, -0.9):
        graph.add_edge("d1", "d2", SUCCESS, weight, edge_id=namespace)
    assert graph.neighbors("d1", SUCCESS)[0].weight == pytest.approx(0.9)
    assert graph.neighbors("d1", SUCCESS, namespace="bob") == []
    assert graph.traverse("d1", SUCCESS, namespace="bob") == []
    memory.graph.add_edge("d1", "d2", "temporal", 0.5, namespace="bob", edge_id=namespace)
    assert memory.undo(namespace, namespace=namespace).status == "undone"
    assert len(graph.neighbors("d1", "temporal", namespace="bob")) == 1
    assert graph.neighbors("d1", SUCCESS)[0].weight == pytest.approx(0.4)


def test_more_namespaces_than_are_kept_in_memory(graph, join, namespace):
    for n in range(2, 20):
        join(("d1", f"d{n}", 0.4), namespace=f"{namespace}-{n}")
        assert ids(graph.neighbors("d1", SUCCESS, namespace=f"{namespace}-{n}")) == [f"d{n}"]
    assert ids(graph.neighbors("d1", SUCCESS, namespace=f"{namespace}-2")) == ["d2"]


def test_a_frozen_namespace_learns_no_edge(memory, graph, namespace):
    memory.namespaces.freeze(namespace)
    receipt = graph.add_edge("d1", "d2", "temporal", 0.5)
    assert receipt.status == "refused"
    assert "frozen" in receipt.note
    assert graph.neighbors("d1", "temporal") == []


def test_notes_of_another_namespace_are_neither_start_nor_end(memory, namespace):
    """They do not exist there, and a textual or taught edge does not tell of them."""
    note = memory.teach("Ada keeps this to herself.", related=["d1"], namespace=namespace)

    def around(name):
        sides = (memory.graph.neighbors("d1", direction=d, namespace=name) for d in ("in", "out"))
        return {one.id for side in sides for one in side}

    assert note in around(namespace)
    for other in ("default", f"{namespace}-other"):
        assert note not in around(other)
        for call, given in (
            (memory.graph.neighbors, (note,)),
            (memory.graph.add_edge, ("d1", note, "temporal", 0.5)),
            (memory.graph.traverse, (note, "temporal")),
        ):
            with pytest.raises(NotFoundError):
                call(*given, namespace=other)


KINDS = "temporal, same_action, caused_success"
NO_KINDS = ("causedsuccess", "CAUSED_SUCCESS", "", None, 3, "link", "co_used")
REFUSED = [
    *(("add_edge", ("d1", "d2", kind, 0.5), KINDS) for kind in NO_KINDS),
    *(("add_edge", ("d1", "d2", "temporal", w), "weight") for w in (NAN, INF, 1.5, "0.5", None)),
    ("add_edge", ("d1", "d2", "inhibits", 0.5), "from -1 to 0"),
    ("add_edge", ("d1", "d1", "temporal", 0.5), "itself"),
    *(("neighbors", ("d1", kinds), None) for kinds in ("no", [], ["temporal", "no"], 7)),
    *(("neighbors", ("d1", "temporal", least), None) for least in (NAN, 2)),
    *(("neighbors", ("d1", "temporal", None, way), "direction") for way in ("both", None)),
    *(("traverse", ("d1", "temporal", n), "max_hops") for n in (0, -1, 1.5, "3", None, True)),
]


@pytest.mark.parametrize(("call", "given", "says"), REFUSED, ids=map(str, REFUSED))
def test_what_cannot_be_read_is_refused(graph, call, given, says):
    with pytest.raises(InvalidInputError, match=says):
        getattr(graph, call)(*given)


@pytest.mark.parametrize("node", ["nothing", "", "🦀" * 5000], ids=["word", "empty", "huge"])
def test_unknown_nodes_are_named(graph, node):
    for call, given in (
        (graph.add_edge, (node, "d2", "temporal", 0.5)),
        (graph.add_edge, ("d2", node, "temporal", 0.5)),
        (graph.neighbors, (node,)),
        (graph.traverse, (node, "temporal")),
    ):
        with pytest.raises(NotFoundError, match="there is no document"):
            call(*given)


def test_traversal_counts_fewest_hops_and_ends_in_cycles(graph, join):
    """d4 is two hops away by d2 or d3, not three by d2 and d5; the way back is not taken."""
    join(
        ("d1", "d2", 0.5),
        ("d1", "d3", -0.9),
        ("d2", "d4", 0.8),
        ("d3", "d4", 0.6),
        ("d2", "d5", 0.5),
        ("d5", "d4", 1.0),
        ("d4", "d6", 0.5),
        ("d6", "d1", 1.0),
    )
    reached = graph.traverse("d1", [SUCCESS], max_hops=9)
    found = [(one.id, one.hops) for one in reached]
    assert found == [("d3", 1), ("d2", 1), ("d4", 2), ("d5", 2), ("d6", 3)]
    by_id = {one.id: one for one in reached}
    # |-.9 · .6| is more than .5 · .8.
    assert by_id["d4"].path == ("d1", "d3", "d4")
    assert by_id["d4"].weight == pytest.approx(-0.54)
    assert by_id["d6"].path == ("d1", "d3", "d4", "d6")
    assert by_id["d6"].edge_types == (SUCCESS,) * 3
    assert by_id["d6"].weight == pytest.approx(-0.27)


def test_traversal_stops_at_its_hops_at_weak_edges_and_at_other_types(graph, join):
    join(("d1", "d2", 0.5), ("d2", "d3", -0.1), ("d3", "d4", 0.9))
    join(("d2", "d5", 0.5), kind="temporal")
    assert ids(graph.traverse("d1", SUCCESS, 2)) == ["d2", "d3"]
    assert ids(graph.traverse("d1", SUCCESS, 9, 0.2)) == ["d2"]
    _, last = graph.traverse("d1", [SUCCESS, "temporal"], 9, 0.2)
    assert (last.id, last.edge_types) == ("d5", (SUCCESS, "temporal"))


def test_traversal_is_bounded_and_keeps_the_strongest(graph, join, monkeypatch):
    set_bounds(monkeypatch, reached=3)
    join(*((("d1", f"d{i}", i / 10)) for i in range(2, 9)), ("d8", "d9", 1.0))
    assert ids(graph.traverse("d1", SUCCESS)) == ["d8", "d7", "d6"]


def test_an_edge_fades_with_what_is_learned(open_memory):
    with open_memory(half_life=1.0) as memory:
        memory.graph.add_edge("d1", "d2", "temporal", 0.8)
        turn = memory.retrieve("text 5", k=2).turn.id
        memory.record(Feedback(turn, 1.0))
        assert memory.graph.neighbors("d1", "temporal")[0].weight == pytest.approx(0.4)


def test_networkx_sees_the_graph_of_a_namespace(memory, graph, join, namespace, monkeypatch):
    """All that it sees: chunks with titles, its own notes, edges by type with their weights."""
    join(("d1", "d2", 0.4), ("d2", "d1", -0.9))
    join(("d1", "d2", 0.6), kind="temporal")
    note = memory.teach("Ask Ann.", title="Ann", related=["d3"], namespace=namespace)
    whole = graph.to_networkx()
    assert {f"d{n}" for n in range(80)} | {note} == set(whole)
    assert whole.nodes[note] == {"title": "Ann", "source": "crabpath:teaching"}
    assert whole.nodes["d1"] == {"title": "", "source": "d1"}
    assert whole["d1"]["d2"]["temporal"]["kind"] == "temporal"
    assert whole["d1"]["d2"][SUCCESS]["weight"] == pytest.approx(0.4)
    for node in ("d1", "d2", note):
        leaving = whole.edges(node, keys=True, data="weight")
        edges = [(to, kind, weight) for _, to, kind, weight in leaving]
        listed = [(to, kind, pytest.approx(weight)) for to, kind, weight in graph.neighbors(node)]
        assert sorted(edges) == sorted(listed, key=lambda edge: edge[:2])
    assert {kind for _, _, kind in graph.to_networkx("temporal").edges(keys=True)} == {"temporal"}
    assert set(memory.graph.to_networkx(namespace="nobody")) == set(whole) - {note}
    monkeypatch.setitem(sys.modules, "networkx", None)
    with pytest.raises(MissingExtraError, match=r"crabpath-retrievers\[graph\]"):
        graph.to_networkx()


def test_networkx_of_a_neighbourhood(memory, graph, join, namespace):
    """What edges join to a node in either direction, those of the strongest edges first."""
    join(("d20", "d21", 0.9), ("d22", "d20", -0.8), ("d21", "d23", 0.7), ("d20", "d24", 0.1))
    near = partial(graph.to_networkx, SUCCESS)
    assert set(near(around="d20", max_hops=1)) == {"d20", "d21", "d22", "d24"}
    assert set(near(around="d20")) == {"d20", "d21", "d22", "d24", "d23"}
    assert set(near(around="d20", limit=3)) == {"d20", "d21", "d22"}
    assert set(near(around=["d23", "d22"], max_hops=1)) == {"d23", "d22", "d21", "d20"}
    assert near(around="d20", max_hops=1).number_of_edges() == 3
    note = memory.teach("Ask Eve.", related=["d20"], namespace=namespace)
    assert note in graph.to_networkx(around="d20", max_hops=1)
    assert note not in memory.graph.to_networkx(around="d20", max_hops=1)
    for wrong in ({"around": "nope"}, {"around": note, "namespace": "eve"}):
        with pytest.raises(NotFoundError, match="no document or note"):
            graph.to_networkx(**wrong) if len(wrong) == 1 else memory.graph.to_networkx(**wrong)
    with pytest.raises(InvalidInputError, match="limit must be a whole number"):
        near(around="d20", limit=0)


async def test_graphml_can_be_read_back(memory, graph, join, namespace, tmp_path):
    """Whatever texts say: XML takes no control characters."""
    join(("d30", "d31", 0.9))
    join(("d30", "d31", 0.4), kind="temporal")
    title = 'Bell\x07 & <b> "x" 🦀 \ufffe'
    note = memory.teach("Ask.", title=title, related=["d30"], namespace=namespace)
    options = {"around": "d30", "namespace": namespace}
    path = await memory.aio.graph.write_graphml(tmp_path / "graph.graphml", **options)
    read, there = nx.read_graphml(path), graph.to_networkx(around="d30")
    assert {(a, b, facts["kind"], facts["weight"]) for a, b, facts in read.edges(data=True)} == {
        (a, b, facts["kind"], facts["weight"]) for a, b, facts in there.edges(data=True)
    }
    assert read.nodes[note]["title"] == 'Bell\ufffd & <b> "x" 🦀 \ufffd'
    assert set(read) == set(there)
    with pytest.raises(InvalidInputError, match="cannot be written"):
        memory.graph.write_graphml(tmp_path / "none" / "x", **options)


def test_the_page_names_every_type_and_runs_as_it_stands(graph):
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "typed-edges.md").read_text()
    with pytest.raises(InvalidInputError) as refused:
        graph.add_edge("d1", "d2", "none of them", 0.5)
    types = {kind.label for kind in EdgeKind} & {*re.findall(r"\w+", str(refused.value))}
    assert len(types) == 9
    assert all(f"`{name}`" in page for name in types)
    given = {}
    (code,) = [t.content for t in MarkdownIt().parse(page) if t.info == "python"]
    exec(code, given)  # noqa: S102  the page of this very repository
    memory = given["memory"]
    reached = memory.graph.traverse("find", [SUCCESS, "temporal"], max_hops=3)
    assert [(one.id, one.hops) for one in reached] == [("take", 1), ("clean", 2)]
    assert memory.graph.search("find the soap", 3)[0].node.id == "find"
    memory.close()
