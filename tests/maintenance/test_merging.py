"""Merging near-duplicates on real stores: what moves, what is found, what comes back."""

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document

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
from crabpath_retrievers.maintenance import MaintenanceRunner
from crabpath_retrievers.storage import GraphStore

pytestmark = pytest.mark.both_databases

CO_USED, INHIBITS = EdgeKind.CO_USED, EdgeKind.INHIBITS
QUESTION = "how do I deploy the service to the cluster?"
OF_ONE_STORE = {s.journal.name, s.staging.name, s.index_deletions.name, s.health_reports.name}


def state(memory):
    """Every row but logs, work that waits, and how often namespaces learned."""
    found = {}
    with memory.store.open_reader() as connection:
        for table in s.metadata.sorted_tables:
            if table.name not in OF_ONE_STORE:
                columns = [c for c in table.c if c is not s.namespaces.c.version]
                rows = connection.execute(sa.select(*columns))
                found[table.name] = sorted(map(repr, rows))
    return found


def learned(memory, *namespaces):
    """Both twins know things, partly of the same documents; ``new`` is used less."""
    names = ["new", "old", "panda", "rows"]
    keys = memory.store.learned.keys(names)
    new, old, panda, rows = (keys[name] for name in names)
    for name in namespaces:
        deltas = (
            WeightDelta(new, panda, CO_USED, 0.4),
            WeightDelta(old, panda, CO_USED, 0.7),
            WeightDelta(new, rows, INHIBITS, -0.6),
            WeightDelta(old, rows, INHIBITS, -0.2),
            WeightDelta(rows, new, CO_USED, 0.3),
            WeightDelta(new, old, CO_USED, 0.9),
            WeightDelta(new, 0, EdgeKind.STOP, 0.2),
        )
        vector = memory.embedder.query(QUESTION)
        memory.store.apply(
            [
                AdjustWeights(name, deltas, "cause"),
                AddUsage(name, ((new, 1.0, 2.0, 0.5), (old, 3.0, 1.0, 0.25))),
                AddPairCounts(name, ((new, panda, CO_USED, 1.0), (old, panda, CO_USED, 1.0))),
                KeepEpisode(
                    name, f"e-{name}", QUESTION, vector, 1.0, 1.0, {"new": 0.75, "panda": -0.5}
                ),
                AdvanceClock(name, exponent=0.5),
            ]
        )
    return keys


def weights(memory, namespace, source):
    """Learned weights that leave a document, by kind and target."""
    keys = memory.store.learned.keys(["new", "panda", "rows"]) | memory.store.learned.keys(["old"])
    names = {key: node for node, key in keys.items()}
    (key,) = memory.store.learned.keys([source]).values()
    found = memory.store.learned.weights(namespace, [key])
    return {(kind.label, names[target]): weight for (_, target, kind), weight in found.items()}


def ids(memory, question=QUESTION, **options):
    """What a query returns."""
    answer = memory.retrieve(question, k=4, record=False, **options)
    return [item.node.id for item in answer.documents]


def test_one_stands_for_both(twins):
    """Search finds the keeper alone, at once, and the index no longer holds the other one."""
    assert {"new", "old"} <= set(ids(twins))
    learned(twins, "ann")
    report = twins.maintenance.run(["merge"])
    (step,) = report.steps
    assert (step.looked, step.changed) == (4, 1)
    assert ids(twins)[0] == "old"
    assert "new" not in ids(twins)
    assert twins.index.count() == 3
    assert twins.index.find_existing(["new", "old"]) == {"old"}
    assert not twins.store.catalog.has_unfinished_ingest()
    (found,) = twins.store.catalog.documents(["old"]).values()
    assert found.metadata["merged_from"] == [{"id": "new", "source": "b.md"}]
    assert twins.maintenance.run(["merge"]).total_changed == 0


def test_what_was_learned_joins(twins):
    """The stronger of two weights, what inhibits most, sums of counts; in every namespace."""
    learned(twins, "ann", "bob")
    before = twins.store.learned.weights("ann", list(twins.store.learned.keys(["old"]).values()))
    strongest = {kind: weight for (_, _, kind), weight in before.items()}[CO_USED]
    twins.maintenance.run(["merge"])
    key = twins.store.learned.keys(["old"])["old"]
    for name in ("ann", "bob"):
        found = weights(twins, name, "old")
        assert found["co_used", "panda"] == strongest
        assert found["inhibits", "rows"] < -0.3
        assert set(found) == {("co_used", "panda"), ("inhibits", "rows")}
        assert ("co_used", "old") in weights(twins, name, "rows")
        space = twins.store.walk.get_clock(name)
        assert twins.store.learned.usage(space.key, [key])[key] == (4.0, 3.0, 0.75)
        counts = twins.store.learned.counts(name, [key])
        assert list(counts.values()) == [2.0]
        (episode,) = twins.store.learned.latest_episodes(space.key, 9)
        assert episode.documents == {"old": 0.75, "panda": -0.5}
    with twins.store.open_reader() as connection:
        hidden = sa.select(s.aliases.c.node)
        for table in (s.overlay, s.weight_changes, s.pair_counts, s.edges):
            ends = table.c.source.in_(hidden) | table.c.target.in_(hidden)
            assert not connection.execute(sa.select(table).where(ends)).all()


