"""Teaching and directing: notes are found, replaced, forgotten, and refused when they are odd."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from tables import nodes

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.core.changes import SetFrozen
from crabpath_retrievers.errors import EmbeddingMismatchError, StoreUnavailableError

pytestmark = pytest.mark.both_databases

TEXT = "Never skip CI for hotfixes."
QUESTION = "Which fruit is red?"


def test_a_note_is_found_by_what_it_says(memory, asker):
    """A query of its own words returns it first, with its contents."""
    note = memory.teach(TEXT, title="Hotfixes")
    first = asker.ask(f"Hotfixes\n{TEXT}").documents[0].node
    assert (first.id, first.content, first.title) == (note, TEXT, "Hotfixes")
    told = {"note": "teaching", "title": "Hotfixes", "source": "crabpath:teaching"}
    assert first.metadata == told


def test_a_note_comes_with_the_metadata_that_it_was_given(memory, asker):
    """What it says about its source and title stands; another metadata replaces the note."""
    given = {"source": "handbook", "title": "Rules", "since": 2024}
    note = memory.teach(TEXT, metadata=given)
    assert asker.ask(TEXT).documents[0].node.metadata == {**given, "note": "teaching"}
    assert memory.correct(TEXT, id=note, metadata={"since": 2025}) == note
    changed = asker.ask(TEXT).documents[0].node.metadata
    told = {"since": 2025, "source": "crabpath:correction", "title": "Correction"}
    assert changed == {**told, "note": "correction"}


def test_a_note_is_recalled_by_the_question_that_it_answers(memory, asker):
    """Nothing was ever learned there, and the note comes first nevertheless."""
    note = memory.teach(TEXT, query=QUESTION)
    assert asker.found(QUESTION)[0] == note
    (item, *_) = asker.ask(QUESTION).turn.returned
    assert item.features["again"] == pytest.approx(1.0, abs=0.01)


def test_notes_are_found_when_their_vectors_are_indexed(memory, asker, open_memory):
    """Behind the host, or at the next open, they move from the rows into the index."""
    note = memory.teach(TEXT)
    memory._services.notes.catch_up()
    assert memory.store.notes.count_unindexed() == 0
    assert asker.found(TEXT)[0] == note
    memory.close()
    with open_memory() as again:
        assert again.retrieve(TEXT).documents[0].node.id == note


def test_only_the_nearest_notes_are_found(memory):
    """As many as the settings say, whether they are indexed or not."""
    notes = [memory.teach(f"Fact number {n}.") for n in range(12)]
    clock = memory.store.walk.get_clock("default")
    vector = memory.embedder.query("Fact number 3.")
    for _ in range(2):
        near = memory._services.notes.near(vector, clock)
        assert len(near) == memory.settings.note.neighbours == 8
        assert next(iter(near)) == notes[3]
        assert list(near.values()) == sorted(near.values(), reverse=True)
        memory._services.notes.catch_up()


def test_the_id_follows_from_namespace_and_text(memory):
    """Teaching the same again changes nothing; elsewhere it is another note."""
    note = memory.teach(TEXT, query=QUESTION, related="a")
    before = memory.store.turns.journal()
    assert memory.teach(f"  {TEXT} ", query=QUESTION, related=["a"]) == note
    assert memory.store.turns.journal() == before
    assert memory.teach(TEXT, namespace="ann") != note
    assert memory.teach(TEXT, kind="directive") != note


def test_the_same_id_replaces_a_note(memory, asker):
    """Text, edges and the question that recalled it are those of the new one."""
    memory.teach("Old words.", id="n", related=["a"], query=QUESTION)
    memory._services.notes.catch_up()
    memory._services.episodes.catch_up()
    memory.teach(TEXT, id="n", related=["b"])
    assert asker.ask(TEXT).documents[0].node.content == TEXT
    assert asker.weights() == {("n", "b", "taught"): pytest.approx(0.6)}
    assert [item for item in asker.ask(QUESTION).turn.returned if "episode" in item.features] == []
    assert memory.store.walk.get_clock("default").notes == 1


def test_the_same_text_may_answer_several_questions(memory, asker):
    """Teaching it for another question keeps the first one, and its edges stay in bounds."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"])
    memory.teach(TEXT, query="What about hotfixes?", related=["a", "b"])
    for question in (QUESTION, "What about hotfixes?"):
        assert asker.found(question)[0] == note
    taught = {(note, node, "taught"): pytest.approx(0.6) for node in "ab"}
    assert asker.weights() == taught


