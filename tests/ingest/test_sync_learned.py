"""What was learned stays with a section through sync, in every namespace, on both databases."""

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document

from crabpath_retrievers import Feedback

pytestmark = pytest.mark.both_databases

QUERY = "how do I push the release and undo it?"
TEXTS = {
    "deploy.md": "Push the release with the green button once the build of today is through.",
    "undo.md": "Undo the release with the rollback script, which restores the images of yesterday.",
    "trap.md": "Push the red button to undo the release: this was the way until last year.",
    "lunch.md": "Soup is served at noon, and on Fridays there is fish.",
}
LEARNED = (
    *(s.overlay, s.weight_changes, s.pair_counts, s.usage),
    *(s.episodes, s.notes, s.feedback_effects, s.transitions),
)
ROOT = "docs/"


@pytest.fixture
def shared(location, open_memory):
    """A memory on each database."""
    return open_memory(location)


def sync(memory, texts):
    """Let a memory follow a document per file; returns the plan."""
    given = [Document(text, metadata={"source": f"{ROOT}{name}"}) for name, text in texts.items()]
    return memory.sync(given, roots=[ROOT])


def read_ids(memory):
    """Id of the section of each file."""
    found = memory.store.catalog.find_under_source(ROOT)
    return {node.source.removeprefix(ROOT): node.id for node in found}


@pytest.fixture
def keys(shared):
    """Two namespaces have learned, each something else; ids and keys of the sections by file."""
    sync(shared, TEXTS)
    ids = read_ids(shared)
    for namespace, used in (("a", ["deploy.md", "undo.md"]), ("b", ["undo.md", "lunch.md"])):
        for outcome, names in [(1.0, used)] * 3 + [(-1.0, ["trap.md"])]:
            turn = shared.retrieve(QUERY, k=4, namespace=namespace).turn
            named = [ids[name] for name in names]
            shared.record(Feedback(turn.id, outcome, used=named, namespace=namespace))
    shared.correct("The red button is gone.", wrong=[ids["trap.md"]], namespace="a", id="note")
    keys = shared.store.learned.keys(list(ids.values()))
    return {name: (node, keys[node]) for name, node in ids.items()}


def read_learned(memory):
    """All rows of all that was learned."""
    memory.store.flush()
    with memory.store.connect() as connection:
        return {t.name: sorted(map(repr, connection.execute(sa.select(t)))) for t in LEARNED}


def read_weights(memory, keys):
    """Weights of what each namespace sees leave the sections."""
    nodes, walk = [key for _, key in keys.values()], memory.store.walk
    return {
        name: {
            (p.source, p.target.key, p.kind.label): round(p.weight, 9)
            for p in walk.get_outgoing_edges(nodes, walk.get_clock(name)).pointers
        }
        for name in "ab"
    }


def test_edited_moved_and_renamed_sections_keep_all_of_it(shared, keys):
    """Every row stays as it is, and leads to the new texts."""
    before, weights = read_learned(shared), read_weights(shared, keys)
    assert all(before[table.name] for table in LEARNED[:-1])  # there is something to lose
    assert weights["a"] != weights["b"]
    edited = {
        "ship.md": TEXTS["deploy.md"],
        "undo.md": TEXTS["undo.md"].replace("restores", "returns"),
        "old/trap.md": TEXTS["trap.md"],
        "lunch.md": TEXTS["lunch.md"],
    }
    counts = sync(shared, edited).counts()
    assert (counts["moved"], counts["edited"]) == (2, 1)
    assert read_learned(shared) == before
    assert read_ids(shared)["ship.md"] == keys["deploy.md"][0]
    for name, now in read_weights(shared, keys).items():
        co_used = {edge: w for edge, w in weights[name].items() if edge[2] == "co_used"}
        assert co_used
        assert co_used.items() <= now.items()


def test_what_retires_is_hidden_and_remembered(shared, keys):
    """Nothing leads to it while it is gone; when its text returns all weights are as they were."""
    before, weights = read_learned(shared), read_weights(shared, keys)
    gone, key = keys["undo.md"]
    sync(shared, {name: text for name, text in TEXTS.items() if name != "undo.md"})
    assert read_learned(shared) == before
    for name, seen in read_weights(shared, keys).items():
        clock = shared.store.walk.get_clock(name)
        assert key not in {target for _, target, _ in seen}
        assert shared.store.walk.get_nodes([gone], [key], namespace=clock.key) == []
        found = shared.retrieve(QUERY, k=4, namespace=name, seed_ids=[gone]).documents
        assert gone not in {document.node.id for document in found}
        assert len(found) == (4 if name == "a" else 3)  # a has its note
        boosted = shared.graph.search(QUERY, k=4, namespace=name)
        assert gone not in {hit.node.id for hit in boosted}
    assert not shared.store.fulltext.find_phrases([["rollback", "script"]], 5)[0]
    assert gone not in shared.index.search(shared.embedder.query(QUERY), 9)
    sync(shared, TEXTS)
    assert read_learned(shared) == before
    assert read_weights(shared, keys) == weights
    assert gone in shared.index.search(shared.embedder.query(QUERY), 9)


def test_feedback_reaches_a_retired_section_until_it_is_forgotten(shared, keys):
    """Whoever judges an answer of yesterday is understood; afterwards no table has it."""
    turn = shared.retrieve(QUERY, k=4, namespace="a").turn
    sync(shared, {"lunch.md": TEXTS["lunch.md"]})
    gone, key = keys["undo.md"]
    before = read_learned(shared)[s.usage.name]
    shared.record(Feedback(turn.id, 1.0, used=[gone], namespace="a"))
    assert read_learned(shared)[s.usage.name] != before
    assert shared.forget([gone]) == 1
    assert shared.store.learned.keys([gone]) == {}
    for table, column in ((s.usage, s.usage.c.node), (s.overlay, s.overlay.c.target)):
        with shared.store.connect() as connection:
            assert not connection.execute(sa.select(table).where(column == key)).all()


def test_a_retired_hub_still_stands_for_its_region(shared, keys):
    """Regions are counted by their hub: it stays a place when its text goes."""
    many = {f"p{n}.md": f"Page number {n} is about topic {n}." for n in range(120)}
    sync(shared, {**TEXTS, **many})
    sizes = shared.store.regions.sizes()
    assert sizes
    sync(shared, TEXTS)
    assert shared.store.regions.sizes() == sizes
    assert [len(block) for block in shared.store.regions.iterate_nodes()] == [5 - 1]
