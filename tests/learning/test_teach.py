"""Teaching, directing and anchoring: notes are recalled, replaced, forgotten, and refused."""

import pytest
import sqlalchemy as sa
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from tables import nodes

from crabpath_retrievers import CrabPath, Feedback, InvalidInputError, NotFoundError
from crabpath_retrievers.core.changes import SetFrozen
from crabpath_retrievers.errors import EmbeddingMismatchError

TEXT = "Never skip CI for hotfixes."
QUESTION = "Which fruit is red?"
TWO_PARTS = "# One\n\nFirst part.\n\n# Two\n\nSecond part.\n"


def test_a_note_comes_with_its_metadata(memory, host):
    """What it says about source and title stands; another metadata replaces the note."""
    note = memory.teach(TEXT, title="Hotfixes")
    for text in ("東京の天気は晴れ", "broken \ud800 surrogate", "🦀" * 20_000):
        odd = memory.teach(text)
        stored = memory.store.catalog.documents([odd], namespace=host.facts(odd).owner)
        assert stored[odd].content == text.replace("\ud800", "?")
    first = host.answer(f"Hotfixes\n{TEXT}").documents[0].node
    assert (first.id, first.content, first.title) == (note, TEXT, "Hotfixes")
    plain = {"note": "teaching", "title": "Hotfixes", "source": "crabpath:teaching"}
    assert first.metadata == plain
    given = {"source": "handbook", "title": "Rules", "since": 2024}
    assert memory.teach(TEXT, id=note, metadata=given) == note
    assert host.answer(TEXT).documents[0].node.metadata == {**given, "note": "teaching"}
    assert memory.correct(TEXT, id=note, metadata={"since": 2025}) == note
    changed = {"since": 2025, "source": "crabpath:correction", "title": "Correction"}
    assert host.answer(TEXT).documents[0].node.metadata == {**changed, "note": "correction"}


@pytest.fixture
def authority(memory):
    """The authority of nodes as it is stored."""

    def read(*ids):
        with memory.store.open_reader() as connection:
            query = sa.select(nodes.c.id, nodes.c.authority).where(nodes.c.id.in_(ids))
            stored = {node: rank for node, rank in connection.execute(query)}
        return [stored[node] for node in ids]

    return read


@pytest.mark.both_databases
def test_a_note_is_recalled_by_its_question_with_related_documents(memory, host):
    note = memory.teach(TEXT, query=QUESTION, related=["b"])
    assert host.found(QUESTION)[0] == note
    answer = host.answer(QUESTION)
    returned = {item.node: item for item in answer.turn.returned}
    assert returned[note].features["again"] == pytest.approx(1.0, abs=0.01)
    assert returned["b"].support.kind == "taught"
    assert returned["b"].features["learned"] > 0.3
    assert host.found(QUESTION, one_per_document=True)[0] == note
    assert host.found(QUESTION, max_tokens=10) == [note]
    assert host.found(QUESTION, boost_tags=["teaching"])[0] == note
    assert memory.explain(answer.turn.id).documents[0].id == note


def test_the_nearest_notes_are_found_indexed_or_not(memory, open_memory, index_vectors):
    notes = [memory.teach(f"Fact number {n}.") for n in range(12)]
    clock = memory.store.walk.get_clock("default")
    vector = memory.embedder.query("Fact number 3.")
    for _ in range(2):
        near = memory._services.notes.near(vector, clock)
        assert len(near) == memory.settings.note.neighbours == 8
        assert next(iter(near)) == notes[3]
        assert list(near.values()) == sorted(near.values(), reverse=True)
        index_vectors(memory)
    if memory._services.notes._collections.available:
        assert memory.store.notes.count_unindexed() == 0
    memory.close()
    with open_memory() as again:
        assert again.retrieve("Fact number 3.").documents[0].node.id == notes[3]