def test_undo_restores_to_the_last_bit(twins, opening):
    """In the graph store; the index holds it again."""
    learned(twins, "ann", "bob")
    twins.maintenance.run(["fade", "prune"])
    before, found = state(twins), ids(twins)
    run = twins.maintenance.run(["merge"]).run
    assert state(twins) != before
    twins.maintenance.undo(run)
    assert state(twins) == before
    assert ids(twins) == found
    assert twins.index.find_existing(["new", "old"]) == {"new", "old"}
    twins.close()
    with opening() as again:
        assert ids(again) == found


def test_what_was_learned_since_stays_with_the_keeper(twins):
    """And counts lose only what the merge had added."""
    keys = learned(twins, "ann")
    run = twins.maintenance.run(["merge"]).run
    more = WeightDelta(keys["old"], keys["panda"], CO_USED, 0.1)
    since = [AdjustWeights("ann", (more,), "later")]
    twins.store.apply([*since, AddUsage("ann", ((keys["old"], 5.0, 0.0, 0.0),))])
    now = weights(twins, "ann", "old")["co_used", "panda"]
    twins.maintenance.undo(run)
    assert weights(twins, "ann", "old")["co_used", "panda"] == now
    assert ("inhibits", "rows") in weights(twins, "ann", "new")
    space = twins.store.walk.get_clock("ann").key
    uses = twins.store.learned.usage(space, list(keys.values()))
    assert uses[keys["old"]][:2] == (8.0, 1.0)
    assert uses[keys["new"]][:2] == (1.0, 2.0)


def test_undone_feedback_does_not_come_back_with_an_undone_merge(twins):
    """What it had moved is gone for good, wherever it had gone to."""
    turn = twins.retrieve(QUESTION, k=2, namespace="ann").turn
    fed = twins.record(Feedback(turn.id, 1.0, used=["new", "old"]))
    assert fed.status == "applied"
    run = twins.maintenance.run(["merge"]).run
    assert twins.undo(turn_id=turn.id).status == "undone"
    twins.maintenance.undo(run)
    with twins.store.open_reader() as connection:
        assert not connection.execute(sa.select(s.overlay)).all()
        assert not connection.execute(sa.select(s.weight_changes)).all()
        uses = connection.execute(sa.select(s.usage.c.wins, s.usage.c.losses)).all()
    assert all(row == (0.0, 0.0) for row in uses)


def test_a_dry_run_changes_nothing(twins):
    """And counts what a run will do."""
    learned(twins, "ann")
    before, held = state(twins), twins.index.count()
    dry = twins.maintenance.run(["merge"], dry_run=True)
    assert (state(twins), twins.index.count()) == (before, held)
    assert dry.total_changed == twins.maintenance.run(["merge"]).total_changed == 1


def test_authority_decides_and_protects(twins):
    """The anchored one stands for the other; two constitutional ones stand side by side."""
    twins.learning.anchor(["new"], "canonical")
    learned(twins, "ann")
    run = twins.maintenance.run(["merge"]).run
    assert "new" in ids(twins)
    assert "old" not in ids(twins)
    twins.maintenance.undo(run)
    twins.learning.anchor(["new", "old"], "constitutional")
    assert twins.maintenance.run(["merge"]).total_changed == 0


def test_weights_stand_where_they_are_when_they_come_to_fade_otherwise(twins):
    """A keeper of more authority lets what leads to it fade slower, from where it is."""
    learned(twins, "ann")
    before = weights(twins, "ann", "rows")
    twins.learning.anchor(["old"], "constitutional")
    twins.maintenance.run(["merge"])
    (now,) = weights(twins, "ann", "rows").values()
    assert before == {("co_used", "new"): pytest.approx(now)}
    assert now < 0.3 - 0.05
    twins.store.apply([AdvanceClock("ann", exponent=3.0)])
    assert weights(twins, "ann", "rows") == {("co_used", "old"): now}


