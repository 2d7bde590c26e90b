"""The node that records: what is said, by whom, and once, however often the node runs."""

import pytest
from host_answers import CORRECTION, count_feedback, ids, read_feedback, texts, turn_of
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command

from crabpath_retrievers import CrabPathRetriever, InvalidInputError, Settings
from crabpath_retrievers.config import LearningSettings
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve

CONFIG = {"configurable": {"thread_id": "1"}}


@pytest.fixture
def build(retriever, dict_state):
    """Makes a graph that retrieves, answers, records."""

    def make(state=dict_state, **options):
        builder = StateGraph(state)
        nodes = {
            "retrieve": crabpath_retrieve(retriever),
            "answer": lambda _state: {"answer": "Yes."},
            "record": crabpath_feedback(retriever, **options),
        }
        builder.add_sequence([*nodes.items()])
        builder.add_edge(START, "retrieve")
        return builder.compile(checkpointer=InMemorySaver())

    return make


@pytest.fixture
def learned(retriever, question):
    """Scores of the documents, by id."""
    return lambda: {d.id: d.metadata["score"] for d in retriever.invoke(question)}


async def test_records_what_the_state_says(learned, question, called, build, state):
    """Outcome and used documents teach: the document that was used gains."""
    before = learned()
    last = list(before)[-1]
    said = {"question": question, "outcome": "up", "used": [last]}
    result = await called(build(state), said, CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert result["feedback"]["turn_id"] == result["turn_id"]
    assert learned()[last] > before[last]


async def test_what_the_state_names_as_relevant_is_found_first(
    retriever, question, called, build, state
):
    """Also where the turn did not return it."""
    missed = retriever.invoke(question, k=9)[-1].id
    result = await called(
        build(state), {"question": question, "outcome": "down", "relevant": [missed]}, CONFIG
    )
    assert missed not in ids(result["documents"])
    assert result["feedback"]["note"] is None
    assert retriever.invoke(question)[0].id == missed


def test_finds_the_turn_in_the_documents_under_keys_of_other_names(retriever, question):
    node = crabpath_feedback(
        retriever, documents_key="found", outcome_key="z", feedback_key="receipt"
    )
    documents = retriever.invoke(question)
    receipt = node.invoke({"found": documents, "z": -1, "outcome": 1})["receipt"]
    assert (receipt["status"], receipt["turn_id"]) == ("applied", turn_of(documents))
    assert read_feedback(retriever, receipt["feedback_id"]).outcome == -1


async def test_outcome_and_correction_none_record_nothing(retriever, called, state):
    """As they are until something writes them, also before anything was retrieved."""
    for said in (state(turn_id="t", outcome=None), state(turn_id="t"), state()):
        assert await called(crabpath_feedback(retriever), said) == {}
    assert sum(count_feedback(retriever).values()) == 0


@pytest.mark.parametrize("blank", ["", " \n", "\u200b\ufeff", "\u00ad\u2060"])
def test_an_empty_box_for_a_correction_says_nothing(retriever, question, build, blank):
    """It is no verdict; the person who was asked is asked again."""
    turn = turn_of(retriever.invoke(question))
    node = crabpath_feedback(retriever)
    assert node.invoke({"turn_id": turn, "outcome": None, "correction": blank}) == {}
    assert sum(count_feedback(retriever).values()) == 0
    graph = build(ask=True)
    graph.invoke({"question": question}, CONFIG)
    (again,) = graph.invoke(Command(resume={"correction": blank}), CONFIG)["__interrupt__"]
    assert "neither outcome nor correction" in again.value["error"]
    receipt = graph.invoke(Command(resume={"outcome": "up", "correction": blank}), CONFIG)[
        "feedback"
    ]
    assert read_feedback(retriever, receipt["feedback_id"]).correction is None


def test_documents_of_earlier_questions_are_not_judged(retriever, question):
    """Where a state gathers them, the last turn is meant, and only its documents are shown."""
    documents = [*retriever.invoke(question), *retriever.invoke("Where is it?")]
    node = crabpath_feedback(retriever)
    receipt = node.invoke({"documents": documents, "outcome": "down"})["feedback"]
    assert receipt["turn_id"] == turn_of(documents[-1:]) != turn_of(documents)


@pytest.mark.parametrize(
    ("state", "options", "sentence"),
    [
        ({"outcome": 1}, {}, "no turn in 'turn_id', and none in 'documents'"),
        ({"outcome": 1, "documents": [Document("x")]}, {}, "run crabpath_retrieve before"),
        ({"turn_id": "t", "outcome": 3}, {}, "outcome must be a number from -1 .* not 3"),
        ({"turn_id": "t", "outcome": "great"}, {}, "outcome must be 'up', .* not 'great'"),
        ({"turn_id": "t", "outcome": 1, "used": 5}, {}, "used must be a list of texts, not 5"),
        ({"turn_id": "t", "outcome": 1}, {"source": "boss"}, "unknown source 'boss': use one of"),
    ],
)
async def test_refuses_a_state_that_cannot_be_used(retriever, called, state, options, sentence):
    """One sentence says what is missing, and nothing is kept."""
    with pytest.raises(InvalidInputError, match=sentence):
        await called(crabpath_feedback(retriever, **options), state)
    assert sum(count_feedback(retriever).values()) == 0


async def test_a_person_is_asked_until_an_answer_fits(retriever, question, called, build):
    """With question, answer and documents, then with the reason; a correction is returned next."""
    built = build(ask=True)
    waiting = await called(built, {"question": question}, CONFIG)
    asked = waiting["__interrupt__"][0].value
    assert (asked["question"], asked["answer"]) == (question, "Yes.")
    assert [item["id"] for item in asked["documents"]] == ids(waiting["documents"])
    for said, reason in [
        (7, "not 7"),
        ([], "not []"),
        (CORRECTION, "what would have been right goes into correction"),
        ({"outcome": 1, "namespace": "ann"}, "unknown fields ['namespace']"),
        ({"used": ["h1"]}, "neither outcome nor correction"),
    ]:
        waiting = await called(built, Command(resume=said), CONFIG)
        assert reason in waiting["__interrupt__"][0].value["error"]
        assert sum(count_feedback(retriever).values()) == 0
    for used in (["nothing of the kind"], [5]):
        said = {"outcome": -1, "used": used, "correction": "These words must not be lost."}
        waiting = await called(built, Command(resume=said), CONFIG)
        assert "no document that the turn returned" in waiting["__interrupt__"][0].value["error"]
    assert CORRECTION not in texts(retriever.invoke(question))
    result = await called(built, Command(resume={"correction": CORRECTION}), CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert CORRECTION in texts(retriever.invoke(question))


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (0.5, 0.5),
        (True, 1.0),
        (False, -1.0),
        ("up", 1.0),
        ("👎", -1.0),
        ("👍🏽", 1.0),
        ("Thumbs up", 1.0),
        ("thumbs_down ", -1.0),
        ({"outcome": "up", "correction": "It was 1966."}, 1.0),
        ({"correction": "It was 1966."}, -1.0),
    ],
)
def test_a_person_may_answer_in_many_ways(retriever, question, build, said, outcome):
    """Each comes to an outcome."""
    built = build(ask=True)
    built.invoke({"question": question}, CONFIG)
    result = built.invoke(Command(resume=said), CONFIG)
    feedback = read_feedback(retriever, result["feedback"]["feedback_id"])
    assert feedback.outcome == outcome
    assert feedback.correction == ("It was 1966." if "1966" in str(said) else None)
    assert (feedback.answer, feedback.source) == ("Yes.", "human")