def test_the_id_follows_from_namespace_kind_and_text(memory, host):
    """The same again changes nothing; the same text may answer several questions."""
    note = memory.teach(TEXT, query=QUESTION, related="a")
    before = memory.store.turns.journal()
    assert memory.teach(f"  {TEXT} ", query=QUESTION, related=["a"]) == note
    assert memory.store.turns.journal() == before
    assert memory.teach(TEXT, namespace="ann") != note
    assert memory.teach(TEXT, query="What about hotfixes?", related=["a", "b"]) == note
    for question in (QUESTION, "What about hotfixes?"):
        assert host.found(question)[0] == note
    assert host.weights() == {(note, node, "taught"): pytest.approx(0.6) for node in "ab"}
    assert memory.teach(TEXT, kind="directive") != note


@pytest.mark.both_databases
def test_the_same_id_replaces_text_edges_and_question(memory, host, index_vectors):
    memory.teach("Old words.", id="n", related=["a"], query=QUESTION)
    index_vectors(memory)
    memory.teach(TEXT, id="n", related=["b"])
    assert host.answer(TEXT).documents[0].node.content == TEXT
    assert host.weights() == {("n", "b", "taught"): pytest.approx(0.6)}
    assert [
        item for item in host.answer(QUESTION).turn.returned if "episode" in item.features
    ] == []
    assert memory.store.walk.get_clock("default").notes == 1


def test_the_journal_keeps_neither_text_nor_question(memory):
    note = memory.teach(TEXT, query=QUESTION, related=["a"])
    memory.learning.anchor(note)
    memory.forget(ids=note)
    entries = memory.store.turns.journal(3)
    assert [e["change"] for e in entries] == ["remove_notes", "authority", "note"]
    assert entries[2]["payload"] == {"id": note, "kind": "teaching"}
    assert TEXT not in str(entries)
    assert QUESTION not in str(entries)


def test_a_whole_document_can_be_related_and_anchored(memory, host):
    """Its id stands for its chunks."""
    memory.add_documents([Document(TWO_PARTS, id="guide.md", metadata={"source": "guide.md"})])
    note = memory.teach(TEXT, related="guide.md")
    chunks = {k.id for k in memory.store.catalog.find_chunks(documents=["guide.md"])}
    keys = memory.store.learned.keys([note, *chunks])
    weights = memory.store.learned.weights("default", list(keys.values()))
    assert {target for _, target, _ in weights} == {keys[chunk] for chunk in chunks}
    assert memory.learning.anchor("guide.md") == len(chunks) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" \x00\n", {}, "text must have 1 to 20000"),
        ("x" * 20_001, {}, "use add_documents"),
        (None, {}, "text must be a text, not NoneType"),
        ("t", {"metadata": 7}, "metadata must be a mapping"),
        ("t", {"title": "x" * 601}, "title must have 1 to 600"),
        ("t", {"id": ""}, "id must have 1 to 600"),
        ("t", {"related": ["a", "nowhere", "never"]}, "'nowhere', 'never'"),
        ("t", {"id": "a"}, "the id 'a' is taken"),
    ],
)
def test_what_cannot_be_taught_is_refused(retriever, unchanged, text, options, message):
    with pytest.raises((InvalidInputError, NotFoundError), match=message):
        retriever.memory.teach(text, **options)


def test_a_frozen_namespace_refuses(memory):
    memory.store.apply([SetFrozen("ann", frozen=True)])
    for method in (memory.teach, memory.correct):
        with pytest.raises(InvalidInputError, match="'ann' is frozen"):
            method(TEXT, namespace="ann")
    memory.teach(TEXT)
    assert memory.store.walk.get_clock("ann").notes == 0


