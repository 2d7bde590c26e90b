"""Notes are taught, recalled, replaced, anchored, forgotten; other namespaces do not see them."""

from dataclasses import replace

import pytest
import sqlalchemy as sa
import tables as schema
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from tables import nodes, read_journal

from crabpath_retrievers import (
    CrabPath,
    EdgeKind,
    Feedback,
    InvalidInputError,
    NotFoundError,
)
from crabpath_retrievers.errors import EmbeddingMismatchError
from crabpath_retrievers.ingest.chunking import Chunking
from tests.seams import get_services, make_change

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
        with memory.store.connect() as connection:
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
        near = get_services(memory).notes.near(memory.store, vector, clock)
        assert len(near) == memory.settings.note.neighbours == 8
        assert next(iter(near)) == notes[3]
        assert list(near.values()) == sorted(near.values(), reverse=True)
        index_vectors(memory)
    if memory.index.has_collections:
        assert memory.store.notes.count_unindexed() == 0
    memory.close()
    with open_memory() as again:
        assert again.retrieve("Fact number 3.").documents[0].node.id == notes[3]


def test_the_id_follows_from_namespace_kind_and_text(memory, host):
    """The same again changes nothing; the same text may answer several questions."""
    note = memory.teach(TEXT, query=QUESTION, related="a")
    before = read_journal(memory.store)
    assert memory.teach(f"  {TEXT} ", query=QUESTION, related=["a"]) == note
    assert read_journal(memory.store) == before
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
    entries = read_journal(memory.store)[:3]
    assert [e["change"] for e in entries] == ["remove_notes", "authority", "note"]
    assert entries[2]["payload"] == {"kind": "teaching"}
    assert TEXT not in str(entries)
    assert QUESTION not in str(entries)


def test_a_whole_document_can_be_related_and_anchored(memory, host):
    """Its id stands for its chunks."""
    memory.add_documents([Document(TWO_PARTS, id="guide.md", metadata={"source": "guide.md"})])
    note = memory.teach(TEXT, related="guide.md")
    chunks = {k.id for k in memory.store.catalog.find_chunks(documents=["guide.md"])}
    namespace = memory.store.walk.get_clock("default").key
    keys = memory.store.learned.keys([note, *chunks], namespace)
    weights = memory.store.learned.weights("default", list(keys.values()))
    assert {target for _, target, _ in weights} == {keys[chunk] for chunk in chunks}
    assert memory.learning.anchor("guide.md") == len(chunks) == 2


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (" \x00\n", {}, "text must have 1 to 20000"),
        ("x" * 20_001, {}, "add it as one"),
        (None, {}, "text must be a text, not NoneType"),
        ("t", {"metadata": 7}, "metadata must be a mapping"),
        ("t", {"title": "x" * 601}, "title must have 1 to 600"),
        ("t", {"id": ""}, "id must have 1 to 600"),
        ("t", {"related": ["a", "nowhere", "never"]}, "'nowhere', 'never'"),
        ("t", {"id": "a"}, "the id 'a' is that of a document"),
    ],
)
def test_what_cannot_be_taught_is_refused(retriever, unchanged, text, options, message):
    with pytest.raises((InvalidInputError, NotFoundError), match=message):
        retriever.memory.teach(text, **options)


def test_a_frozen_namespace_refuses(memory):
    memory.store.apply([make_change("set_frozen", "ann", frozen=True)])
    for method in (memory.teach, memory.correct):
        with pytest.raises(InvalidInputError, match="'ann' is frozen"):
            method(TEXT, namespace="ann")
    memory.teach(TEXT)
    assert memory.store.walk.get_clock("ann").notes == 0


@pytest.mark.both_databases
def test_a_note_is_forgotten_with_vector_edges_and_question(memory, host, index_vectors):
    """A question that others answered too stays, for what answered it."""
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
    if memory.index.has_collections:
        side = memory.index.open_sibling(f"notes-{clock.key}")
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


def test_notes_fill_no_place_while_documents_are_found(flooded):
    """The last correction of this very question comes first; notes fill what documents leave."""

    def notes_in(**options):
        documents = flooded.retrieve(QUESTION, **options).documents
        first = documents[0].node.content.splitlines()[-1]
        return ["Buy coins" in one.node.content for one in documents], first

    last = "Buy coins, offer 2."
    for k in (1, 2, 3):
        assert notes_in(k=k) == ([True] + [False] * k, last)
    kinds, first = notes_in(k=6)
    assert (len(kinds), sum(kinds), first) == (6, 3, last)
    assert sum(notes_in(k=4, max_tokens=1000)[0]) == 1
    unfilled = notes_in(k=6, fill=False)[0]
    assert sum(unfilled) in (1, len(unfilled))
    key = flooded.store.walk.get_clock("default").key
    only_notes = sorted(flooded.store.notes.ids(key))
    assert sum(notes_in(k=3, candidate_ids=only_notes)[0]) == 3


@pytest.fixture
def secret(memory) -> str:
    """A note of ann, with everything that leads to it."""
    note = memory.teach(TEXT, query=QUESTION, related=["a"], title="CI", namespace="ann")
    memory.correct("No, blue.", wrong=["a"], related=[note], namespace="ann")
    return note


def read_corpus(memory):
    """All that every namespace sees."""
    store = memory.store
    tables = ("terms", "names", "addresses", "references", "edges")
    with store.connect() as connection:
        rows = {
            t: sorted(map(tuple, connection.execute(sa.select(getattr(schema, t))))) for t in tables
        }
    meta = {name: value for name, value in store.catalog.meta().items() if name != "notes"}
    clock = store.walk.get_clock("default")
    return (
        rows,
        meta,
        store.catalog.all_ids(),
        store.walk.read_facts("?", ["ci", "skip"]),
        clock.notes,
    )


