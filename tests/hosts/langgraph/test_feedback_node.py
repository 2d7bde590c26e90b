"""The node that records: what is said, by whom, and once, however often the node runs."""

from dataclasses import dataclass, field

import pytest
from langchain_core.documents import Document
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Command, RetryPolicy
from pydantic import BaseModel
from typing_extensions import TypedDict

from crabpath_retrievers import InvalidInputError
from langgraph_crabpath import crabpath_feedback, crabpath_retrieve

CORRECTION = "Both Scott Derrickson and Ed Wood were American."
CONFIG = {"configurable": {"thread_id": "1"}}


class DictState(TypedDict, total=False):
    """State as a TypedDict."""

    question: str
    documents: list[Document]
    turn_id: str
    answer: str
    outcome: float | str | bool
    used: list[str]
    unused: list[str]
    correction: str
    feedback: dict


@dataclass
class DataState:
    """State as a dataclass."""

    question: str = ""
    documents: list[Document] = field(default_factory=list)
    turn_id: str | None = None
    outcome: float | str | bool | None = None
    used: list[str] | None = None
    correction: str | None = None
    feedback: dict | None = None


class ModelState(BaseModel):
    """State as a pydantic model."""

    question: str = ""
    documents: list[Document] = []
    turn_id: str | None = None
    outcome: float | str | bool | None = None
    used: list[str] | None = None
    correction: str | None = None
    feedback: dict | None = None


def graph(retriever, state=DictState, **options):
    """Retrieve, answer, record."""
    builder = StateGraph(state)
    builder.add_node("retrieve", crabpath_retrieve(retriever))
    builder.add_node("answer", lambda _state: {"answer": "Yes."})
    builder.add_node("record", crabpath_feedback(retriever, **options))
    builder.add_edge(START, "retrieve")
    builder.add_edge("retrieve", "answer")
    builder.add_edge("answer", "record")
    builder.add_edge("record", END)
    return builder.compile(checkpointer=InMemorySaver())


def kept(retriever):
    """All feedback that the memory holds, by status."""
    return retriever.memory.store.learned.count_feedback()


def texts(retriever, question, **options):
    """The texts that a question returns now."""
    return [document.page_content for document in retriever.invoke(question, **options)]


@pytest.mark.parametrize("state", [DictState, DataState, ModelState])
async def test_records_what_the_state_says(retriever, question, called, state):
    """Outcome and used documents teach: the document that was used gains."""
    before = {d.id: d.metadata["score"] for d in retriever.invoke(question)}
    last = list(before)[-1]
    said = {"question": question, "outcome": "up", "used": [last]}
    result = await called(graph(retriever, state), said, CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert result["feedback"]["turn_id"] == result["turn_id"]
    assert {d.id: d.metadata["score"] for d in retriever.invoke(question)}[last] > before[last]


def test_finds_the_turn_in_the_documents(retriever, question):
    """A state without a turn id tells the turn by its documents."""
    documents = retriever.invoke(question)
    result = crabpath_feedback(retriever).invoke({"documents": documents, "outcome": 1})
    assert result["feedback"]["turn_id"] == documents[0].metadata["crabpath"]["turn_id"]
    assert result["feedback"]["status"] == "applied"


def test_uses_the_keys_that_are_named(retriever, question):
    """Every key of the state can have another name."""
    node = crabpath_feedback(retriever, turn_key="t", outcome_key="z", feedback_key="receipt")
    turn = retriever.invoke(question)[0].metadata["crabpath"]["turn_id"]
    assert node.invoke({"t": turn, "z": -1, "outcome": 1})["receipt"]["status"] == "applied"


@pytest.mark.parametrize("state", [DataState(turn_id="t"), {"turn_id": "t", "outcome": None}])
async def test_says_nothing_where_nothing_is_said(retriever, called, state):
    """Outcome and correction None record nothing."""
    assert await called(crabpath_feedback(retriever), state) == {}
    assert sum(kept(retriever).values()) == 0


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        ({"outcome": 1}, "no turn in 'turn_id', and none in 'documents'"),
        ({"outcome": 1, "documents": [Document("x")]}, "run crabpath_retrieve before"),
        ({"turn_id": "t"}, "neither 'outcome' nor 'correction'.*ask=True"),
        ({"turn_id": "t", "outcome": 3}, "outcome must be a number from -1 .* not 3"),
        ({"turn_id": "t", "outcome": "great"}, "outcome must be a number .* not 'great'"),
        ({"turn_id": "t", "outcome": 1, "used": 5}, "used must be a list of texts, not 5"),
    ],
)
async def test_refuses_a_state_that_says_nothing(retriever, called, state, sentence):
    """One sentence says what is missing, and nothing is kept."""
    with pytest.raises(InvalidInputError, match=sentence):
        await called(crabpath_feedback(retriever), state)
    assert sum(kept(retriever).values()) == 0


async def test_an_unknown_turn_is_refused(retriever, called):
    """The receipt says so; the graph goes on."""
    result = await called(crabpath_feedback(retriever), {"turn_id": "nobody", "outcome": 1})
    assert result["feedback"]["status"] == "refused"
    assert "no turn 'nobody' is recorded" in result["feedback"]["note"]


def test_refuses_an_unknown_source(retriever, question):
    """The message names those that there are."""
    node = crabpath_feedback(retriever, source="boss")
    with pytest.raises(InvalidInputError, match="unknown source 'boss': use one of human"):
        node.invoke({"turn_id": "t", "outcome": 1})


