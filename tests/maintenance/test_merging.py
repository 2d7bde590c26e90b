"""Merging near-duplicates on real stores: what moves, what is found, what comes back."""

import threading

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from maintained import (
    QUESTION,
    delta,
    has_forgotten_aliases,
    ids,
    key_of,
    make_twin,
    rows,
    usage,
    weights,
)

from crabpath_retrievers import Feedback, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.changes import (
    AddPairCounts,
    AddUsage,
    AdjustWeights,
    AdvanceClock,
    KeepEpisode,
    WeightDelta,
)
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.errors import StoreLockedError
from crabpath_retrievers.maintenance import MaintenanceRunner
from crabpath_retrievers.storage import GraphStore

CO_USED, INHIBITS = EdgeKind.CO_USED, EdgeKind.INHIBITS


def teach(memory, *namespaces):
    """Both twins know things, partly of the same documents; ``new`` is used less."""
    new, old, panda = (key_of(memory, name) for name in ("new", "old", "panda"))
    deltas = (
        delta(memory, "new", "panda", 0.4),
        delta(memory, "old", "panda", 0.7),
        delta(memory, "new", "rows", -0.6, INHIBITS),
        delta(memory, "old", "rows", -0.2, INHIBITS),
        delta(memory, "rows", "new", 0.3),
        delta(memory, "new", "old", 0.9),
        WeightDelta(new, 0, EdgeKind.STOP, 0.2),
    )
    vector, credit = memory.embedder.query(QUESTION), {"new": 0.75, "panda": -0.5}
    for name in namespaces:
        memory.store.apply(
            [
                AdjustWeights(name, deltas, "cause"),
                AddUsage(name, ((new, 1.0, 2.0, 0.5), (old, 3.0, 1.0, 0.25))),
                AddPairCounts(name, ((new, panda, CO_USED, 1.0), (old, panda, CO_USED, 1.0))),
                KeepEpisode(name, f"e-{name}", QUESTION, vector, 1.0, 1.0, credit),
                AdvanceClock(name, exponent=0.5),
            ]
        )


def merge(memory):
    return memory.maintenance.run(["merge"]).run


@pytest.mark.both_databases
def test_one_stands_for_both(chroma_twins):
    """Search finds the keeper alone, at once, and the index no longer holds the other one."""
    twins = chroma_twins
    assert {"new", "old"} <= set(ids(twins))
    teach(twins, "ann")
    (step,) = twins.maintenance.run(["merge"]).steps
    assert (step.looked, step.changed) == (4, 1)
    assert ids(twins)[0] == "old"
    assert "new" not in ids(twins)
    assert twins.index.count() == 3
    assert twins.index.find_existing(["new", "old"]) == {"old"}
    assert not twins.store.catalog.has_unfinished_ingest()
    (found,) = twins.store.catalog.documents(["old"]).values()
    assert found.metadata["merged_from"] == [{"id": "new", "source": "b.md"}]
    assert twins.maintenance.run(["merge"]).total_changed == 0


@pytest.mark.both_databases
def test_what_was_learned_joins(twins):
    """The stronger of two weights, what inhibits most, sums of counts; in every namespace."""
    teach(twins, "ann", "bob")
    strongest = weights(twins, "old")["co_used", "panda"]
    merge(twins)
    key = key_of(twins, "old")
    for name in ("ann", "bob"):
        found = weights(twins, "old", name)
        assert found["co_used", "panda"] == strongest
        assert found["inhibits", "rows"] < -0.3
        assert set(found) == {("co_used", "panda"), ("inhibits", "rows")}
        assert ("co_used", "old") in weights(twins, "rows", name)
        assert usage(twins, "old", name) == (4.0, 3.0, 0.75)
        assert list(twins.store.learned.edges(name, [key]).counts.values()) == [2.0]
        space = twins.store.walk.get_clock(name).key
        (episode,) = twins.store.learned.latest_episodes(space, 9)
        assert episode.documents == {"old": 0.75, "panda": -0.5}
    assert has_forgotten_aliases(twins)


@pytest.mark.both_databases
def test_undo_restores_to_the_last_bit(chroma_twins, open_chroma):
    """In the graph store; the index holds it again. A dry run before it changed nothing."""
    twins = chroma_twins
    teach(twins, "ann", "bob")
    twins.maintenance.run(["fade", "prune"])
    before, found = rows(twins), ids(twins)
    dry = twins.maintenance.run(["merge"], dry_run=True)
    assert rows(twins) == before
    assert twins.index.find_existing(["new", "old"]) == {"new", "old"}
    report = twins.maintenance.run(["merge"])
    assert dry.total_changed == report.total_changed == 1
    assert rows(twins) != before
    twins.maintenance.undo(report.run)
    assert rows(twins) == before
    assert ids(twins) == found
    assert twins.index.find_existing(["new", "old"]) == {"new", "old"}
    twins.close()
    with open_chroma() as again:
        assert ids(again) == found


