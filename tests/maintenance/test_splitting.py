"""Splitting broad documents on real stores: parts, what they inherit, and the way back."""

import pytest
import sqlalchemy as sa
import tables as s
from langchain_core.documents import Document
from langchain_core.language_models import FakeListChatModel
from maintained import delta, ids, key_of, rows, usage

from crabpath_retrievers import Feedback, Settings
from crabpath_retrievers.config.maintenance import MaintenanceSettings
from crabpath_retrievers.core.changes import AddUsage, AdjustWeights, KeepEpisode, WeightDelta
from crabpath_retrievers.core.graph import EdgeKind
from crabpath_retrievers.maintenance import MaintenanceRunner

RULES = MaintenanceSettings(split_above_chars=600, split_part_chars=400)
CATS = "Cats sleep on warm roofs and hunt mice in the barn at night. "
DOGS = "Dogs bark at strangers and fetch sticks from the cold river. "
MANUAL = Document(
    f"# Cats\n\n{CATS * 6}\n\n# Dogs\n\n{DOGS * 6}",
    id="manual",
    metadata={"source": "pets.md", "team": "zoo"},
)
DOCUMENTS = [
    MANUAL,
    Document("A cat on a warm roof hunts mice.", id="cat"),
    Document("A dog fetches sticks and barks.", id="dog"),
]


@pytest.fixture
def pets(open_chroma):
    """A manual of two topics was used with what is about one each."""
    with open_chroma(settings=Settings(maintenance=RULES)) as memory:
        memory.add_documents(DOCUMENTS, split=False)
        manual, question = key_of(memory, "manual"), "which dog barks at strangers?"
        deltas = (
            delta(memory, "manual", "cat", 0.6),
            delta(memory, "manual", "dog", 0.5),
            delta(memory, "dog", "manual", 0.4),
            WeightDelta(manual, 0, EdgeKind.STOP, 0.1),
        )
        vector = memory.embedder.query(question)
        memory.store.apply(
            [
                AdjustWeights("ann", deltas, "cause"),
                AddUsage("ann", ((manual, 2.0, 1.0, 0.5),)),
                KeepEpisode("ann", "e", question, vector, 1.0, 1.0, {"manual": 1.0}),
            ]
        )
        memory.retrieve(question, namespace="ann")  # what was remembered is indexed then
        memory.learning.anchor(["manual"], "canonical")
        yield memory


def split(memory):
    return memory.maintenance.run(["split"]).run


def find_parts(memory):
    with memory.store.open_reader() as connection:
        query = (
            sa.select(s.nodes.c.id)
            .join(s.aliases, s.aliases.c.target == s.nodes.c.key)
            .where(s.aliases.c.kind == "split")
            .order_by(s.aliases.c.position)
        )
        return list(connection.scalars(query))


def credited(memory):
    space = memory.store.walk.get_clock("ann").key
    return [episode.documents for episode in memory.store.learned.latest_episodes(space, 9)]


def test_parts_stand_for_the_whole(pets):
    """They are found instead of it, each for its own question; they are siblings."""
    (step,) = pets.maintenance.run(["split"]).steps
    assert (step.looked, step.changed, step.detail["parts"]) == (1, 1, 2)
    cats, dogs = find_parts(pets)
    assert ids(pets, "cats sleep on warm roofs")[0] == cats
    assert ids(pets, "dogs bark at strangers")[0] == dogs
    assert "manual" not in ids(pets, "cats and dogs")
    assert pets.index.find_existing(["manual", cats, dogs]) == {cats, dogs}
    assert [n.id for n in pets.graph.neighbors(cats, "sibling")] == [dogs]
    found = pets.store.catalog.documents([cats, dogs]).values()
    assert [node.metadata["split_from"] for node in found] == ["manual"] * 2
    assert [(node.metadata["team"], node.source) for node in found] == [("zoo", "pets.md")] * 2
    with pets.store.open_reader() as connection:
        ranks = sa.select(s.nodes.c.authority).where(s.nodes.c.id.in_([cats, dogs]))
        assert list(connection.scalars(ranks)) == [1, 1]
    assert not pets.store.catalog.has_unfinished_ingest()
    assert pets.maintenance.run(["split"]).total_changed == 0
    assert pets.maintenance.run(["merge"]).total_changed == 0


@pytest.mark.both_databases
def test_parts_inherit_what_was_learned(pets):
    """An edge goes to the part nearest to its other end; an episode to that of its query."""
    split(pets)
    cats, dogs = find_parts(pets)
    keys = pets.store.learned.keys([cats, dogs, "cat", "dog"])
    names = {key: node for node, key in keys.items()}
    found = pets.store.learned.weights("ann", list(names))
    pairs = {(names[source], names[target]): w for (source, target, _), w in found.items()}
    expected = {(cats, "cat"): 0.6, (dogs, "dog"): 0.5, ("dog", dogs): 0.4}
    assert pairs == pytest.approx(expected)
    assert usage(pets, cats).wins == 2.0
    assert credited(pets) == [{dogs: 1.0}]


@pytest.mark.both_databases
def test_undo_restores_to_the_last_bit(pets):
    """Parts are gone from both stores. A dry run before it changed nothing."""
    before, found = rows(pets), ids(pets, "cats and dogs")
    dry = pets.maintenance.run(["split"], dry_run=True)
    assert rows(pets) == before
    report = pets.maintenance.run(["split"])
    assert dry.total_changed == report.total_changed == 1
    made = find_parts(pets)
    pets.maintenance.undo(report.run)
    assert rows(pets) == before
    assert ids(pets, "cats and dogs") == found
    assert pets.index.find_existing(["manual", *made]) == {"manual"}
    assert not pets.store.catalog.has_unfinished_ingest()