def test_notes_are_never_merged(twins):
    """Not with documents, nor across namespaces: each is one namespace's own."""
    text = "Deploys need a green canary."
    notes = [twins.teach(text, namespace=name) for name in ("ann", "bob")]
    twins.add_documents([Document(text, id="canary")], split=False)
    report = twins.maintenance.run(["merge"])
    assert report.total_changed == 1
    facts = {fact.id: fact.namespace for fact in twins.store.notes.get_facts(notes)}
    assert facts == dict(zip(notes, ("ann", "bob"), strict=True))
    assert notes[1] not in ids(twins, text, namespace="ann")


def test_beside_the_process_that_serves(twins, location):
    """The graph store alone: no query returns what was merged, and the index catches up."""
    learned(twins, "ann")
    other = GraphStore(location)
    run = MaintenanceRunner(other, twins.settings).run(["merge"]).run
    other.close()
    assert twins.index.find_existing(["new"]) == {"new"}
    assert "new" not in ids(twins)
    assert "new" not in ids(twins, namespace="ann")
    assert twins.store.catalog.get_index_deletions() == ["new"]
    twins.maintenance.run(["health"])
    assert twins.index.find_existing(["new"]) == set()
    other = GraphStore(location)
    MaintenanceRunner(other, twins.settings).undo(run)
    other.close()
    assert "new" in ids(twins)
    twins.maintenance.run(["health"])
    assert twins.index.find_existing(["new"]) == {"new"}


def test_three_merge_in_two_runs_and_part_again(twins, copy_of_twins):
    """Who stood for another one is stood for, too; runs are taken back newest first."""
    learned(twins, "ann")
    before = state(twins)
    first = twins.maintenance.run(["merge"]).run
    between = state(twins)
    twins.add_documents([copy_of_twins("third")], split=False)
    twins.learning.anchor(["third"], "canonical")
    with_third = state(twins)
    second = twins.maintenance.run(["merge"]).run
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {"new": "third", "old": "third"}
    assert [node for node in ids(twins) if node in {"new", "old", "third"}] == ["third"]
    twins.maintenance.undo(second)
    assert state(twins) == with_third
    twins.forget(ids=["third"])
    assert state(twins)[s.overlay.name] == between[s.overlay.name]
    twins.maintenance.undo(first)
    for table in ("overlay", "weight_changes", "pair_counts", "usage", "episodes", "contents"):
        assert state(twins)[f"crabpath_{table}"] == before[f"crabpath_{table}"]


@pytest.mark.parametrize("steps", [None, ["merge"]])
def test_switched_off(opening, copy_of_twins, steps):
    """Only who asks for nothing else gets it then."""
    settings = Settings().replace(maintenance=MaintenanceSettings(merge=False))
    with opening(settings=settings) as memory:
        memory.add_documents([copy_of_twins("x"), copy_of_twins("y")], split=False)
        given = () if steps is None else (steps,)
        found = {step.step: step for step in memory.maintenance.run(*given).steps}["merge"]
        assert (found.changed, dict(found.detail).get("off")) == ((1, None) if steps else (0, 1))


def test_a_forgotten_namespace_is_gone_from_the_journal(twins):
    """Also from what takes a merge back, which then brings back what others knew."""
    learned(twins, "ann", "bob")
    run = twins.maintenance.run(["merge"]).run
    ann = twins.store.walk.get_clock("ann").key
    twins.forget(namespace="ann")
    with twins.store.open_reader() as connection:
        told = "".join(filter(None, connection.scalars(sa.select(s.journal.c.inverse))))
    assert f'"namespace": {ann},' not in told
    assert "e-ann" not in told
    assert "e-bob" in told
    twins.maintenance.undo(run)
    assert ("inhibits", "rows") in weights(twins, "bob", "new")
    with twins.store.open_reader() as connection:
        assert ann not in set(connection.scalars(sa.select(s.overlay.c.namespace)))


def test_runs_that_are_taken_back_in_another_order(twins, copy_of_twins):
    """Nothing fails and nothing is counted twice; what was learned stays with who stands."""
    learned(twins, "ann")
    first = twins.maintenance.run(["merge"]).run
    twins.add_documents([copy_of_twins("third")], split=False)
    twins.learning.anchor(["third"], "canonical")
    second = twins.maintenance.run(["merge"]).run
    twins.maintenance.undo(first)
    assert twins.store.catalog.resolve_aliases(["new", "old"]) == {"old": "third"}
    twins.maintenance.undo(second)
    assert {"new", "old", "third"} <= set(ids(twins))
    space = twins.store.walk.get_clock("ann").key
    keys = twins.store.learned.keys(["new", "old", "third"])
    found = twins.store.learned.usage(space, list(keys.values()))
    assert sum(one.wins for one in found.values()) == 4.0
    assert twins.store.catalog.resolve_aliases(["new", "old", "third"]) == {}
