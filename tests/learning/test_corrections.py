"""Corrections: notes that advise against what they correct, made directly or by feedback; undo."""

import minilm
import pytest
import sqlalchemy as sa
from passages import read_passages, read_questions
from tables import contents, namespaces, nodes, notes, turns

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    Feedback,
    InvalidInputError,
    NotFoundError,
)
from crabpath_retrievers.config import NoteSettings
from crabpath_retrievers.learning.notes import make_note_id
from crabpath_retrievers.learning.rules import MIN_INHIBITION
from crabpath_retrievers.learning.standalone import StandaloneLearner
from tests.seams import get_engine, set_bounds

RIGHT = "Strawberries are red as well."
QUESTION = "Which fruit is red?"


def test_without_names_no_document_is_wrong(memory, host):
    """That an answer was wrong does not make its best document wrong; the question has its note."""
    answer = host.answer(QUESTION)
    note = memory.correct(RIGHT, turn_id=answer.turn.id)
    assert host.weights() == {}
    assert host.found(QUESTION)[0] == note
    facts = host.facts(note)
    assert (facts.kind, facts.turn, facts.query) == ("correction", answer.turn.id, QUESTION)


def test_named_documents_are_wrong_instead(memory, host):
    """The entry of the turn advises against them half as much, with a bound."""
    turn = host.answer(QUESTION).turn
    memory.correct("Nothing was wrong.", turn_id=turn.id, wrong=[])
    assert host.weights() == {}
    entry = max(turn.seeds, key=lambda seed: seed.score).node
    others = sorted(set("abc") - {entry})
    for _ in range(2):  # the same again changes nothing
        note = memory.correct(RIGHT, turn_id=turn.id, wrong=others)
        assert host.weights() == {
            **{(note, other, "inhibits"): pytest.approx(MIN_INHIBITION) for other in others},
            **{(entry, other, "inhibits"): pytest.approx(MIN_INHIBITION / 2) for other in others},
        }
    assert memory.info()["notes"] == 2
    # It needs neither turn nor documents.
    note = memory.correct("Bare.", related=["b"], query="What is red?")
    assert host.found("What is red?")[0] == note
    for number in range(4):
        turn = host.answer(QUESTION).turn
        memory.correct(f"{RIGHT} {number}", turn_id=turn.id, wrong=["a", "b", "c"])
    assert min(host.weights().values()) >= MIN_INHIBITION - 1e-6
    assert set("abc") <= set(host.found(QUESTION))


def test_a_turn_gives_namespace_and_best_document_unless_that_was_forgotten(memory, host):
    answer = host.answer(QUESTION, "ann")
    memory.forget(ids=answer.documents[0].node.id)
    note = memory.correct(RIGHT, turn_id=answer.turn.id)
    assert host.facts(note).namespace == "ann"
    assert note in host.found(QUESTION, "ann")
    with pytest.raises(NotFoundError, match="no turn"):
        memory.correct(RIGHT, turn_id=answer.turn.id, namespace="bob")


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"turn_id": "never"}, NotFoundError, "no turn 'never'"),
        ({"wrong": ["nowhere"]}, NotFoundError, "'nowhere'"),
        ({"authority": "high"}, InvalidInputError, "authority must be one of"),
    ],
)
def test_what_cannot_be_corrected_is_refused(retriever, unchanged, options, error, message):
    with pytest.raises(error, match=message):
        retriever.memory.correct(RIGHT, **options)


PARAPHRASES = ("Apples?", "What is red or green?", "The colour of the sky", "Is grass fruit?")


@pytest.mark.both_databases
def test_a_correction_goes_with_what_it_corrects(memory, host):
    """Before it, on top of k documents, and in one namespace alone."""
    for question in PARAPHRASES:
        note = memory.correct(f"{question} {RIGHT}", wrong=["a"], query=question)
        for k in (1, 2, 3):
            answer = host.answer(question, k=k).documents
            found = [item.node.id for item in answer]
            if "a" in found:
                place, corrected = found.index(note), found.index("a")
                assert (len(found), place < corrected) == (k + 1, True)
            assert len(found) >= k
        likely = host.answer(question, k=3).documents[0].score
        for options in ({"fill": False}, {"min_score": likely}):
            found = host.found(question, **options)
            assert "a" not in found or note in found
        assert note not in host.found(question, "ann")