def test_what_was_learned_since_stays_with_the_keeper(twins):
    teach(twins, "ann")
    run = merge(twins)
    since = AdjustWeights("ann", (delta(twins, "old", "panda", 0.1),), "later")
    twins.store.apply([since, AddUsage("ann", ((key_of(twins, "old"), 5.0, 0.0, 0.0),))])
    now = weights(twins, "old")["co_used", "panda"]
    twins.maintenance.undo(run)
    assert weights(twins, "old")["co_used", "panda"] == now
    assert ("inhibits", "rows") in weights(twins, "new")
    assert usage(twins, "old")[:2] == (8.0, 1.0)
    assert usage(twins, "new")[:2] == (1.0, 2.0)


def test_undone_feedback_does_not_come_back_with_an_undone_merge(twins):
    """What it had moved is gone for good, wherever it had gone to."""
    turn = twins.retrieve(QUESTION, k=2, namespace="ann").turn
    fed = twins.record(Feedback(turn.id, 1.0, used=["new", "old"]))
    assert fed.status == "applied"
    run = merge(twins)
    assert twins.undo(turn_id=turn.id).status == "undone"
    twins.maintenance.undo(run)
    assert rows(twins, s.overlay, s.weight_changes) == {
        s.overlay.name: [],
        s.weight_changes.name: [],
    }
    with twins.store.open_reader() as connection:
        uses = connection.execute(sa.select(s.usage.c.wins, s.usage.c.losses)).all()
    assert all(row == (0.0, 0.0) for row in uses)


def test_authority_decides_and_protects(twins):
    """The anchored one stands for the other; two constitutional ones stand side by side."""
    twins.learning.anchor(["new"], "canonical")
    teach(twins, "ann")
    run = merge(twins)
    assert "new" in ids(twins)
    assert "old" not in ids(twins)
    twins.maintenance.undo(run)
    twins.learning.anchor(["new", "old"], "constitutional")
    assert twins.maintenance.run(["merge"]).total_changed == 0


def test_weights_stand_where_they_are_when_they_come_to_fade_otherwise(twins):
    """A keeper of more authority lets what leads to it fade slower, from where it is."""
    teach(twins, "ann")
    before = weights(twins, "rows")
    twins.learning.anchor(["old"], "constitutional")
    merge(twins)
    (now,) = weights(twins, "rows").values()
    assert before == {("co_used", "new"): pytest.approx(now)}
    assert now < 0.3 - 0.05
    twins.store.apply([AdvanceClock("ann", exponent=3.0)])
    assert weights(twins, "rows") == {("co_used", "old"): now}


def test_notes_are_never_merged(twins):
    """Not with documents, nor across namespaces: each is one namespace's own."""
    text = "Deploys need a green canary."
    notes = [twins.teach(text, namespace=name) for name in ("ann", "bob")]
    twins.add_documents([Document(text, id="canary")], split=False)
    assert twins.maintenance.run(["merge"]).total_changed == 1
    facts = {fact.id: fact.namespace for fact in twins.store.notes.get_facts(notes)}
    assert facts == dict(zip(notes, ("ann", "bob"), strict=True))
    assert notes[1] not in ids(twins, text, namespace="ann")


@pytest.mark.both_databases
def test_beside_the_process_that_serves(chroma_twins, location):
    """The graph store alone: no query returns what was merged, and the index catches up."""
    twins = chroma_twins
    teach(twins, "ann")
    other = GraphStore(location)
    run = MaintenanceRunner(other, twins.settings).run(["merge"]).run
    assert twins.index.find_existing(["new"]) == {"new"}
    assert "new" not in ids(twins)
    assert "new" not in ids(twins, namespace="ann")
    assert twins.store.catalog.get_index_deletions() == ["new"]
    twins.maintenance.run(["health"])
    assert twins.index.find_existing(["new"]) == set()
    MaintenanceRunner(other, twins.settings).undo(run)
    other.close()
    assert "new" in ids(twins)
    twins.maintenance.run(["health"])
    assert twins.index.find_existing(["new"]) == {"new"}


def merge_third(memory):
    """Another one that says the same stands for both others."""
    memory.add_documents([make_twin("third")], split=False)
    memory.learning.anchor(["third"], "canonical")
    before = rows(memory)
    return before, merge(memory)