def test_the_journal_tells_what_was_taught(memory):
    """By id and kind; neither text nor question stand there, so that both can be forgotten."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"])
    memory.learning.anchor(note)
    memory.forget(ids=note)
    entries = memory.store.turns.journal(3)
    assert [e["change"] for e in entries] == ["remove_notes", "authority", "note"]
    assert entries[2]["payload"] == {"id": note, "kind": "teaching"}
    assert TEXT not in str(entries)
    assert QUESTION not in str(entries)


def test_related_documents_come_with_a_note(memory, asker):
    """The note leads to them in its own namespace."""
    memory.teach(TEXT, query=QUESTION, related=["b"])
    returned = {item.node: item for item in asker.ask(QUESTION).turn.returned}
    assert returned["b"].support.kind == "taught"
    assert returned["b"].features["learned"] > 0.3


def test_a_whole_document_can_be_related(memory, asker):
    """Its id stands for its chunks."""
    long = "# One\n\nFirst part.\n\n# Two\n\nSecond part.\n"
    memory.add_documents([Document(long, id="guide.md", metadata={"source": "guide.md"})])
    note = memory.teach(TEXT, related="guide.md")
    chunks = {k.id for k in memory.store.catalog.find_chunks(documents=["guide.md"])}
    keys = memory.store.learned.keys([note, *chunks])
    weights = memory.store.learned.weights("default", list(keys.values()))
    assert {target for _, target, _ in weights} == {keys[chunk] for chunk in chunks}
    assert len(chunks) == 2


def test_a_directive_is_canonical_and_a_teaching_is_not(memory, asker):
    """Unless it is said otherwise."""
    notes = [
        memory.teach("one"),
        memory.teach("two", kind="directive"),
        memory.teach("three", authority="constitutional", kind="directive"),
    ]
    assert [asker.facts(note).kind for note in notes] == ["teaching", "directive", "directive"]
    assert [authority(memory, note) for note in notes] == [0, 1, 2]


def authority(memory, node):
    """The authority of a node as it is stored."""
    with memory.store.open_reader() as connection:
        return connection.scalar(sa.select(nodes.c.authority).where(nodes.c.id == node))


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("", {}, "text must have 1 to 20000"),
        (" \x00\n", {}, "text must have 1 to 20000"),
        ("x" * 20_001, {}, "use add_documents"),
        (None, {}, "text must be a text, not NoneType"),
        (3.5, {}, "text must be a text, not float"),
        ("t", {"authority": "divine"}, "overlay, canonical, constitutional"),
        ("t", {"authority": ["overlay"]}, "overlay, canonical, constitutional"),
        ("t", {"title": "x" * 601}, "title must have 1 to 600"),
        ("t", {"title": None}, "title must be a text"),
        ("t", {"id": ""}, "id must have 1 to 600"),
        ("t", {"id": "x" * 601}, "id must have 1 to 600"),
        ("t", {"query": " "}, "query must have 1 to"),
        ("t", {"query": float("nan")}, "query must be a text"),
        ("t", {"namespace": ""}, "namespace must be a non-empty text"),
        ("t", {"namespace": None}, "namespace must be a non-empty text"),
        ("t", {"namespace": "x" * 600}, "at most 512 characters"),
        ("t", {"metadata": 7}, "metadata must be a mapping"),
        ("t", {"related": 7}, "related must be a list of texts"),
        ("t", {"id": "a"}, "the id 'a' is taken"),
    ],
)
def test_what_cannot_be_taught_is_refused(retriever, unchanged, text, options, message):
    """The error says what to pass instead, and nothing is kept."""
    with pytest.raises(InvalidInputError, match=message):
        retriever.memory.teach(text, **options)


def test_unknown_related_ids_are_named(retriever, unchanged):
    """None of the note is kept."""
    with pytest.raises(NotFoundError, match="'nowhere', 'never'"):
        retriever.memory.teach("t", related=["a", "nowhere", "never"])


def test_odd_but_valid_texts(memory, asker):
    """Scripts without spaces, lone surrogates, emoji, and the longest note."""
    for text in ("東京の天気は晴れ", "broken \ud800 surrogate", "🦀" * 20_000, "' OR 1=1; --"):
        note = memory.teach(text)
        stored = memory.store.catalog.documents([note], namespace=asker.facts(note).owner)
        assert stored[note].content == text.replace("\ud800", "?")


def test_a_frozen_namespace_refuses(memory, asker):
    """Nothing is kept there; others learn on."""
    memory.store.apply([SetFrozen("ann", frozen=True)])
    for tell in (memory.teach, memory.teach, memory.correct):
        with pytest.raises(InvalidInputError, match="'ann' is frozen"):
            tell(TEXT, namespace="ann")
    memory.teach(TEXT)
    assert memory.store.walk.get_clock("ann").notes == 0


def test_a_note_can_be_forgotten(memory, asker):
    """With its contents, its vector, its edges and the question that recalled it."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"])
    other = memory.teach("Another.")
    memory._services.notes.catch_up()
    memory._services.episodes.catch_up()
    assert memory.forget(ids=[note, "never seen"]) == 1
    assert note not in asker.found(TEXT)
    assert asker.facts(note) is None
    clock = memory.store.walk.get_clock("default")
    assert clock.notes == 1
    assert memory.store.learned.latest_episodes(clock.key, 10) == []
    if memory._services.notes._collections.available:
        assert memory._services.notes._collections.of(clock.key).search(
            memory.embedder.query(TEXT), 5
        ) == [other]