def test_what_parts_learned_goes_to_the_whole(pets):
    run = split(pets)
    cats, dogs = find_parts(pets)
    turn = pets.retrieve("cats sleep on warm roofs", k=2, namespace="ann").turn
    pets.record(Feedback(turn.id, 1.0, used=[cats]))
    more = AdjustWeights("ann", (delta(pets, dogs, "dog", 0.2),), "later")
    pets.store.apply([more])
    pets.maintenance.undo(run)
    assert usage(pets, "manual").wins == 3.0
    found = pets.store.learned.weights("ann", [key_of(pets, "manual")])
    (weight,) = [w for edge, w in found.items() if edge[1] == key_of(pets, "dog")]
    assert weight == pytest.approx(0.7, abs=0.05)
    named = {node for documents in credited(pets) for node in documents}
    assert "manual" in named
    assert not named & {cats, dogs}


def test_the_source_knows_the_whole(pets):
    """Unchanged it is no news; changed it stands for itself, with all that was learned."""
    split(pets)
    made = find_parts(pets)
    report = pets.add_documents(DOCUMENTS, split=False)
    assert (report.added, report.updated, report.removed, report.unchanged) == (0, 0, 0, 3)
    report = pets.add_documents(DOCUMENTS, split=False, cleanup="full")
    assert (report.removed, report.unchanged) == (0, 3)
    assert find_parts(pets) == made
    changed = MANUAL.model_copy(update={"page_content": f"{MANUAL.page_content} Fish swim."})
    assert pets.add_documents([changed], split=False).updated == 1
    assert find_parts(pets) == []
    assert "manual" in ids(pets, "cats and dogs")
    assert pets.index.find_existing(["manual", *made]) == {"manual"}
    assert len(pets.store.learned.weights("ann", [key_of(pets, "manual")])) == 2
    assert not pets.store.catalog.has_unfinished_ingest()


@pytest.mark.parametrize("which", ["whole", "part", "source"])
def test_parts_are_forgotten_with_the_whole(pets, which):
    split(pets)
    made = find_parts(pets)
    given = {
        "whole": {"ids": ["manual"]},
        "part": {"ids": made[1:]},
        "source": {"source": "pets.md"},
    }
    assert pets.forget(**given[which]) == 1
    assert set(ids(pets, "cats and dogs")) == {"cat", "dog"}
    assert pets.index.find_existing(["manual", *made]) == set()
    assert not [row for row in rows(pets, s.contents)[s.contents.name] if "barn" in row]


def test_its_id_leads_to_the_first_part(pets):
    turn = pets.retrieve("cats and dogs", k=1, namespace="bob").turn
    assert [item.node for item in turn.returned] == ["manual"]
    split(pets)
    assert pets.record(Feedback(turn.id, 1.0, used=["manual"])).status == "applied"
    assert usage(pets, find_parts(pets)[0], "bob").wins == 1.0


def test_only_who_asks_gets_it_and_what_is_constitutional_stays_whole(pets):
    """The ids of what is returned change with it, so no schedule splits unasked."""
    found = {step.step: step for step in pets.maintenance.run().steps}["split"]
    assert (found.changed, found.detail) == (0, {"off": 1})
    alone = MaintenanceRunner(pets.store, pets.settings).run(["split"])
    assert alone.steps[0].detail == {"needs an embedder": 1}
    pets.learning.anchor(["manual"], "constitutional")
    assert pets.maintenance.run(["split"]).total_changed == 0


@pytest.mark.parametrize(
    ("answer", "mixed"),
    [("[4]", 0), ("Sure: [4] is it.", 0), ("Ignore all, I will delete it.", 1), ("[99, 0]", 1)],
)
def test_a_chat_model_says_where_topics_begin(open_memory, answer, mixed):
    """Where there are no headings; what cannot be meant leaves it to sentences."""
    plain = f"{CATS * 4}{DOGS * 6}".strip()
    rules = RULES.replace(split_below_similarity=1.0, split_min_questions=1)
    router = FakeListChatModel(responses=[answer])
    with open_memory(settings=Settings(maintenance=rules), router=router) as memory:
        memory.add_documents([Document(plain, id="manual")], split=False)
        for text in ("cats", "dogs"):
            vector = memory.embedder.query(text)
            episode = KeepEpisode("ann", f"e{text}", "x", vector, 1.0, 1.0, {"manual": 1.0})
            memory.store.apply([episode])
        assert memory.maintenance.run(["split"]).total_changed == 1
        texts = [n.content for n in memory.store.catalog.documents(find_parts(memory)).values()]
        assert len(texts) == 2
        assert sum("Cats" in text and "Dogs" in text for text in texts) == mixed
        assert sorted(" ".join(texts).split()) == sorted(plain.split())


def test_health_sees_what_grows_together_again(pets):
    """A document that was split, whose parts are used together."""
    split(pets)
    found = pets.maintenance.health("ann")["reconvergence_rate"]
    assert (found.value, found.sampled) == (0.0, 1)
    cats, dogs = find_parts(pets)
    both = (delta(pets, cats, dogs, 0.9), delta(pets, dogs, cats, 0.9))
    pets.store.apply([AdjustWeights("ann", both, "cause")])
    assert pets.maintenance.health("ann")["reconvergence_rate"].value == 1.0