@pytest.mark.both_databases
def test_three_merge_in_two_runs_and_part_again(twins):
    """Who stood for another one is stood for, too; runs are taken back newest first."""
    teach(twins, "ann")
    before = rows(twins)
    first = merge(twins)
    between = rows(twins)
    with_third, second = merge_third(twins)
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {"new": "third", "old": "third"}
    assert [node for node in ids(twins) if node in {"new", "old", "third"}] == ["third"]
    twins.maintenance.undo(second)
    assert rows(twins) == with_third
    twins.forget(ids=["third"])
    assert rows(twins)[s.overlay.name] == between[s.overlay.name]
    twins.maintenance.undo(first)
    after = rows(twins)
    for table in (s.overlay, s.weight_changes, s.pair_counts, s.usage, s.episodes, s.contents):
        assert after[table.name] == before[table.name]


def test_runs_that_are_taken_back_in_another_order(twins):
    """Nothing fails and nothing is counted twice; what was learned stays with who stands."""
    teach(twins, "ann")
    first = merge(twins)
    _, second = merge_third(twins)
    twins.maintenance.undo(first)
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {"old": "third"}
    twins.maintenance.undo(second)
    assert {"new", "old", "third"} <= set(ids(twins))
    uses = [usage(twins, node) for node in ("new", "old", "third")]
    assert sum(one.wins for one in uses if one) == 4.0
    assert twins.store.catalog.resolve_aliases(["new", "old", "third"]) == {}


@pytest.mark.parametrize("steps", [None, ["merge"]])
def test_switched_off_only_who_asks_for_nothing_else_gets_it(open_memory, steps):
    settings = Settings(maintenance=MaintenanceSettings(merge=False))
    with open_memory(settings=settings) as memory:
        memory.add_documents([make_twin("x"), make_twin("y")], split=False)
        given = () if steps is None else (steps,)
        found = {step.step: step for step in memory.maintenance.run(*given).steps}["merge"]
        assert (found.changed, dict(found.detail).get("off")) == ((1, None) if steps else (0, 1))


@pytest.mark.both_databases
def test_a_forgotten_namespace_is_gone_from_the_journal(twins):
    """Also from what takes a merge back, which then brings back what others knew."""
    teach(twins, "ann", "bob")
    run = merge(twins)
    ann = twins.store.walk.get_clock("ann").key
    twins.forget(namespace="ann")
    with twins.store.open_reader() as connection:
        kept = "".join(filter(None, connection.scalars(sa.select(s.journal.c.inverse))))
    assert f'"namespace": {ann},' not in kept
    assert "e-ann" not in kept
    assert "e-bob" in kept
    twins.maintenance.undo(run)
    assert ("inhibits", "rows") in weights(twins, "new", "bob")
    with twins.store.open_reader() as connection:
        assert ann not in set(connection.scalars(sa.select(s.overlay.c.namespace)))


def test_started_twice(twins, location):
    """The second one does nothing; taken back twice, it is taken back once."""
    other = GraphStore(location)
    with other.hold_ingest_lock(), pytest.raises(StoreLockedError):
        twins.maintenance.run(["merge"])
    run = merge(twins)
    assert MaintenanceRunner(other, twins.settings).run(["merge"]).total_changed == 0
    for store in (other, twins.store):
        MaintenanceRunner(store, twins.settings).undo(run)
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {}
    other.close()


def test_beside_queries_and_learners(twins):
    """Nothing fails, nothing is learned about a document that others stand for."""
    failed, ended, learned = [], threading.Event(), []

    def work(name):
        try:
            while not ended.is_set():
                answer = twins.retrieve(QUESTION, k=3, namespace=name)
                found = {item.node.id for item in answer.documents}
                # What is merged between search and answer is left out, as if it were forgotten.
                assert len(found) == len(answer.documents) >= 2
                used = [answer.documents[0].node.id]  # of two twins one may stand for both
                receipt = twins.record(Feedback(answer.turn.id, 1.0, used=used))
                assert receipt.status == "applied"
                learned.append(name)
        except Exception as error:
            failed.append(error)
            raise

    threads = [threading.Thread(target=work, args=(name,)) for name in ("ann", "bob")]
    for thread in threads:
        thread.start()
    changed = 0
    for _ in range(6):
        report = twins.maintenance.run(["merge"])
        changed += report.total_changed
        twins.maintenance.undo(report.run)
    report = twins.maintenance.run(["merge"])
    ended.set()
    for thread in threads:
        thread.join(60)
    assert (failed, changed, report.total_changed) == ([], 6, 1)
    assert {"ann", "bob"} <= set(learned)
    assert has_forgotten_aliases(twins)
    with twins.store.open_reader() as connection:
        wins = connection.scalar(sa.select(sa.func.sum(s.usage.c.wins)))
    assert wins == len(learned)