async def test_learns_once_from_a_checkpoint_that_is_resumed_twice(
    learned, retriever, question, called, build
):
    built = build(ask=True)
    await called(built, {"question": question}, CONFIG)
    waiting = built.get_state(CONFIG).config
    first = await called(built, Command(resume="down"), CONFIG)
    scores = learned()
    again = await called(built, Command(resume="down"), waiting)
    assert again["feedback"] == {**first["feedback"], "repeated": True}
    assert count_feedback(retriever)["applied"] == 1
    assert learned() == scores


async def test_the_last_word_about_a_turn_stands_however_often_the_node_runs(
    retriever, question, called
):
    turn = turn_of(retriever.invoke(question))
    node = crabpath_feedback(retriever)
    first, again, other = [
        (await called(node, {"turn_id": turn, "outcome": outcome}))["feedback"]
        for outcome in (1, 1, -1)
    ]
    assert again == {**first, "repeated": True}
    assert (other["feedback_id"], other["status"]) == (first["feedback_id"], "applied")
    (kept,) = retriever.memory.learning.feedback(turn_id=turn)
    assert kept.outcome == -1.0
    assert count_feedback(retriever)["applied"] == 1


def test_a_receipt_of_feedback_that_waits_names_its_turn(place, embeddings, question):
    """Where another process learns."""
    settings = Settings(learning=LearningSettings(apply="external"))
    retriever = CrabPathRetriever.from_existing(place, embeddings, settings=settings)
    with retriever.memory:
        documents = retriever.invoke(question)
        node = crabpath_feedback(retriever)
        for _ in range(2):
            receipt = node.invoke({"documents": documents, "outcome": 1})["feedback"]
            assert (receipt["status"], receipt["turn_id"]) == ("waiting", turn_of(documents))