def test_corrections_that_search_does_not_find_go_as_well(open_memory, host_of):
    """A query finds one note; all three documents come with theirs."""
    with open_memory(note=NoteSettings(neighbours=1)) as memory:
        for question in PARAPHRASES:
            notes = {
                memory.correct(f"Not {node}. {question}", wrong=[node], query=question): node
                for node in "abc"
            }
            found = host_of(memory).found(question, k=3)
            assert {*found} == {*notes, "a", "b", "c"}
            assert all(found.index(note) < found.index(node) for note, node in notes.items())


def test_a_correction_and_its_document_fit_a_budget_together_or_not_at_all(memory, host):
    """A document without its correction is worse than none."""
    note = memory.correct("Not so. " + RIGHT, wrong=["a"], query="Apples?")
    for budget in range(5, 40):
        answer = host.answer("Apples?", max_tokens=budget).documents
        found = [item.node.id for item in answer]
        assert "a" not in found or found.index(note) < found.index("a")
        assert sum(-(-len(item.node.content) // 4) for item in answer) <= budget
    assert {note, "a", "b", "c"} == set(found)


@pytest.mark.both_databases
def test_one_correction_goes_with_a_document(memory, host):
    """The latest about one question, and what corrects a correction in its place."""
    notes = [memory.correct(f"Number {i}.", wrong=["a"], query="Apples?") for i in range(3)]
    assert host.found("Apples?", k=3)[0] == notes[2]
    assert not {*notes[:2]} & {*host.found("Apples?", k=3)}
    last = memory.correct("None of these.", wrong=[notes[2]], query="Apples?")
    found = host.found("Apples?", k=3)
    assert (found[0], {*found}) == (last, {last, "a", "b", "c"})
    memory.forget([last])
    assert notes[2] in host.found("Apples?", k=3)
    memory.correct("One.", id="one", wrong=["b"], query="sky")
    memory.correct("Two.", id="two", wrong=["one"], query="sky")
    memory.correct("One.", id="one", wrong=["b", "two"], query="sky")  # a circle, too, has an end
    assert {"one", "two"} & {*host.found("sky")}


def test_maintenance_keeps_what_a_correction_is_about(memory, host):
    """However much of the weight of its edge has decayed; other faded weights go."""
    note = memory.correct(RIGHT, wrong=["a"], query="Apples?")
    with get_engine(memory.store).begin() as connection:
        connection.execute(sa.update(namespaces).values(exponent=50.0))
    memory.maintenance.run()
    assert note in host.found("Apples?", k=3)
    memory.forget([note])
    assert host.found("Apples?", k=3)[-1] == "a"


@pytest.mark.parametrize(
    ("outcome", "used", "wrong"),
    [
        pytest.param(-1.0, None, set(), id="nothing without names"),
        pytest.param(-1.0, ["b", "c"], {"b", "c"}, id="what was used in a failure"),
        pytest.param(1.0, ["a"], set(), id="nothing beside a success"),
    ],
)
def test_feedback_with_a_correction_makes_a_note(memory, host, outcome, used, wrong):
    """In the same transaction; it stands at its own words and answers the last question."""
    host.answer("What is the sky?")
    turn = memory.retrieve(QUESTION, k=3).turn
    receipt = memory.record(Feedback(None, outcome, used=used, correction=RIGHT))
    (note,) = memory.store.notes.latest(memory.store.walk.get_clock("default").key, 0, 10)
    assert (receipt.status, receipt.note) == ("applied", None)
    facts = host.facts(note.id)
    assert (facts.kind, facts.turn) == ("correction", turn.id)
    assert facts.feedback == receipt.feedback_id
    assert float(note.vector @ memory.embedder.documents([RIGHT])[0]) == pytest.approx(1, abs=0.01)
    assert host.found(QUESTION)[0] == note.id
    inhibited = {target for source, target, kind in host.weights() if source == note.id}
    assert inhibited == wrong


def test_feedback_makes_at_most_one_note(memory):
    """The same again changes nothing, an empty correction makes none."""
    turn = memory.retrieve(QUESTION).turn.id
    given = Feedback(turn, -1.0, correction=RIGHT)
    assert {memory.record(given).status for _ in range(2)} == {"applied"}
    assert memory.info()["notes"] == 1
    assert memory.record(Feedback("never", -1.0, correction="x")).status == "refused"
    turn = memory.retrieve(QUESTION).turn.id
    memory.record(Feedback(turn, -1.0, correction=" \n"))
    assert memory.info()["notes"] == 1
    memory.record(turn, outcome=-1.0, correction="ß" * 20_000)
    assert memory.info()["notes"] == 2


def test_another_process_needs_no_embedder(open_memory, host_of):
    """The vector of a correction is kept with waiting feedback."""
    with open_memory(apply="external") as memory:
        host = host_of(memory)
        given = Feedback(host.answer(QUESTION).turn.id, -1.0, correction=RIGHT)
        assert memory.record(given).status == "waiting"
        assert StandaloneLearner(memory.store).recorder.learn_waiting().applied == 1
        (note,) = memory.store.notes.get_unindexed()
        assert float(note.vector @ memory.embedder.query(RIGHT)) == pytest.approx(1, abs=0.01)
        assert host.found(RIGHT)[0] == note.id


def test_a_process_without_the_index_leaves_notes_to_those_that_have_it(memory, host, monkeypatch):
    """However many wait: a note that is in no index, and does not wait, would not be found."""
    set_bounds(monkeypatch, episodes_indexed=1, seconds_between_checks=0.0)
    beside = StandaloneLearner(memory.store).recorder
    beside.record(Feedback(host.answer(QUESTION).turn.id, -1.0, correction=RIGHT))
    beside.learn_waiting()
    beside.close()
    (note,) = memory.store.notes.get_unindexed()
    assert memory.store.learned.count_unindexed_episodes()
    memory.learning.learn_waiting()
    assert memory.store.notes.get_unindexed() == []
    assert host.found(QUESTION)[0] == note.id


def test_without_an_embedder_no_feedback_is_lost(memory, monkeypatch, caplog):
    """The correction stands at its question, if that has a vector; else it makes no note."""

    def fail(_texts):
        msg = "no embedder today"
        raise RuntimeError(msg)

    turns_ = [memory.retrieve(QUESTION, k=3).turn.id for _ in range(2)]
    monkeypatch.setattr(memory.embedder, "documents", fail)
    assert memory.record(Feedback(turns_[0], -1.0, correction=RIGHT)).status == "applied"
    assert "no embedder today" in caplog.text
    (note,) = memory.store.notes.get_unindexed()
    assert float(note.vector @ memory.embedder.query(QUESTION)) == pytest.approx(1, abs=0.01)
    with get_engine(memory.store).begin() as connection:
        connection.execute(sa.update(turns).values(embedding=None))
    receipt = StandaloneLearner(memory.store).record(Feedback(turns_[1], -1.0, correction="No."))
    assert (receipt.status, memory.info()["notes"]) == ("applied", 1)
    assert "not kept as a note" in receipt.note


NOTE = make_note_id("correction", "default", RIGHT, QUESTION)


def give_correction(memory, query=QUESTION):
    """Ask, then correct what came; returns the id of the feedback."""
    turn = memory.retrieve(query, k=4).turn.id
    return memory.record(Feedback(turn, -1.0, correction=RIGHT)).feedback_id


def count_questions(memory):
    """How many episodes recall notes."""
    key = memory.store.walk.get_clock("default").key
    return sum(e.startswith("note-") for e in memory.store.learned.episode_ids(key))


@pytest.mark.both_databases
def test_the_note_of_a_correction_goes(memory, host, index_vectors):
    """With edges, episode and vectors; the answer is as it was."""
    before = host.found()
    feedback = give_correction(memory)
    index_vectors(memory)
    assert NOTE in host.found()
    assert memory.undo(feedback).status == "undone"
    assert host.found() == before
    assert (host.facts(NOTE), host.weights(), memory.info()["notes"]) == (None, {}, 0)
    assert count_questions(memory) == 0
    clock = memory.store.walk.get_clock("default")
    assert clock.notes == 0
    if memory.index.has_collections:
        for side in ("notes", "episodes"):
            beside = memory.index.open_sibling(f"{side}-{clock.key}")
            assert beside.search(memory.embedder.query(RIGHT), 9) == []


def test_undone_beside_the_process_that_has_the_index(memory, host, index_vectors):
    """Also where a success used the note since: it keeps no note, and is undone, too."""
    feedback = give_correction(memory)
    index_vectors(memory)
    later = memory.record(Feedback(host.answer().turn.id, 1.0, used=[NOTE])).feedback_id
    beside = StandaloneLearner(memory.store).recorder
    assert beside.history.undo(feedback, None, None).status == "undone"
    assert NOTE not in host.found()
    assert memory.info()["notes"] == 0
    assert memory.undo(later).status == "undone"


@pytest.mark.parametrize("taught_first", [True, False])
def test_what_somebody_taught_as_well_stays(memory, host, taught_first):
    """Uses that were counted are taken back."""
    if taught_first:
        memory.correct(RIGHT, query=QUESTION)
    feedback = give_correction(memory)
    if not taught_first:
        memory.correct(RIGHT, query=QUESTION)
    memory.undo(feedback)
    assert host.facts(NOTE).feedback is None
    assert NOTE in host.found(RIGHT)
    use = [Feedback(host.answer().turn.id, 1.0, used=[NOTE]) for _ in range(2)]
    ids = [memory.record(one).feedback_id for one in use]
    for number, feedback_id in enumerate(ids):
        assert host.facts(NOTE).uses == 2 - number
        memory.undo(feedback_id)
    assert host.facts(NOTE).uses == 0


@pytest.mark.parametrize("undone", [0, 1])
def test_the_same_correction_in_two_feedbacks(memory, host, undone):
    """The note stays until both are undone."""
    first = give_correction(memory)
    weights = host.weights()
    feedbacks = [first, give_correction(memory)]
    assert count_questions(memory) == 1
    memory.undo(feedbacks[undone])
    assert host.facts(NOTE).feedback == feedbacks[1 - undone]
    assert count_questions(memory) == 1
    if undone == 1:
        assert host.weights() == {edge: pytest.approx(w) for edge, w in weights.items()}
    memory.undo(feedbacks[1 - undone])
    assert (host.facts(NOTE), host.weights(), count_questions(memory)) == (None, {}, 0)


def test_the_same_words_correct_the_answers_to_two_questions(memory, host):
    """Each note says which question it answers, and goes with its own feedback."""
    questions = [QUESTION, "Which berry?"]
    given = [give_correction(memory, query) for query in questions]
    for query in questions:
        found = [d.node.content for d in host.answer(query).documents if RIGHT in d.node.content]
        assert found == [f'Correction of the answer to "{query}":\n{RIGHT}']
    memory.undo(given[1])
    assert NOTE in host.found()
    assert memory.info()["notes"] == 1


def test_a_restored_snapshot_has_the_notes_of_then(memory, host, index_vectors):
    """Later ones go, with all that came with them; those that were undone since come back."""
    memory.teach("Cherries are red.", id="old", query=QUESTION, related=["a"])
    feedback = give_correction(memory)
    index_vectors(memory)
    known, kept = host.found(), memory.namespaces.snapshot()
    memory.undo(feedback)
    memory.teach("Limes are green.", id="new", query="Which fruit is green?", related=["b"])
    memory.teach("Cherries are black.", id="old", query=QUESTION)
    index_vectors(memory)
    memory.namespaces.restore(kept)
    assert host.found() == known
    assert "new" not in host.found("Limes are green.")
    assert host.facts("new") is None
    old = memory.store.catalog.documents(["old"], namespace=1)["old"]
    assert old.content == "Cherries are red."
    assert (memory.info()["notes"], count_questions(memory)) == (2, 2)
    assert host.weights()["old", "a", "taught"] == pytest.approx(0.6, rel=1e-3)
    assert memory.undo(feedback).note.startswith("it was undone before")


@pytest.mark.parametrize("forgotten", [True, False])
def test_a_snapshot_brings_back_no_forgotten_note_and_takes_no_id(memory, host, forgotten):
    """What was forgotten is kept nowhere; a note of somebody else with its id stays theirs."""
    memory.teach("Cherries are red.", id="x", query=QUESTION, related=["a"])
    memory.teach("Plums are blue.", id="other", namespace="ann")
    kept = memory.namespaces.snapshot()
    if forgotten:
        memory.forget(ids=["x"])
    else:
        with get_engine(memory.store).begin() as connection:  # as maintenance does: no forgetting
            key = sa.select(nodes.c.key).where(nodes.c.id == "x").scalar_subquery()
            for table in (contents, notes):
                connection.execute(table.delete().where(table.c.node == key))
            connection.execute(nodes.delete().where(nodes.c.id == "x"))
        memory.teach("Plums are ripe.", id="x", namespace="ann")
    memory.namespaces.restore(kept)
    texts = {
        name: {n.id: n.text for n in memory.notes(namespace=name)} for name in ("ann", "default")
    }
    assert texts["default"] == ({} if forgotten else {"x": "Cherries are red."})
    assert texts["ann"] == {"other": "Plums are blue."} | (
        {} if forgotten else {"x": "Plums are ripe."}
    )
    assert ("x" in host.found()) is not forgotten
    assert "other" in host.found(namespace="ann")
    assert ("x" in host.found(namespace="ann")) is not forgotten


DEVICES = [
    f"Q: How do I reset device model XR{number}? A: Hold button {button} for {seconds} seconds."
    for number, button, seconds in ((100, "A", 5), (200, "B", 9), (300, "C", 12), (400, "D", 4))
]


def test_a_correction_of_one_product_does_not_come_to_its_twins():
    """However near their questions are; the name decides."""
    with CrabPathRetriever.from_texts(DEVICES, minilm.shared(), k=4).memory as memory:
        retriever = CrabPathRetriever(memory=memory, k=4)
        for number, text in ((100, "Hold A for 8 seconds."), (200, "Hold B for 3 seconds.")):
            found = retriever.invoke(f"How do I reset device model XR{number}?")
            wrong = next(item.id for item in found if f"XR{number}" in item.page_content)
            retriever.record(found, "down", used=[wrong], correction=text)
        for number, text in ((100, ["A for 8"]), (200, ["B for 3"]), (300, []), (400, [])):
            for question in ("How is a XR{} reset?", "How do I reset device model XR{}?"):
                found = retriever.invoke(question.format(number))
                notes = [item for item in found if item.metadata.get("note") == "correction"]
                assert [one.page_content.split("Hold ")[1][:7] for one in notes] == text


PAGES = (
    "Full text search works without an index. A configuration says how words are found.",
    "Run the backup every night at two.",
    "Ask in the team channel two weeks ahead.",
    "Guests park behind the building.",
)


def test_an_answer_that_search_missed_does_not_stand_before_the_page_that_it_found():
    """The page was not wrong; the correction comes to its own question, in other words too."""
    with CrabPathRetriever.from_texts(PAGES, minilm.shared(), k=3).memory as memory:
        retriever = CrabPathRetriever(memory=memory, k=3)
        asked = "How do I find rows whose text is similar despite typing errors, with an index?"
        retriever.record(retriever.invoke(asked), "down", correction="Use the pg_trgm extension.")
        for question in (asked, "fuzzy matching of misspelled names with an index"):
            assert "\nUse" in retriever.invoke(question)[0].page_content
        for question in ("How do I configure full text search?", "When does the backup run?"):
            assert not any("pg_trgm" in one.page_content for one in retriever.invoke(question))


def test_a_correction_in_the_words_of_a_page_belongs_to_it():
    """It says otherwise what the page says, so the page was wrong."""
    with CrabPathRetriever.from_texts(PAGES, minilm.shared(), k=3).memory as memory:
        retriever = CrabPathRetriever(memory=memory, k=3)
        found = retriever.invoke("Where do guests park?")
        right = "Guests park in front of the building."
        retriever.record(found, "down", correction=right)
        texts = [one.page_content for one in retriever.invoke("Parking places for guests")]
        (note,) = (text for text in texts if right in text)
        assert texts.index(note) < texts.index(PAGES[3])


def test_an_irrelevant_document_was_wrong(memory, host):
    turn = memory.retrieve(QUESTION, k=3).turn
    memory.record(Feedback(turn.id, -1.0, irrelevant=["b"], correction=RIGHT))
    (note,) = memory.store.notes.get_unindexed()
    assert {edge for edge in host.weights() if edge[0] == note.id} == {(note.id, "b", "inhibits")}


def test_a_correction_is_first_where_its_question_is_asked_again(memory, host):
    """However often a document was right before; until the answer is another one again."""
    for user in "abcde":
        memory.record(host.answer().turn.id, 1.0, used=["a"], user=user)
    memory.record(host.answer().turn.id, -1.0, correction=RIGHT)
    for k in (1, 2, 3):
        assert host.found(k=k)[0] == NOTE
    assert host.found(fill=False)[0] == NOTE
    for user in "abc":
        memory.record(host.answer().turn.id, 1.0, used=["a"], user=user)
    assert host.found()[0] == "a"


@pytest.mark.slow
def test_a_correction_takes_nothing_from_documents_that_it_does_not_blame():
    """They stay among the k documents, since the note counts for nothing in their ranking."""
    questions = read_questions(3)
    with CrabPath.open(embeddings=minilm.shared()) as memory:
        memory.add_documents(read_passages(30), split=False)
        for question in questions:
            before = {k: list_documents(memory, question, k) for k in (1, 2, 3, 4)}
            said = f"The right answer to {question} is another one."
            for wrong in ([], before[1]):
                note = memory.correct(said, query=question, wrong=wrong)
                after = {k: list_documents(memory, question, k) for k in before}
                assert wrong or after == before
                assert all({*ids} - {*after[k]} <= {*wrong} for k, ids in before.items())
                memory.forget([note])


def list_documents(memory, question, k):
    answer = memory.retrieve(question, k=k).documents
    return [item.node.id for item in answer if item.node.document]
