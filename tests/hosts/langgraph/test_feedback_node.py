"""The node that records: what is said, by whom, and once, however often the node runs."""

import pytest
from host_answers import CORRECTION, count_feedback, ids, read_feedback, texts, turn_of
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, RetryPolicy

from crabpath_retrievers import InvalidInputError
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve

CONFIG = {"configurable": {"thread_id": "1"}}


@pytest.fixture
def build(retriever, dict_state):
    """Makes a graph that retrieves, answers, records."""

    def make(state=dict_state, **options):
        builder = StateGraph(state)
        answer = {"answer": "Yes."} if state is dict_state else {}
        builder.add_sequence(
            [
                ("retrieve", crabpath_retrieve(retriever)),
                ("answer", lambda _state: answer),
                ("record", crabpath_feedback(retriever, **options)),
            ]
        )
        builder.add_edge(START, "retrieve")
        return builder.compile(checkpointer=InMemorySaver())

    return make


def scores(retriever, question):
    return {d.id: d.metadata["score"] for d in retriever.invoke(question)}


async def test_records_what_the_state_says(retriever, question, called, build, state):
    """Outcome and used documents teach: the document that was used gains."""
    before = scores(retriever, question)
    last = list(before)[-1]
    said = {"question": question, "outcome": "up", "used": [last]}
    result = await called(build(state), said, CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert result["feedback"]["turn_id"] == result["turn_id"]
    assert scores(retriever, question)[last] > before[last]


def test_finds_the_turn_in_the_documents(retriever, question):
    documents = retriever.invoke(question)
    result = crabpath_feedback(retriever).invoke({"documents": documents, "outcome": 1})
    assert result["feedback"]["turn_id"] == turn_of(documents)
    assert result["feedback"]["status"] == "applied"


def test_every_key_of_the_state_can_have_another_name(retriever, question):
    node = crabpath_feedback(retriever, turn_key="t", outcome_key="z", feedback_key="receipt")
    said = {"t": turn_of(retriever.invoke(question)), "z": -1, "outcome": 1}
    receipt = node.invoke(said)["receipt"]
    assert receipt["status"] == "applied"
    assert read_feedback(retriever, receipt["feedback_id"]).outcome == -1


async def test_outcome_and_correction_none_record_nothing(retriever, called, state):
    said = state(turn_id="t", outcome=None)
    assert await called(crabpath_feedback(retriever), said) == {}
    assert sum(count_feedback(retriever).values()) == 0


@pytest.mark.parametrize(
    ("state", "options", "sentence"),
    [
        ({"outcome": 1}, {}, "no turn in 'turn_id', and none in 'documents'"),
        ({"outcome": 1, "documents": [Document("x")]}, {}, "run crabpath_retrieve before"),
        ({"turn_id": "t"}, {}, "neither 'outcome' nor 'correction'.*ask=True"),
        ({"turn_id": "t", "outcome": 3}, {}, "outcome must be a number from -1 .* not 3"),
        ({"turn_id": "t", "outcome": "great"}, {}, "outcome must be a number .* not 'great'"),
        ({"turn_id": "t", "outcome": 1, "used": 5}, {}, "used must be a list of texts, not 5"),
        (
            {"turn_id": "t", "outcome": 1},
            {"source": "boss"},
            "unknown source 'boss': use one of human",
        ),
    ],
)
async def test_refuses_a_state_that_says_nothing(retriever, called, state, options, sentence):
    """One sentence says what is missing, and nothing is kept."""
    with pytest.raises(InvalidInputError, match=sentence):
        await called(crabpath_feedback(retriever, **options), state)
    assert sum(count_feedback(retriever).values()) == 0


async def test_an_unknown_turn_is_refused(retriever, called):
    result = await called(crabpath_feedback(retriever), {"turn_id": "nobody", "outcome": 1})
    assert result["feedback"]["status"] == "refused"
    assert "no turn 'nobody' is recorded" in result["feedback"]["note"]


async def test_a_correction_on_resume_changes_the_next_retrieval(
    retriever, question, called, build
):
    """A person is asked with question, answer and documents, and what is answered is learned."""
    built = build(ask=True)
    assert CORRECTION not in texts(retriever.invoke(question))
    waiting = await called(built, {"question": question}, CONFIG)
    asked = waiting["__interrupt__"][0].value
    assert (asked["question"], asked["answer"]) == (question, "Yes.")
    assert [item["id"] for item in asked["documents"]] == ids(waiting["documents"])
    result = await called(built, Command(resume=CORRECTION), CONFIG)
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
        ("It was 1966.", -1.0),
        ({"outcome": "up", "correction": "It was 1966."}, 1.0),
        ({"correction": "It was 1966."}, -1.0),
    ],
)
def test_a_person_may_answer_in_many_ways(retriever, question, build, said, outcome):
    """Each comes to an outcome; text that is no thumb is a correction."""
    built = build(ask=True)
    built.invoke({"question": question}, CONFIG)
    result = built.invoke(Command(resume=said), CONFIG)
    feedback = read_feedback(retriever, result["feedback"]["feedback_id"])
    assert feedback.outcome == outcome
    assert feedback.correction == ("It was 1966." if "1966" in str(said) else None)
    assert (feedback.answer, feedback.source) == ("Yes.", "human")