def test_a_question_that_others_answered_too_stays_without_the_note(memory):
    """Forgetting the note takes it out of the episode that a success has added to."""
    note = memory.teach(TEXT, query=QUESTION)
    turn = memory.retrieve(QUESTION, k=4).turn.id
    memory.record(Feedback(turn, 1.0, used=["b"]))
    memory.forget(ids=note)
    clock = memory.store.walk.get_clock("default")
    (episode,) = memory.store.learned.latest_episodes(clock.key, 10)
    assert note not in episode.documents
    assert {node for node, credit in episode.documents.items() if credit > 0} == {"b"}


def test_documents_and_notes_of_one_forget(memory, asker):
    """One call may name both."""
    note = memory.teach(TEXT)
    assert memory.forget(ids=["a", note]) == 2
    assert set(asker.found(TEXT)) == {"b", "c"}


async def test_the_async_forms(memory):
    """Each does what the blocking one does."""
    taught = await memory.aio.teach(TEXT, query=QUESTION)
    directed = await memory.aio.teach("Be brief.", kind="directive")
    corrected = await memory.aio.correct("Red is a colour.", wrong=["a"])
    assert await memory.aio.learning.anchor([taught, "b"], "canonical") == 2
    facts = memory.store.notes.get_facts([taught, directed, corrected])
    assert {fact.kind for fact in facts} == {"teaching", "directive", "correction"}
    assert authority(memory, taught) == authority(memory, "b") == 1


def test_an_empty_memory_can_be_taught(tmp_path):
    """Its embedder is remembered with the first note."""
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        note = memory.teach(TEXT)
        assert [item.node.id for item in memory.retrieve(TEXT).documents] == [note]
    other = CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8))
    with other, pytest.raises(EmbeddingMismatchError):
        other.teach("more")


def test_a_closed_memory_says_so(memory):
    """As every other method does."""
    memory.close()
    for tell in (memory.teach, memory.teach, memory.correct, memory.learning.anchor):
        with pytest.raises(StoreUnavailableError, match="was closed"):
            tell("a")


def test_a_budget_and_distinct_documents_hold_notes(memory, asker):
    """The other ways to return documents know them, too."""
    note = memory.teach(TEXT, query=QUESTION)
    assert asker.found(QUESTION, one_per_document=True)[0] == note
    assert asker.found(QUESTION, max_tokens=10) == [note]
    assert asker.found(QUESTION, boost_tags=["teaching"])[0] == note
    assert memory.explain(asker.ask(QUESTION).turn.id).documents[0].id == note


def test_meaning_finds_a_note(tmp_path, embeddings):
    """With a real embedder, other words for the same find it before the documents."""
    with CrabPath.open(tmp_path, embeddings=embeddings) as memory:
        memory.add_documents([Document("Grass is green."), Document("Deploys run on Fridays.")])
        note = memory.teach("The office is closed on public holidays.")
        found = memory.retrieve("Is anybody at work on a bank holiday?", k=3).documents
    assert found[0].node.id == note
