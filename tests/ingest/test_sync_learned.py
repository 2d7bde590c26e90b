"""What was learned stays with a section through sync, in every namespace, on both databases."""

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import Feedback
from crabpath_retrievers.crabpath import CrabPath

pytestmark = pytest.mark.both_databases

QUERY = "how do I push the release and undo it?"
TEXTS = {
    "deploy.md": "Push the release with the green button once the build of today is through.",
    "undo.md": "Undo the release with the rollback script, which restores the images of yesterday.",
    "trap.md": "Push the red button to undo the release: this was the way until last year.",
    "lunch.md": "Soup is served at noon, and on Fridays there is fish.",
}
LEARNED = (
    s.overlay,
    s.weight_changes,
    s.pair_counts,
    s.usage,
    s.episodes,
    s.transitions,
    s.notes,
    s.feedback_effects,
)
ROOT = "docs/"


def pages(texts):
    """A document per file."""
    return [Document(text, metadata={"source": f"{ROOT}{name}"}) for name, text in texts.items()]


@pytest.fixture
def shared(location, embedder):
    """A memory on each database."""
    with CrabPath.open(
        location, embeddings=embedder, vectors=InMemoryVectorStore(embedder)
    ) as memory:
        yield memory


@pytest.fixture
def keys(shared):
    """Two namespaces have learned, each something else; ids and keys of the sections by file."""
    shared.sync(pages(TEXTS), roots=[ROOT])
    known = shared.store.catalog.find_under_source(ROOT)
    ids = {node.source.removeprefix(ROOT): node.id for node in known}
    for namespace, used in (("a", ["deploy.md", "undo.md"]), ("b", ["undo.md", "lunch.md"])):
        for _ in range(3):
            turn = shared.retrieve(QUERY, k=4, namespace=namespace).turn
            shared.record(Feedback(turn.id, 1.0, used=[ids[u] for u in used], namespace=namespace))
        turn = shared.retrieve(QUERY, k=4, namespace=namespace).turn
        shared.record(Feedback(turn.id, -1.0, used=[ids["trap.md"]], namespace=namespace))
    shared.correct("The red button is gone.", wrong=[ids["trap.md"]], namespace="a", id="note")
    keys = shared.store.learned.keys(list(ids.values()))
    return {name: (node, keys[node]) for name, node in ids.items()}


def learned(memory):
    """All rows of all that was learned."""
    memory.store.flush()
    with memory.store.open_reader() as connection:
        return {t.name: sorted(map(repr, connection.execute(sa.select(t)))) for t in LEARNED}


def pointers(memory, namespace, keys):
    """Weights of what one namespace sees leave the sections, between sections."""
    clock = memory.store.walk.get_clock(namespace)
    found = memory.store.walk.get_outgoing_edges([key for _, key in keys.values()], clock).pointers
    return {(p.source, p.target.key, p.kind.label): round(p.weight, 9) for p in found}


def test_there_is_something_to_lose(shared, keys):
    """Both namespaces have weights, use, episodes and blame of their own."""
    rows = learned(shared)
    for table in (
        "overlay",
        "weight_changes",
        "pair_counts",
        "usage",
        "episodes",
        "notes",
        "feedback_effects",
    ):
        assert rows[f"crabpath_{table}"], table
    assert pointers(shared, "a", keys) != pointers(shared, "b", keys)


