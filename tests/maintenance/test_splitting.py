"""Splitting broad documents on real stores: parts, what they inherit, and the way back."""

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel

from crabpath_retrievers import Feedback, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.changes import AddUsage, AdjustWeights, KeepEpisode, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.maintenance import MaintenanceRunner

RULES = MaintenanceSettings(split_above_chars=600, split_part_chars=400)
CATS = "Cats sleep on warm roofs and hunt mice in the barn at night. "
DOGS = "Dogs bark at strangers and fetch sticks from the cold river. "
MANUAL = f"# Cats\n\n{CATS * 6}\n\n# Dogs\n\n{DOGS * 6}"
OF_ONE_STORE = {s.journal.name, s.staging.name, s.index_deletions.name}


def state(memory):
    """Every row but logs, work that waits, last numbers of keys, and how often was learned."""
    found = {}
    with memory.store.open_reader() as connection:
        for table in s.metadata.sorted_tables:
            if table.name not in OF_ONE_STORE:
                columns = [c for c in table.c if c is not s.namespaces.c.version]
                rows = connection.execute(sa.select(*columns))
                found[table.name] = sorted(map(repr, rows))
    found[s.meta.name] = [row for row in found[s.meta.name] if "'hubs'" not in row]
    return found


def documents():
    """A manual of two topics, and what is about one each."""
    return [
        Document(MANUAL, id="manual", metadata={"source": "pets.md", "team": "zoo"}),
        Document("A cat on a warm roof hunts mice.", id="cat"),
        Document("A dog fetches sticks and barks.", id="dog"),
    ]


@pytest.fixture
def pets(opening):
    """They are learned about: the manual was used with both."""
    with opening(settings=Settings().replace(maintenance=RULES)) as memory:
        memory.add_documents(documents(), split=False)
        keys = memory.store.learned.keys(["manual", "cat", "dog"])
        manual = keys["manual"]
        deltas = [
            WeightDelta(manual, keys["cat"], EdgeKind.CO_USED, 0.6),
            WeightDelta(manual, keys["dog"], EdgeKind.CO_USED, 0.5),
            WeightDelta(keys["dog"], manual, EdgeKind.CO_USED, 0.4),
            WeightDelta(manual, 0, EdgeKind.STOP, 0.1),
        ]
        question = "which dog barks at strangers?"
        vector = memory.embedder.query(question)
        memory.store.apply(
            [
                AdjustWeights("ann", tuple(deltas), "cause"),
                AddUsage("ann", ((manual, 2.0, 1.0, 0.5),)),
                KeepEpisode("ann", "e", question, vector, 1.0, 1.0, {"manual": 1.0}),
            ]
        )
        memory.retrieve(question, namespace="ann")  # what was remembered is indexed then
        memory.learning.anchor(["manual"], "canonical")
        yield memory


def ids(memory, question, **options):
    """What a query returns."""
    answer = memory.retrieve(question, k=4, record=False, **options)
    return [item.node.id for item in answer.documents]


def parts(memory):
    """The parts of the manual, in their order."""
    with memory.store.open_reader() as connection:
        rows = connection.execute(
            sa.select(s.nodes.c.id)
            .join(s.aliases, s.aliases.c.target == s.nodes.c.key)
            .where(s.aliases.c.kind == "split")
            .order_by(s.aliases.c.position)
        )
        return list(rows.scalars())


def test_parts_stand_for_the_whole(pets):
    """They are found instead of it, each for its own question; they are siblings."""
    report = pets.maintenance.run(["split"])
    (step,) = report.steps
    assert (step.looked, step.changed, step.detail["parts"]) == (1, 1, 2)
    cats, dogs = parts(pets)
    assert ids(pets, "cats sleep on warm roofs")[0] == cats
    assert ids(pets, "dogs bark at strangers")[0] == dogs
    assert "manual" not in ids(pets, "cats and dogs")
    assert pets.index.find_existing(["manual", cats, dogs]) == {cats, dogs}
    assert [n.id for n in pets.graph.neighbors(cats, "sibling")] == [dogs]
    found = pets.store.catalog.documents([cats, dogs])
    assert {node.metadata["split_from"] for node in found.values()} == {"manual"}
    assert {node.metadata["team"] for node in found.values()} == {"zoo"}
    assert {node.source for node in found.values()} == {"pets.md"}
    with pets.store.open_reader() as connection:
        ranks = sa.select(s.nodes.c.authority).where(s.nodes.c.id.in_([cats, dogs]))
        assert list(connection.scalars(ranks)) == [1, 1]
    assert not pets.store.catalog.has_unfinished_ingest()
    assert pets.maintenance.run(["split"]).total_changed == 0
    assert pets.maintenance.run(["merge"]).total_changed == 0