async def test_a_correction_on_resume_changes_the_next_retrieval(retriever, question, called):
    """A person is asked with question, answer and documents, and what is answered is learned."""
    built = graph(retriever, ask=True)
    assert CORRECTION not in texts(retriever, question)
    waiting = await called(built, {"question": question}, CONFIG)
    asked = waiting["__interrupt__"][0].value
    assert (asked["question"], asked["answer"]) == (question, "Yes.")
    assert [item["id"] for item in asked["documents"]] == [d.id for d in waiting["documents"]]
    result = await called(built, Command(resume=CORRECTION), CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert CORRECTION in texts(retriever, question)


@pytest.mark.parametrize(
    ("said", "outcome"),
    [
        (0.5, 0.5),
        (True, 1.0),
        (False, -1.0),
        ("up", 1.0),
        ("down", -1.0),
        ("👎", -1.0),
        ("It was 1966.", -1.0),
        ({"outcome": "up", "correction": "It was 1966."}, 1.0),
        ({"correction": "It was 1966."}, -1.0),
    ],
)
def test_a_person_may_answer_in_many_ways(retriever, question, said, outcome):
    """Each comes to an outcome; text that is no thumb is a correction."""
    built = graph(retriever, ask=True)
    built.invoke({"question": question}, CONFIG)
    result = built.invoke(Command(resume=said), CONFIG)
    feedback = retriever.memory.store.learned.get_feedback(
        result["feedback"]["feedback_id"]
    ).feedback
    assert feedback.outcome == outcome
    assert feedback.correction == ("It was 1966." if "1966" in str(said) else None)
    assert (feedback.answer, feedback.source) == ("Yes.", "human")


async def test_what_cannot_be_used_is_asked_again(retriever, question, called):
    """Every time with the reason, until an answer fits; that one is learned."""
    built = graph(retriever, ask=True)
    await called(built, {"question": question}, CONFIG)
    for said, reason in [
        (7, "not 7"),
        ([], "not []"),
        ({"mood": "fine"}, "unknown fields ['mood']"),
        ({"used": ["h1"]}, "neither outcome nor correction"),
    ]:
        waiting = await called(built, Command(resume=said), CONFIG)
        assert reason in waiting["__interrupt__"][0].value["error"]
        assert sum(kept(retriever).values()) == 0
    result = await called(built, Command(resume=-1), CONFIG)
    assert result["feedback"]["status"] == "applied"
    assert kept(retriever)["applied"] == 1


async def test_learns_once_from_a_checkpoint_that_is_resumed_twice(retriever, question, called):
    """The node runs again from its start, three times in all, and learns once."""
    runs = []

    def counted(*_):
        runs.append("run")
        return "default"

    built = graph(retriever, ask=True, namespace=counted)
    await called(built, {"question": question}, CONFIG)
    waiting = built.get_state(CONFIG).config
    first = await called(built, Command(resume="down"), CONFIG)
    scores = [d.metadata["score"] for d in retriever.invoke(question)]
    again = await called(built, Command(resume="down"), waiting)
    assert len(runs) == 3
    assert again["feedback"] == first["feedback"]
    assert kept(retriever)["applied"] == 1
    assert [d.metadata["score"] for d in retriever.invoke(question)] == scores


async def test_the_first_word_about_a_turn_stands(retriever, question, called):
    """Another outcome for the same turn is told that the first one counts."""
    turn = retriever.invoke(question)[0].metadata["crabpath"]["turn_id"]
    node = crabpath_feedback(retriever)
    await called(node, {"turn_id": turn, "outcome": 1})
    result = await called(node, {"turn_id": turn, "outcome": -1})
    assert "recorded before with other content, which is kept" in result["feedback"]["note"]
    assert kept(retriever)["applied"] == 1


async def test_learns_once_when_a_retry_runs_the_node_again(retriever, question, called):
    """A node that fails after recording, and is retried, records nothing new."""
    record = crabpath_feedback(retriever)
    runs = []

    def fails_once(state, config):
        found = record.invoke(state, config)
        runs.append(found["feedback"])
        if len(runs) == 1:
            raise ConnectionError
        return found

    builder = StateGraph(DictState)
    policy = RetryPolicy(initial_interval=0.01, retry_on=ConnectionError)
    builder.add_node("record", fails_once, retry_policy=policy)
    builder.set_entry_point("record")
    turn = retriever.invoke(question)[0].metadata["crabpath"]["turn_id"]
    await called(builder.compile(), {"turn_id": turn, "outcome": 1})
    assert runs[0] == runs[1]
    assert kept(retriever)["applied"] == 1


def test_nobody_uses_up_the_feedback_of_another_user(retriever, question):
    """Feedback that was refused for one user leaves the id for the owner of the turn."""
    turn = retriever.invoke(question, namespace="ann")[0].metadata["crabpath"]["turn_id"]
    node = crabpath_feedback(retriever)
    receipts = [
        node.invoke({"turn_id": turn, "outcome": z}, {"configurable": {"user_id": name}})[
            "feedback"
        ]
        for name, z in [("bob", -1), ("ann", 1)]
    ]
    assert [receipt["status"] for receipt in receipts] == ["refused", "applied"]


@pytest.mark.parametrize(("user", "known"), [("eve", "eve"), ("", None), (None, None)])
def test_who_said_so_is_kept(retriever, question, user, known):
    """The user of the run, also where several share a namespace; nobody where none is known."""
    turn = retriever.invoke(question, namespace="team")[0].metadata["crabpath"]["turn_id"]
    node = crabpath_feedback(retriever, namespace="team")
    node.invoke({"turn_id": turn, "outcome": 1}, {"configurable": {"user_id": user}})
    (given,) = retriever.memory.learning.feedback(namespace="team")
    assert (given.user, given.turn_id) == (known, turn)