def test_edited_moved_and_renamed_sections_keep_all_of_it(shared, keys):
    """Every row stays as it is, and leads to the new texts."""
    before = learned(shared)
    weights = {name: pointers(shared, name, keys) for name in "ab"}
    edited = {
        "ship.md": TEXTS["deploy.md"],
        "undo.md": TEXTS["undo.md"].replace("restores", "brings back"),
        "old/trap.md": TEXTS["trap.md"],
        "lunch.md": TEXTS["lunch.md"],
    }
    plan = shared.sync(pages(edited), roots=[ROOT])
    assert (plan.counts()["moved"], plan.counts()["edited"]) == (2, 1)
    assert learned(shared) == before
    after = {
        node.source.removeprefix(ROOT): node.id
        for node in shared.store.catalog.find_under_source(ROOT)
    }
    assert after["ship.md"] == keys["deploy.md"][0]
    assert shared.store.learned.keys([after["undo.md"]]) == dict([keys["undo.md"]])
    for name in "ab":
        learned_now = pointers(shared, name, keys)
        co_used = {edge: w for edge, w in weights[name].items() if edge[2] == "co_used"}
        assert co_used
        assert co_used.items() <= learned_now.items()


def test_what_retires_is_hidden_and_remembered(shared, keys):
    """Nothing leads to it while it is gone; when its text returns all weights are as they were."""
    before = learned(shared)
    weights = {name: pointers(shared, name, keys) for name in "ab"}
    gone, key = keys["undo.md"]
    left = {name: text for name, text in TEXTS.items() if name != "undo.md"}
    shared.sync(pages(left), roots=[ROOT])
    assert learned(shared) == before
    for name in "ab":
        clock = shared.store.walk.get_clock(name)
        assert key not in {target for _, target, _ in pointers(shared, name, keys)}
        assert shared.store.walk.get_nodes([gone], [key], namespace=clock.key) == []
        found = shared.retrieve(QUERY, k=4, namespace=name, seed_ids=[gone]).documents
        assert gone not in {document.node.id for document in found}
        assert len(found) == (4 if name == "a" else 3)  # a has its note
        boosted = shared.graph.search(QUERY, k=4, namespace=name)
        assert gone not in {hit.node.id for hit in boosted}
    assert not shared.store.fulltext.phrase(["rollback", "script"], 5)
    assert gone not in shared.index.search(shared.embedder.query(QUERY), 9)
    shared.sync(pages(TEXTS), roots=[ROOT])
    assert learned(shared) == before
    assert {name: pointers(shared, name, keys) for name in "ab"} == weights
    assert gone in shared.index.search(shared.embedder.query(QUERY), 9)


def test_feedback_reaches_a_retired_section(shared, keys):
    """Whoever judges an answer of yesterday is not told that its document is unknown."""
    turn = shared.retrieve(QUERY, k=4, namespace="a").turn
    shared.sync(pages({"lunch.md": TEXTS["lunch.md"]}), roots=[ROOT])
    gone, key = keys["undo.md"]
    clock = shared.store.walk.get_clock("a")
    before = shared.store.learned.usage(clock.key, [key])[key].wins
    receipt = shared.record(Feedback(turn.id, 1.0, used=[gone], namespace="a"))
    assert receipt.status == "applied"
    assert shared.store.learned.usage(clock.key, [key])[key].wins > before


def test_a_retired_hub_still_tells_its_region(shared, keys, embedder):
    """Regions are counted by their hub: it stays a place when its text goes."""
    many = {f"p{n}.md": f"Page number {n} is about topic {n}." for n in range(120)}
    shared.sync(pages({**TEXTS, **many}), roots=[ROOT])
    sizes = shared.store.regions.sizes()
    assert sizes
    shared.sync(pages(TEXTS), roots=[ROOT])
    assert shared.store.regions.sizes() == sizes
    assert [len(block) for block in shared.store.regions.iterate_nodes()] == [5 - 1]


def test_forgetting_deletes_what_retired(shared, keys):
    """Then nothing of it is left in any table."""
    shared.sync(pages({"lunch.md": TEXTS["lunch.md"]}), roots=[ROOT])
    gone, key = keys["undo.md"]
    assert shared.forget([gone]) == 1
    assert shared.store.learned.keys([gone]) == {}
    for table, column in ((s.usage, s.usage.c.node), (s.overlay, s.overlay.c.target)):
        with shared.store.open_reader() as connection:
            assert not connection.execute(sa.select(table).where(column == key)).all()