def test_parts_inherit_what_was_learned(pets):
    """An edge goes to the part nearest to its other end; an episode to that of its query."""
    pets.maintenance.run(["split"])
    cats, dogs = parts(pets)
    keys = pets.store.learned.keys([cats, dogs, "cat", "dog"])
    found = pets.store.learned.weights("ann", list(keys.values()))
    pairs = {edge[:2]: weight for edge, weight in found.items()}
    assert pairs[keys[cats], keys["cat"]] == pytest.approx(0.6)
    assert pairs[keys[dogs], keys["dog"]] == pytest.approx(0.5)
    assert pairs[keys["dog"], keys[dogs]] == pytest.approx(0.4)
    assert len(pairs) == 3
    space = pets.store.walk.get_clock("ann").key
    assert pets.store.learned.usage(space, [keys[cats]])[keys[cats]].wins == 2.0
    (episode,) = pets.store.learned.latest_episodes(space, 9)
    assert episode.documents == {dogs: 1.0}


def test_undo_restores_to_the_last_bit(pets):
    """Parts are gone from both stores."""
    before, found = state(pets), ids(pets, "cats and dogs")
    run = pets.maintenance.run(["split"]).run
    made = parts(pets)
    pets.maintenance.undo(run)
    assert state(pets) == before
    assert ids(pets, "cats and dogs") == found
    assert pets.index.find_existing(["manual", *made]) == {"manual"}
    assert not pets.store.catalog.has_unfinished_ingest()


def test_what_parts_learned_goes_to_the_whole(pets):
    """When they are taken back, nothing is lost."""
    run = pets.maintenance.run(["split"]).run
    cats, dogs = parts(pets)
    turn = pets.retrieve("cats sleep on warm roofs", k=2, namespace="ann").turn
    pets.record(Feedback(turn.id, 1.0, used=[cats]))
    keys = pets.store.learned.keys([dogs, "dog"])
    more = WeightDelta(keys[dogs], keys["dog"], EdgeKind.CO_USED, 0.2)
    pets.store.apply([AdjustWeights("ann", (more,), "later")])
    pets.maintenance.undo(run)
    key = pets.store.learned.keys(["manual"])["manual"]
    space = pets.store.walk.get_clock("ann").key
    assert pets.store.learned.usage(space, [key])[key].wins == 3.0
    pairs = {e[1]: w for e, w in pets.store.learned.weights("ann", [key]).items()}
    assert pairs[keys["dog"]] == pytest.approx(0.7, abs=0.05)
    credit = [e.documents for e in pets.store.learned.latest_episodes(space, 9)]
    named = {node for one in credit for node in one}
    assert "manual" in named
    assert not named & {cats, dogs}


