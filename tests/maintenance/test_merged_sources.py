"""What is merged is known to its source: added again, changed, moved and removed there."""

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from maintained import QUESTION, STEPS, Bag, delta, ids, key_of, make_twin, usage, weights

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback
from crabpath_retrievers.core.changes import AddUsage, AdjustWeights
from crabpath_retrievers.errors import NotFoundError

OTHER = "Cats sleep on warm roofs."
NEW = Document(STEPS, id="new", metadata={"source": "b.md"})


def find(memory, question=QUESTION, **options):
    return set(ids(memory, question, **options))


def learn(memory, **wins):
    """What these documents were used with and how often."""
    deltas = tuple(delta(memory, node, "panda", 0.5) for node in wins)
    uses = tuple((key_of(memory, node), float(won), 0.0, 0.0) for node, won in wins.items())
    memory.store.apply([AdjustWeights("ann", deltas, "cause"), AddUsage("ann", uses)])


@pytest.fixture
def merged(chroma_twins):
    """``old`` stands for ``new``, and knows something that both knew in part."""
    learn(chroma_twins, old=2, new=1)
    assert chroma_twins.maintenance.run(["merge"]).total_changed == 1
    assert find(chroma_twins) == {"old", "panda", "rows"}
    return chroma_twins


def wins(memory, node):
    found = usage(memory, node)
    return found.wins if found else 0.0


def is_linked(memory, node):
    return ("co_used", "panda") in weights(memory, node)


def tells_of_others(memory, node):
    (found,) = memory.store.catalog.documents([node]).values()
    return "merged_from" in found.metadata


def indexed(memory):
    return memory.index.find_existing(["new", "old"])


def test_the_same_again_is_no_news(merged):
    report = merged.add_documents([NEW], split=False)
    assert (report.added, report.updated, report.unchanged) == (0, 0, 1)
    assert report.ids == ["new"]
    assert find(merged) == {"old", "panda", "rows"}
    assert indexed(merged) == {"old"}


def test_another_text_is_a_document_of_its_own(merged):
    """The keeper keeps what it knows, and no longer tells of the other one."""
    again = NEW.model_copy(update={"page_content": OTHER})
    assert merged.add_documents([again], split=False).updated == 1
    assert "new" in find(merged, OTHER)
    assert indexed(merged) == {"new", "old"}
    assert (wins(merged, "old"), wins(merged, "new")) == (3.0, 0.0)
    assert not tells_of_others(merged, "old")
    assert not merged.store.catalog.has_unfinished_ingest()


def test_a_keeper_that_changes_leaves_the_other_text(merged):
    """It comes back, found by vector and by words, with its pointers."""
    again = Document(OTHER, id="old", metadata={"source": "a.md"})
    merged.add_documents([again], split=False)
    assert {"new", "old"} <= find(merged) | find(merged, OTHER)
    assert indexed(merged) == {"new", "old"}
    assert wins(merged, "old") == 3.0
    assert not merged.store.catalog.has_unfinished_ingest()
    assert merged.maintenance.run(["merge"]).total_changed == 0


@pytest.mark.parametrize("given", [{"ids": ["old"]}, {"source": "a.md"}], ids=["id", "source"])
def test_a_keeper_that_is_forgotten_has_an_heir(merged, given):
    """The other source still says it, and all that was learned about the text goes on."""
    assert merged.forget(**given) == 1
    assert find(merged) == {"new", "panda", "rows"}
    assert indexed(merged) == {"new"}
    assert wins(merged, "new") == 3.0
    assert is_linked(merged, "new")
    assert merged.store.catalog.resolve_aliases(["new"]) == {}
    assert not merged.store.catalog.has_unfinished_ingest()


def test_both_are_forgotten(merged):
    assert merged.forget(ids=["old", "new"]) == 2
    assert find(merged) == {"panda", "rows"}
    assert indexed(merged) == set()
    assert merged.info()["replaced"] == 0


def test_what_is_merged_is_forgotten(merged):
    """The keeper stays as it is and tells of it no more."""
    assert merged.forget(source="b.md") == 1
    assert find(merged) == {"old", "panda", "rows"}
    assert not tells_of_others(merged, "old")
    assert wins(merged, "old") == 3.0