async def test_what_cannot_be_used_is_asked_again(retriever, question, called, build):
    """Every time with the reason, until an answer fits; that one is learned."""
    built = build(ask=True)
    await called(built, {"question": question}, CONFIG)
    for said, reason in [
        (7, "not 7"),
        ([], "not []"),
        ({"mood": "fine"}, "unknown fields ['mood']"),
        ({"used": ["h1"]}, "neither outcome nor correction"),
    ]:
        waiting = await called(built, Command(resume=said), CONFIG)
        assert reason in waiting["__interrupt__"][0].value["error"]
        assert sum(count_feedback(retriever).values()) == 0
    result = await called(built, Command(resume="down"), CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert count_feedback(retriever)["applied"] == 1


async def test_learns_once_from_a_checkpoint_that_is_resumed_twice(
    retriever, question, called, build
):
    runs = []

    def count_run(*_):
        runs.append("run")
        return "default"

    built = build(ask=True, namespace=count_run)
    await called(built, {"question": question}, CONFIG)
    waiting = built.get_state(CONFIG).config
    first = await called(built, Command(resume="down"), CONFIG)
    learned = scores(retriever, question)
    again = await called(built, Command(resume="down"), waiting)
    assert len(runs) == 3
    assert again["feedback"] == first["feedback"]
    assert count_feedback(retriever)["applied"] == 1
    assert scores(retriever, question) == learned


async def test_the_first_word_about_a_turn_stands(retriever, question, called):
    turn = turn_of(retriever.invoke(question))
    node = crabpath_feedback(retriever)
    await called(node, {"turn_id": turn, "outcome": 1})
    result = await called(node, {"turn_id": turn, "outcome": -1})
    assert "recorded before with other content, which is kept" in result["feedback"]["note"]
    assert count_feedback(retriever)["applied"] == 1


async def test_learns_once_when_a_retry_runs_the_node_again(
    retriever, question, called, dict_state
):
    record = crabpath_feedback(retriever)
    runs = []

    def fail_once(state, config):
        found = record.invoke(state, config)
        runs.append(found["feedback"])
        if len(runs) == 1:
            raise ConnectionError
        return found

    builder = StateGraph(dict_state)
    policy = RetryPolicy(initial_interval=0.01, retry_on=ConnectionError)
    builder.add_node("record", fail_once, retry_policy=policy)
    builder.set_entry_point("record")
    turn = turn_of(retriever.invoke(question))
    await called(builder.compile(), {"turn_id": turn, "outcome": 1})
    assert runs[0] == runs[1]
    assert count_feedback(retriever)["applied"] == 1