@pytest.mark.both_databases
def test_a_note_is_forgotten_with_vector_edges_and_question(memory, host, index_vectors):
    """A question that others answered too stays without the note."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"])
    shared = memory.teach("Shared.", query="What is shared?")
    turn = host.answer("What is shared?", k=4).turn.id
    memory.record(Feedback(turn, 1.0, used=["b"]))
    index_vectors(memory)
    assert memory.forget(ids=["c", note, shared, "never seen"]) == 3
    assert set(host.found(TEXT)) == {"a", "b"}
    assert host.facts(note) is None
    clock = memory.store.walk.get_clock("default")
    assert clock.notes == 0
    (episode,) = memory.store.learned.latest_episodes(clock.key, 10)
    assert {node for node, credit in episode.documents.items() if credit > 0} == {"b"}
    assert not {note, shared} & set(episode.documents)
    if memory._services.notes._collections.available:
        side = memory._services.notes._collections.of(clock.key)
        assert side.search(memory.embedder.query(TEXT), 5) == []


def test_an_empty_memory_remembers_the_embedder_of_its_first_note(tmp_path):
    with CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        note = memory.teach(TEXT)
        assert [item.node.id for item in memory.retrieve(TEXT).documents] == [note]
    other = CrabPath.open(tmp_path, embeddings=DeterministicFakeEmbedding(size=8))
    with other, pytest.raises(EmbeddingMismatchError):
        other.teach("more")


def test_documents_and_notes_are_anchored_and_let_go(memory, host, authority):
    """A directive is canonical and a teaching is not; what cannot be anchored is refused."""
    note = memory.teach("A rule.", namespace="ann")
    assert memory.learning.anchor(["a", note], namespace="ann") == 2
    assert authority("a", "b", note) == [2, 0, 2]
    assert memory.learning.anchor("a", "canonical") == 1
    assert memory.learning.anchor("a", "overlay") == 1
    for ids, rank, error in (
        (["a", "nowhere"], "canonical", NotFoundError),
        ("", "canonical", NotFoundError),
        (["a"], 2, InvalidInputError),
        (7, "overlay", InvalidInputError),
    ):
        with pytest.raises(error):
            memory.learning.anchor(ids, rank)
    assert authority("a", note) == [0, 2]
    notes = [memory.teach("one"), memory.teach("two", kind="directive")]
    notes.append(memory.teach("three", authority="constitutional", kind="directive"))
    assert [host.facts(note).kind for note in notes] == ["teaching", "directive", "directive"]
    assert authority(*notes) == [0, 1, 2]


def test_metadata_names_an_authority(memory, authority):
    """Other values mean something else to their owners; an anchor outlives updates without one."""
    given = {"d": "constitutional", "e": "canonical", "f": "NHS England", "g": ["canonical"]}
    memory.add_documents(
        [Document(f"Text {i}.", id=i, metadata={"authority": v}) for i, v in given.items()]
    )
    assert authority(*given) == [2, 1, 0, 0]
    memory.learning.anchor(["a", "b"])
    memory.add_documents([Document("Apples may be green.", id="a")])
    memory.add_documents([Document("Dusk.", id="b", metadata={"authority": "overlay"})])
    assert authority("a", "b") == [2, 0]


@pytest.fixture
def flooded(memory) -> CrabPath:
    """A memory into which somebody has put as many corrections as there are documents."""
    for number in range(3):
        turn = memory.retrieve(QUESTION, k=4).turn.id
        memory.record(Feedback(turn, -1.0, correction=f"Buy coins, offer {number}."))
    return memory


def test_notes_take_one_place_while_documents_are_found(flooded):
    """The last correction of this very question comes first; notes fill what documents leave."""

    def notes_in(**options):
        documents = flooded.retrieve(QUESTION, **options).documents
        return ["Buy coins" in one.node.content for one in documents], documents[0].node.content

    last = "Buy coins, offer 2."
    for k in (1, 2, 3):
        assert notes_in(k=k) == ([True] + [False] * (k - 1), last)
    kinds, first = notes_in(k=6)
    assert (len(kinds), sum(kinds), first) == (6, 3, last)
    assert sum(notes_in(k=4, max_tokens=1000)[0]) == 1
    unfilled = notes_in(k=6, fill=False)[0]
    assert sum(unfilled) in (1, len(unfilled))
    key = flooded.store.walk.get_clock("default").key
    only_notes = sorted(flooded.store.notes.ids(key))
    assert sum(notes_in(k=3, candidate_ids=only_notes)[0]) == 3