def test_the_source_knows_the_whole(pets):
    """Unchanged it is no news; changed it stands for itself, with all that was learned."""
    pets.maintenance.run(["split"])
    made = parts(pets)
    report = pets.add_documents(documents(), split=False)
    assert (report.added, report.updated, report.removed, report.unchanged) == (0, 0, 0, 3)
    report = pets.add_documents(documents(), split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (0, 3)
    assert parts(pets) == made
    changed = documents()[0].model_copy(update={"page_content": f"{MANUAL} Fish swim."})
    assert pets.add_documents([changed], split=False).updated == 1
    assert parts(pets) == []
    assert "manual" in ids(pets, "cats and dogs")
    assert pets.index.find_existing(["manual", *made]) == {"manual"}
    key = pets.store.learned.keys(["manual"])["manual"]
    assert len(pets.store.learned.weights("ann", [key])) == 2
    assert not pets.store.catalog.has_unfinished_ingest()


@pytest.mark.parametrize("which", ["whole", "part", "source"])
def test_parts_are_forgotten_with_the_whole(pets, which):
    """However it is named."""
    pets.maintenance.run(["split"])
    made = parts(pets)
    given = {
        "whole": {"ids": ["manual"]},
        "part": {"ids": made[1:]},
        "source": {"source": "pets.md"},
    }
    assert pets.forget(**given[which]) == 1
    assert set(ids(pets, "cats and dogs")) == {"cat", "dog"}
    assert pets.index.count() == 2
    with pets.store.open_reader() as connection:
        texts = connection.scalars(sa.select(s.contents.c.content))
        assert not [text for text in texts if "barn" in text]


def test_its_id_leads_to_the_first_part(pets):
    """For feedback on an answer from before."""
    turn = pets.retrieve("cats and dogs", k=1, namespace="bob").turn
    (item,) = turn.returned
    assert item.node == "manual"
    pets.maintenance.run(["split"])
    cats, _ = parts(pets)
    assert pets.record(Feedback(turn.id, 1.0, used=["manual"])).status == "applied"
    key = pets.store.learned.keys([cats])[cats]
    space = pets.store.walk.get_clock("bob").key
    assert pets.store.learned.usage(space, [key])[key].wins == 1.0


def test_a_dry_run_changes_nothing(pets):
    """And counts what a run will do."""
    before = state(pets)
    dry = pets.maintenance.run(["split"], dry_run=True)
    assert state(pets) == before
    assert dry.total_changed == pets.maintenance.run(["split"]).total_changed == 1


def test_only_who_asks_gets_it(pets):
    """The ids of what is returned change with it, so no schedule splits unasked."""
    found = {step.step: step for step in pets.maintenance.run().steps}["split"]
    assert (found.changed, found.detail) == (0, {"off": 1})
    alone = MaintenanceRunner(pets.store, pets.settings).run(["split"])
    assert alone.steps[0].detail == {"needs an embedder": 1}


def test_what_is_constitutional_stays_whole(pets):
    """And what stands for others."""
    pets.learning.anchor(["manual"], "constitutional")
    assert pets.maintenance.run(["split"]).total_changed == 0


@pytest.mark.parametrize(
    ("answer", "mixed"),
    [("[4]", 0), ("Sure: [4] is it.", 0), ("Ignore all, I will delete it.", 1), ("[99, 0]", 1)],
)
def test_a_chat_model_says_where_topics_begin(opening, answer, mixed):
    """Where there are no headings; what cannot be meant leaves it to sentences."""
    plain = f"{CATS * 4}{DOGS * 6}".strip()
    with opening(
        settings=Settings().replace(
            maintenance=RULES.replace(split_below_similarity=1.0, split_min_questions=1)
        ),
        router=FakeListChatModel(responses=[answer]),
    ) as memory:
        memory.add_documents([Document(plain, id="manual")], split=False)
        vectors = [memory.embedder.query(text) for text in ("cats", "dogs")]
        for number, vector in enumerate(vectors):
            memory.store.apply(
                [KeepEpisode("ann", f"e{number}", "x", vector, 1.0, 1.0, {"manual": 1.0})]
            )
        assert memory.maintenance.run(["split"]).total_changed == 1
        texts = [n.content for n in memory.store.catalog.documents(parts(memory)).values()]
        assert len(texts) == 2
        assert sum("Cats" in text and "Dogs" in text for text in texts) == mixed
        assert sorted(" ".join(texts).split()) == sorted(plain.split())


def test_health_sees_what_grows_together_again(pets):
    """A document that was split, whose parts are used together."""
    pets.maintenance.run(["split"])
    metrics = pets.maintenance.health("ann").metrics
    (found,) = (m for m in metrics if m.name == "reconvergence_rate")
    assert (found.value, found.sampled) == (0.0, 1)
    keys = pets.store.learned.keys(parts(pets))
    cats, dogs = (keys[part] for part in parts(pets))
    both = [WeightDelta(a, b, EdgeKind.CO_USED, 0.9) for a, b in ((cats, dogs), (dogs, cats))]
    pets.store.apply([AdjustWeights("ann", tuple(both), "cause")])
    (found,) = (m for m in pets.maintenance.health("ann").metrics if m.name == "reconvergence_rate")
    assert found.value == 1.0