def test_nothing_shared_holds_a_note(memory, host, index_vectors):
    before, vectors = read_corpus(memory), memory.index.search(memory.embedder.query(TEXT), 50)
    note = memory.teach(TEXT, query=QUESTION, related=["a"], title="CI", namespace="ann")
    index_vectors(memory)
    assert read_corpus(memory) == before
    assert memory.index.search(memory.embedder.query(TEXT), 50) == vectors
    assert host.found("ci hotfixes", "ann").count(note) == 1
    memory.forget(ids=note)
    assert read_corpus(memory) == before


@pytest.mark.slow
@pytest.mark.parametrize("indexed", [False, True])
def test_another_namespace_never_finds_it(memory, host, secret, index_vectors, indexed):
    """Neither by its words, nor by its question, name, id or metadata."""
    if indexed:
        index_vectors(memory)
    memory.teach("Something else.", namespace="bob")
    for asked in (TEXT, QUESTION, "CI", f"CI\n{TEXT}"):
        for namespace in ("bob", "never seen"):
            found = host.found(asked, namespace, seed_ids=[secret], boost_tags=["teaching"])
            assert secret not in found
            assert set("abc") <= set(found)
        assert secret in host.found(asked, "ann")


def test_reads_by_id_and_key_are_scoped(memory, secret):
    store = memory.store
    ann, bob = store.walk.get_clock("ann").key, store.walk.get_clock("bob").key
    (key,) = store.learned.keys([secret], ann).values()
    assert store.learned.keys([secret], bob) == {}
    assert [h.id for h in store.walk.get_nodes([secret], namespace=ann)] == [secret]
    for namespace in (0, bob, ann + 1):
        assert store.walk.get_nodes([secret], [key], namespace=namespace) == []
        assert store.catalog.documents([secret], namespace=namespace) == {}
    assert store.catalog.find_chunks(ids=[secret], documents=["", secret], sources=[""]) == []
    source = store.learned.keys(["a"])["a"]
    delta = make_change("WeightDelta", source, key, EdgeKind.CO_USED, 0.9)
    store.apply(
        [make_change("AdjustWeights", "bob", (delta,))]
    )  # even an edge of one's own is no pointer to it
    frontier = store.walk.get_outgoing_edges([source], store.walk.get_clock("bob"))
    assert key not in {pointer.target.key for pointer in frontier.pointers}


def test_a_foreign_note_can_neither_be_named_nor_replaced(memory, secret, host):
    """Its id is free elsewhere: for a note of another namespace, and for a document."""
    for call in (
        lambda: memory.teach("t", related=[secret], namespace="bob"),
        lambda: memory.correct("t", wrong=[secret], namespace="bob"),
        lambda: memory.learning.anchor(secret, namespace="bob"),
    ):
        with pytest.raises(NotFoundError, match="there is no document or note"):
            call()
    assert memory.teach("Bob says so.", id=secret, namespace="bob") == secret
    texts = {
        name: next(note.text for note in memory.notes(namespace=name) if note.id == secret)
        for name in ("ann", "bob")
    }
    assert texts == {"ann": TEXT, "bob": "Bob says so."}
    answers = {name: host.answer(TEXT, name).documents for name in texts}
    assert {
        name: [d.node.content for d in documents if d.node.id == secret]
        for name, documents in answers.items()
    } == {name: [text] for name, text in texts.items()}


def test_cleanup_keeps_notes_and_a_filter_hides_them(memory, host, secret):
    facts = memory.info()
    assert (facts["nodes"], facts["notes"], facts["sources"]) == (3, 2, 3)
    tagged = Document("Only this.", id="t", metadata={"lang": "en"})
    memory.add_documents([tagged], cleanup="full")
    assert memory.info()["nodes"] == 1
    assert secret in host.found(TEXT, "ann")
    found = host.found(TEXT, "ann", filter=lambda d: d.metadata.get("lang") == "en")
    assert found == ["t"]


def test_a_document_that_comes_at_the_same_time_wins(memory, host):
    secret = memory.teach(TEXT, id="ci", query=QUESTION, title="CI", namespace="ann")
    chunking = Chunking(memory.settings.ingest, split=False)
    (node,) = chunking.nodes([Document("Public text.", id=secret)])
    node = replace(node, vector=memory.embedder.query("Public text."))
    memory.store.apply([make_change("stage_nodes", (node,))])
    get_services(memory).ingest.recover()
    assert host.answer("Public text.", "bob").documents[0].node.content == "Public text."
    # The document hides the note while it is there.
    assert TEXT not in [d.node.content for d in host.answer(TEXT, "ann").documents]
    assert memory.store.walk.read_facts("a", ["hotfixes", "public"]).frequencies == {"public": 1}
    assert memory.info()["nodes"] == 4
    memory.store.apply([make_change("remove_documents", (secret,))])
    assert TEXT in [d.node.content for d in host.answer(TEXT, "ann").documents]


@pytest.mark.slow
@pytest.mark.both_databases
def test_forgetting_a_namespace_forgets_its_notes(memory, host, secret, index_vectors):
    kept = memory.teach(TEXT, namespace="bob")
    index_vectors(memory)
    key = memory.store.walk.get_clock("ann").key
    memory.forget(namespace="ann")
    assert memory.store.notes.get_facts([secret], "ann") == []
    assert memory.store.catalog.documents([secret], namespace=key) == {}
    assert host.found(TEXT, "bob")[0] == kept
    assert memory.info()["notes"] == 1
    if memory.index.has_collections:
        assert memory.index.open_sibling(f"notes-{key}").count() == 0
    memory.teach(TEXT, namespace="ann")
    assert memory.store.walk.get_clock("ann").notes == 1
