"""What a process remembers of a namespace is read again after every change, whoever made it."""

import random

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.storage import GraphStore
from tests.seams import get_cache, set_bounds
from tests.stubs.statements import list_statements

QUESTIONS = ("What does Page 3 tell?", "Who wrote Page 7?", "Is there a rule?")
RULES = Settings().replace(learning=Settings().learning.replace(half_life=5.0))


@pytest.fixture
def opened(location, tmp_path):
    """A function that opens the memory again; all are closed in the end."""
    vectors, memories = DeterministicFakeEmbedding(size=16), []

    def open_again():
        memory = CrabPath.open(
            location, embeddings=vectors, vectors=tmp_path / "vectors", settings=RULES
        )
        memories.append(memory)
        return memory

    first = open_again()
    first.add_documents(
        [
            Document(
                f"Text {n} tells of Page {n + 1}.", id=f"d{n}", metadata={"title": f"Page {n}"}
            )
            for n in range(40)
        ],
        split=False,
    )
    yield open_again
    for memory in memories:
        memory.close()


def succeed(memory, question=QUESTIONS[0], places=(0, 2), feedback_id=None):
    returned = memory.retrieve(question).turn
    used = [returned.returned[place].node for place in places]
    memory.record(Feedback(returned.id, 1.0, used=used, feedback_id=feedback_id))


def fail(memory):
    returned = memory.retrieve(QUESTIONS[1]).turn
    memory.record(Feedback(returned.id, -1.0, used=[returned.returned[0].node]))


def correct(memory):
    memory.correct("Page 3 tells nothing.", turn_id=memory.retrieve(QUESTIONS[0]).turn.id)


CHANGES = {
    "success": succeed,
    "failure": fail,
    "another success": lambda memory: succeed(memory, places=(1,), feedback_id="wrong"),
    "undo": lambda memory: memory.undo("wrong"),
    "note": lambda memory: memory.teach("Do it.", id="rule", query=QUESTIONS[2], related=["d3"]),
    "another text of the note": lambda memory: memory.teach(
        "Never do it.", id="rule", query=QUESTIONS[0], related=["d9"]
    ),
    "correction": correct,
    "snapshot": lambda memory: memory.namespaces.snapshot(name="kept"),
    "success after it": lambda memory: succeed(memory, QUESTIONS[1], (1, 2)),
    "restored": lambda memory: memory.namespaces.restore(memory.namespaces.snapshots()[0].id),
    "authority": lambda memory: memory.learning.anchor(["d3", "d4"]),
    "success after that": lambda memory: succeed(memory, QUESTIONS[1], (1, 2)),
    "maintenance": lambda memory: memory.maintenance.run(),
    "deleted document": lambda memory: memory.forget(["d4"]),
    "deleted note": lambda memory: memory.forget(["rule"]),
    "all undone": lambda memory: memory.learning.undo_all(source="human"),
    "forgotten": lambda memory: memory.forget(namespace="default"),
}
SILENT = {"snapshot", "maintenance"}  # no answer of today changes


def answer_all(memory):
    answers = [memory.retrieve(question, k=12, record=False).turn for question in QUESTIONS]
    return [
        [(item.node, item.probability, item.features) for item in turn.returned]
        + [(step.node, step.candidates, step.stop_weight) for step in turn.steps]
        for turn in answers
    ]


@pytest.mark.slow
@pytest.mark.both_databases
def test_a_reader_sees_every_change_of_another_process(opened):
    reader, writer = opened(), opened()
    for _ in range(3):
        succeed(writer, QUESTIONS[0])
        succeed(writer, QUESTIONS[1], (0, 1, 2))
    before = answer_all(reader)
    for name, change in CHANGES.items():
        change(writer)
        fresh = opened()
        expected = answer_all(fresh)
        assert answer_all(reader) == expected, name
        assert answer_all(writer) == expected, name
        assert name in SILENT or expected != before, name
        before = expected


@pytest.mark.slow
@pytest.mark.both_databases
def test_what_a_process_learned_itself_answers_as_if_it_was_read(opened):
    """Feedback of two processes in turns, some of it several times by one of them."""
    first, second, rng = opened(), opened(), random.Random(3)  # noqa: S311
    for step in range(30):
        writer, question = rng.choice((first, first, second)), rng.choice(QUESTIONS)
        turn = writer.retrieve(question, k=6).turn
        outcome, user = rng.choice((1.0, 1.0, -1.0)), rng.choice(("ann", "bob", None))
        used = rng.sample([item.node for item in turn.returned], rng.choice((0, 1, 2)))
        writer.record(Feedback(turn.id, outcome, used=used or None, user=user))
        answered = answer_all(writer)
        if step % 3 == 0:
            with opened() as fresh:
                assert answered == answer_all(fresh), step


def test_the_question_after_a_feedback_reads_what_the_feedback_changed(opened, monkeypatch):
    """Not the model, the list of past questions and their vectors: only one's own rows."""
    memory = opened()
    for question in (*QUESTIONS, *QUESTIONS):
        succeed(memory, question)
    memory.retrieve(QUESTIONS[0])

    def count(question):
        with list_statements(monkeypatch) as statements:
            memory.retrieve(question, record=False)
        return len(statements)

    unchanged = count(QUESTIONS[0])
    succeed(memory)
    memory.store.flush()
    assert count(QUESTIONS[0]) <= unchanged + 3  # uses, edges and the question's own episode
    assert count(QUESTIONS[0]) == unchanged


@pytest.mark.slow
def test_no_more_than_some_namespaces_are_remembered(store: GraphStore):
    """The one that was read first goes first; another version is read again."""
    cache, fetched = get_cache(store).leaving, []

    def read(namespace, version=1):
        def fetch(new):
            fetched.append((namespace, new))
            return {key: f"{namespace}.{version}" for key in new if key}

        clock = store.walk.get_clock("none")._replace(key=namespace, learned=version, corpus=1)
        return cache.get_rows(clock, [0, 1, 2], fetch)

    assert read(1) == read(1) == {1: "1.1", 2: "1.1"}
    assert fetched == [(1, [0, 1, 2])]
    assert read(1, version=2) == {1: "1.2", 2: "1.2"}
    for namespace in range(2, 60):
        read(namespace)
    fetched.clear()
    read(59)
    assert not fetched
    read(1, version=2)
    assert fetched == [(1, [0, 1, 2])]


def test_a_corpus_that_is_asked_often_is_searched_in_the_process_with_equal_answers(
    opened, monkeypatch
):
    asked = opened()
    by_index = answer_all(asked)
    set_bounds(monkeypatch, asked_before_copying=0)
    for _ in range(2):
        assert answer_all(asked) == by_index
    set_bounds(monkeypatch, copied=0)  # larger than what is copied
    assert answer_all(opened()) == by_index


def test_documents_of_others_are_found_and_forgotten_ones_are_not_where_vectors_are_copied(
    opened, monkeypatch
):
    set_bounds(monkeypatch, asked_before_copying=0)
    asked, other = opened(), opened()
    text = "A question without words that others have: zyx."

    def find():
        return [item.node for item in asked.retrieve(text, k=1, record=False).turn.returned]

    assert find() != ["new"]
    other.add_documents([Document(text, id="new")], split=False)
    assert find() == ["new"]
    other.forget(["new"])
    assert find() != ["new"]
