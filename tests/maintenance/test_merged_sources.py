"""What is merged is known to its source: added again, changed, moved and removed there."""

import pytest
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import CrabPath, CrabPathRetriever, Feedback
from crabpath_retrievers.core.changes import AddUsage, AdjustWeights, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import NotFoundError

QUESTION = "how do I deploy the service to the cluster?"
OTHER = "Cats sleep on warm roofs."


def ids(memory, question=QUESTION, **options):
    """What a query returns."""
    answer = memory.retrieve(question, k=6, record=False, **options)
    return {item.node.id for item in answer.documents}


@pytest.fixture
def merged(twins):
    """``old`` stands for ``new``, and knows something that both knew in part."""
    keys = twins.store.learned.keys(["new", "old", "panda"])
    deltas = [
        WeightDelta(keys["old"], keys["panda"], EdgeKind.CO_USED, 0.5),
        WeightDelta(keys["new"], keys["panda"], EdgeKind.CO_USED, 0.4),
    ]
    uses = ((keys["old"], 2.0, 0.0, 0.0), (keys["new"], 1.0, 0.0, 0.0))
    twins.store.apply([AdjustWeights("ann", tuple(deltas), "cause"), AddUsage("ann", uses)])
    assert twins.maintenance.run(["merge"]).total_changed == 1
    assert ids(twins) == {"old", "panda", "rows"}
    return twins


def uses(memory, node):
    """How often a document was used."""
    key = memory.store.learned.keys([node])[node]
    space = memory.store.walk.get_clock("ann").key
    found = memory.store.learned.usage(space, [key])
    return found[key].wins if key in found else 0.0


def linked(memory, node):
    """Whether it knows what it was used with."""
    keys = memory.store.learned.keys([node, "panda"])
    found = memory.store.learned.weights("ann", [keys[node]])
    return (keys[node], keys["panda"], EdgeKind.CO_USED) in found


def test_the_same_again_is_no_news(merged, copy_of_twins):
    """Nothing is added, embedded or found twice."""
    again = copy_of_twins("new").model_copy(update={"metadata": {"source": "b.md"}})
    report = merged.add_documents([again], split=False)
    assert (report.added, report.updated, report.unchanged) == (0, 0, 1)
    assert report.ids == ["new"]
    assert ids(merged) == {"old", "panda", "rows"}
    assert merged.index.count() == 3


def test_another_text_is_a_document_of_its_own(merged):
    """The keeper keeps what it knows, and no longer tells of the other one."""
    again = Document(OTHER, id="new", metadata={"source": "b.md"})
    assert merged.add_documents([again], split=False).updated == 1
    assert "new" in ids(merged, OTHER)
    assert merged.index.find_existing(["new", "old"]) == {"new", "old"}
    assert (uses(merged, "old"), uses(merged, "new")) == (3.0, 0.0)
    (keeper,) = merged.store.catalog.documents(["old"]).values()
    assert "merged_from" not in keeper.metadata
    assert not merged.store.catalog.has_unfinished_ingest()


def test_a_keeper_that_changes_leaves_the_other_text(merged):
    """It comes back, found by vector and by words, with its pointers."""
    again = Document(OTHER, id="old", metadata={"source": "a.md"})
    merged.add_documents([again], split=False)
    assert {"new", "old"} <= ids(merged) | ids(merged, OTHER)
    assert merged.index.find_existing(["new", "old"]) == {"new", "old"}
    assert uses(merged, "old") == 3.0
    assert not merged.store.catalog.has_unfinished_ingest()
    assert merged.maintenance.run(["merge"]).total_changed == 0