def test_a_full_cleanup_knows_both(merged):
    old = Document(f"{STEPS}\n", id="old", metadata={"source": "a.md"})
    report = merged.add_documents([old, NEW], split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (2, 2)
    assert find(merged) == {"old"}
    report = merged.add_documents([NEW], split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (1, 1)
    assert find(merged) == {"new"}


def test_given_ids_lead_to_the_keeper(merged):
    """Feedback, corrections, notes, edges and hints that name what was merged."""
    turn = merged.retrieve(QUESTION, k=3, namespace="ann").turn
    receipt = merged.record(Feedback(turn.id, 1.0, used=["new"]))
    assert (receipt.status, receipt.note) == ("applied", None)
    assert wins(merged, "old") == 4.0
    assert merged.learning.anchor(["new"], "canonical") == 1
    note = merged.teach("Ask Ann first.", related=["new"], namespace="ann")
    assert "old" in {target for _, target in weights(merged, note)}
    merged.graph.add_edge("new", "panda", "caused_success", 0.5, namespace="ann")
    (near,) = merged.graph.neighbors("new", "caused_success", namespace="ann")
    assert near.id == "panda"
    assert find(merged, candidate_ids=["new", "rows"]) == {"old", "rows"}
    assert "old" in find(merged, seed_ids=["new"])
    assert merged.correct("Never on Fridays.", wrong=["new"], namespace="ann")
    with pytest.raises(NotFoundError):
        merged.graph.add_edge("none", "panda", "caused_success", 0.5)


def test_feedback_on_an_answer_from_before(twins):
    """What was returned then is the keeper now; so is what is explained."""
    turn = twins.retrieve(QUESTION, k=2, namespace="ann").turn
    assert {item.node for item in turn.returned} == {"new", "old"}
    twins.maintenance.run(["merge"])
    (gone,) = twins.store.catalog.resolve_aliases(["new", "old"])
    assert twins.record(Feedback(turn.id, 1.0, used=[gone])).status == "applied"
    (left,) = {"new", "old"} - {gone}
    assert wins(twins, left) == 1.0
    assert gone not in str(twins.explain(turn.id, namespace="ann"))
    assert twins.correct("Use the other button.", turn_id=turn.id)


@pytest.mark.parametrize("way", ["snapshot", "archive"])
def test_what_was_kept_before_the_merge_is_known_of_the_keeper(twins, tmp_path, way):
    learn(twins, new=2)
    twins.learning.anchor(["old"], "canonical")
    if way == "snapshot":
        taken = twins.namespaces.snapshot("ann")
        twins.maintenance.run(["merge"])
        twins.namespaces.restore(taken, namespace="ann")
    else:
        twins.transfer.export(tmp_path / "ann.crabpath", namespace="ann")
        twins.forget(namespace="ann")
        twins.maintenance.run(["merge"])
        twins.transfer.import_archive(tmp_path / "ann.crabpath")
    assert is_linked(twins, "old")
    assert wins(twins, "old") == 2.0


def test_an_archive_holds_it(merged, tmp_path):
    merged.transfer.export(tmp_path / "all.crabpath")
    with CrabPath.open(tmp_path / "copy", embeddings=Bag()) as copy:
        copy.transfer.import_archive(tmp_path / "all.crabpath")
        assert find(copy) == {"old", "panda", "rows"}
        assert copy.store.catalog.resolve_aliases(["new"]) == {"new": "old"}
        assert copy.index.count() == 3


def test_sync_follows_both_sources(open_chroma, tmp_path):
    """Unchanged it writes nothing; a text that goes from one file lives on in the other."""
    docs, text = tmp_path / "docs", f"# Deploying\n\n{STEPS}\n"
    docs.mkdir()
    for name in ("a.md", "b.md"):
        (docs / name).write_text(text)
    (docs / "c.md").write_text(f"# Cats\n\n{OTHER}\n")
    with open_chroma() as memory:
        catalog = memory.store.catalog
        memory.sync(docs)
        assert memory.maintenance.run(["merge"]).total_changed == 1
        assert len(find(memory)) == 2
        plan = memory.sync(docs)
        assert (bool(plan), plan.unchanged) == (False, 3)
        (gone,) = catalog.find_aliased(catalog.all_ids())
        keeper = catalog.resolve_aliases([gone])[gone]
        (chunk,) = catalog.find_chunks(ids=[keeper])
        place = docs / chunk.source.rpartition("/")[2]
        place.unlink()
        memory.sync(docs)
        assert gone in find(memory)
        assert keeper not in find(memory)
        assert memory.index.find_existing([gone, keeper]) == {gone}
        place.write_text(text)
        memory.sync(docs)
        assert {gone, keeper} <= find(memory)
        assert memory.maintenance.run(["merge"]).total_changed == 1
        assert not catalog.has_unfinished_ingest()


def test_a_store_of_somebody_else_keeps_its_documents():
    """It is asked through, and never loses what others stand for."""
    theirs = InMemoryVectorStore(Bag())
    theirs.add_documents([make_twin("x"), make_twin("y")], ids=["x", "y"])
    memory = CrabPathRetriever.from_vectorstore(theirs).memory
    run = memory.maintenance.run(["merge"]).run
    assert len(ids(memory)) == 1
    assert set(theirs.store) == {"x", "y"}
    memory.maintenance.undo(run)
    assert find(memory) == {"x", "y"}
    assert set(theirs.store) == {"x", "y"}
    memory.close()


def test_new_links_lead_to_the_keeper(merged):
    page = Document("See [how to](b.md).", id="page", metadata={"source": "page.md"})
    merged.add_documents([page], split=False)
    assert [near.id for near in merged.graph.neighbors("page", "link")] == ["old"]