@pytest.mark.parametrize("given", [{"ids": ["old"]}, {"source": "a.md"}])
def test_a_keeper_that_is_forgotten_has_an_heir(merged, given):
    """The other source still says it, and all that was learned about the text goes on."""
    assert merged.forget(**given) == 1
    assert ids(merged) == {"new", "panda", "rows"}
    assert merged.index.find_existing(["new", "old"]) == {"new"}
    assert uses(merged, "new") == 3.0
    assert linked(merged, "new")
    assert merged.store.catalog.resolve_aliases(["new"]) == {}
    assert not merged.store.catalog.has_unfinished_ingest()


def test_both_are_forgotten(merged):
    """Nothing is left of the text."""
    assert merged.forget(ids=["old", "new"]) == 2
    assert ids(merged) == {"panda", "rows"}
    assert merged.index.count() == 2
    assert merged.info()["replaced"] == 0


def test_what_is_merged_is_forgotten(merged):
    """The keeper stays as it is and tells of it no more."""
    assert merged.forget(source="b.md") == 1
    assert ids(merged) == {"old", "panda", "rows"}
    (keeper,) = merged.store.catalog.documents(["old"]).values()
    assert "merged_from" not in keeper.metadata
    assert uses(merged, "old") == 3.0


def test_a_full_cleanup_knows_both(merged, copy_of_twins):
    """What is given stays merged, what is not goes."""
    a = copy_of_twins("old").model_copy(update={"metadata": {"source": "a.md"}})
    b = copy_of_twins("new").model_copy(update={"metadata": {"source": "b.md"}})
    a = a.model_copy(update={"page_content": a.page_content + "\n"})
    report = merged.add_documents([a, b], split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (2, 2)
    assert ids(merged) == {"old"}
    report = merged.add_documents([b], split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (1, 1)
    assert ids(merged) == {"new"}


def test_given_ids_lead_to_the_keeper(merged):
    """Feedback, corrections, notes, edges and hints that name what was merged."""
    turn = merged.retrieve(QUESTION, k=3, namespace="ann").turn
    receipt = merged.record(Feedback(turn.id, 1.0, used=["new"]))
    assert (receipt.status, receipt.note) == ("applied", None)
    assert uses(merged, "old") == 4.0
    assert merged.learning.anchor(["new"], "canonical") == 1
    note = merged.teach("Ask Ann first.", related=["new"], namespace="ann")
    keys = merged.store.learned.keys([note, "old"])
    pairs = {edge[:2] for edge in merged.store.learned.weights("ann", [keys[note]])}
    assert (keys[note], keys["old"]) in pairs
    merged.graph.add_edge("new", "panda", "caused_success", 0.5, namespace="ann")
    assert [n.id for n in merged.graph.neighbors("new", "caused_success", namespace="ann")] == [
        "panda"
    ]
    assert ids(merged, candidate_ids=["new", "rows"]) == {"old", "rows"}
    assert "old" in ids(merged, seed_ids=["new"])
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
    assert uses(twins, left) == 1.0
    shown = twins.explain(turn.id, namespace="ann")
    assert gone not in str(shown)
    assert twins.correct("Use the other button.", turn_id=turn.id)


def test_a_snapshot_from_before(twins):
    """What it knew of the merged document is known of the keeper."""
    keys = twins.store.learned.keys(["new", "panda"])
    delta = WeightDelta(keys["new"], keys["panda"], EdgeKind.CO_USED, 0.5)
    uses_ = ((keys["new"], 2.0, 0.0, 0.0),)
    twins.store.apply([AdjustWeights("ann", (delta,), "cause"), AddUsage("ann", uses_)])
    twins.learning.anchor(["old"], "canonical")
    taken = twins.namespaces.snapshot("ann")
    twins.maintenance.run(["merge"])
    twins.namespaces.restore(taken, namespace="ann")
    assert linked(twins, "old")
    assert uses(twins, "old") == 2.0


def test_sync_follows_both_sources(opening, tmp_path, copy_of_twins):
    """Unchanged it writes nothing; a text that goes from one file lives on in the other."""
    docs = tmp_path / "docs"
    docs.mkdir()
    text = copy_of_twins("x").page_content
    (docs / "a.md").write_text(f"# Deploying\n\n{text}\n")
    (docs / "b.md").write_text(f"# Deploying\n\n{text}\n")
    (docs / "c.md").write_text("# Cats\n\nCats sleep on warm roofs.\n")
    with opening() as memory:
        memory.sync(docs)
        assert memory.maintenance.run(["merge"]).total_changed == 1
        assert len(ids(memory)) == 2
        plan = memory.sync(docs)
        assert (bool(plan), plan.unchanged) == (False, 3)
        (gone,) = memory.store.catalog.find_aliased(memory.store.catalog.all_ids())
        keeper = memory.store.catalog.resolve_aliases([gone])[gone]
        sources = {k.id: k.source for k in memory.store.catalog.find_chunks(ids=[keeper])}
        place = docs / sources[keeper].rpartition("/")[2]
        place.unlink()
        memory.sync(docs)
        assert gone in ids(memory)
        assert keeper not in ids(memory)
        assert memory.index.find_existing([gone, keeper]) == {gone}
        place.write_text(f"# Deploying\n\n{text}\n")
        memory.sync(docs)
        assert {gone, keeper} <= ids(memory)
        assert memory.maintenance.run(["merge"]).total_changed == 1
        assert not memory.store.catalog.has_unfinished_ingest()


def test_an_archive_holds_it(merged, bag, tmp_path):
    """A copy knows what stands for what."""
    merged.transfer.export(tmp_path / "all.crabpath")
    with CrabPath.open(tmp_path / "copy", embeddings=bag) as copy:
        copy.transfer.import_archive(tmp_path / "all.crabpath")
        assert ids(copy) == {"old", "panda", "rows"}
        assert copy.store.catalog.resolve_aliases(["new"]) == {"new": "old"}
        assert copy.index.count() == 3


def test_a_namespace_from_before_the_merge(twins, bag, tmp_path):
    """What it learned elsewhere about the merged document is known of the keeper here."""
    keys = twins.store.learned.keys(["new", "panda"])
    delta = WeightDelta(keys["new"], keys["panda"], EdgeKind.CO_USED, 0.5)
    twins.store.apply([AdjustWeights("ann", (delta,), "cause")])
    twins.transfer.export(tmp_path / "ann.crabpath", namespace="ann")
    twins.forget(namespace="ann")
    twins.learning.anchor(["old"], "canonical")
    twins.maintenance.run(["merge"])
    twins.transfer.import_archive(tmp_path / "ann.crabpath")
    assert linked(twins, "old")


def test_a_store_of_somebody_else_keeps_its_documents(bag, copy_of_twins):
    """It is asked through, and never loses what others stand for."""
    theirs = InMemoryVectorStore(bag)
    theirs.add_documents([copy_of_twins("x"), copy_of_twins("y")], ids=["x", "y"])
    retriever = CrabPathRetriever.from_vectorstore(theirs)
    memory = retriever.memory
    run = memory.maintenance.run(["merge"]).run
    assert len(ids(memory)) == 1
    assert set(theirs.store) == {"x", "y"}
    memory.maintenance.undo(run)
    assert ids(memory) == {"x", "y"}
    assert set(theirs.store) == {"x", "y"}
    memory.close()


def test_new_links_lead_to_the_keeper(opening, copy_of_twins):
    """Also those to the place of what was merged."""
    with opening() as memory:
        memory.add_documents([copy_of_twins("one"), copy_of_twins("two")], split=False)
        memory.maintenance.run(["merge"])
        (gone,) = memory.store.catalog.resolve_aliases(["one", "two"])
        (left,) = {"one", "two"} - {gone}
        page = Document(f"See [how to]({gone}.md).", id="page", metadata={"source": "page.md"})
        memory.add_documents([page], split=False)
        assert [n.id for n in memory.graph.neighbors("page", "link")] == [left]
