"""Parallel branches that gather documents: one thumb about all of the last question, no others."""

import json
import operator
from typing import Annotated, Any

import pytest
from host_answers import CORRECTION, count_feedback, ids, read_feedback
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, StateGraph
from langgraph.types import Command, Send, interrupt
from typing_extensions import TypedDict

from langgraph_crabpath import crabpath_feedback, crabpath_retrieve

CONFIG = {"configurable": {"thread_id": "1"}}
FIRST = ["Who is Scott Derrickson?", "Who is Ed Wood?"]
SECOND = ["Where is Lake Baikal?", "When was it directed?", "Which film is it?"]


class State(TypedDict, total=False):
    asked: list[str]
    documents: Annotated[list, operator.add]
    turn_id: str
    outcome: Any
    used: Any
    correction: Any
    feedback: Any


class Branch(TypedDict, total=False):
    question: str
    documents: Annotated[list, operator.add]


class Output(TypedDict):
    documents: list


def send(state):
    return [Send("branch", {"question": question}) for question in state["asked"]]


@pytest.fixture
def retrieve(retriever):
    return crabpath_retrieve(retriever, turn_key=None, options={"k": 2})


@pytest.fixture
def rounds(retrieve):
    """A sub-graph that retrieves twice, one time after the other."""
    builder = StateGraph(Branch, output_schema=Output)
    builder.add_sequence([("first", retrieve), ("second", retrieve)])
    builder.add_edge(START, "first")
    return builder.compile()


@pytest.fixture
def build(retriever, retrieve):
    """Makes graphs: branches in parallel, then the feedback."""

    def make(branch=retrieve, *, kept=True, **options):
        builder = StateGraph(State)
        builder.add_node("branch", branch)
        builder.add_node("record", crabpath_feedback(retriever, **options))
        builder.add_conditional_edges(START, send, ["branch"])
        builder.add_edge("branch", "record")
        return builder.compile(checkpointer=InMemorySaver() if kept else None)

    return make


def turns_of(documents):
    """Ids of their turns, each once, in order."""
    return list(dict.fromkeys(item.metadata["crabpath"]["turn_id"] for item in documents))


def judged(retriever):
    return {one.turn_id for one in retriever.memory.learning.feedback()}


async def test_one_thumb_judges_the_branches_of_the_last_question(retriever, called, build):
    """Documents of an earlier one stay in the state, and are not judged."""
    graph = build()
    silent = await called(graph, {"asked": FIRST}, CONFIG)
    assert "feedback" not in silent
    result = await called(graph, {"asked": SECOND, "outcome": "down"}, CONFIG)
    earlier, last = turns_of(silent["documents"]), turns_of(result["documents"])[2:]
    assert (len(earlier), len(last)) == (2, 3)
    assert [receipt["turn_id"] for receipt in result["feedback"]] == last
    assert {receipt["status"] for receipt in result["feedback"]} == {"applied"}
    assert judged(retriever) == {*last}
    json.dumps(result["feedback"])


async def test_one_branch_has_one_receipt_without_a_checkpointer(called, build):
    """Also where the caller hands in the documents of an earlier call."""
    graph = build(kept=False)
    first = await called(graph, {"asked": FIRST, "outcome": 1})
    given = {"asked": SECOND[:1], "documents": first["documents"], "outcome": 1}
    receipt = (await called(graph, given))["feedback"]
    assert (len(first["feedback"]), receipt["status"]) == (2, "applied")
    assert receipt["turn_id"] not in turns_of(first["documents"])


async def test_a_person_sees_and_judges_the_branches_of_the_last_question(retriever, called, build):
    """Each document that was used counts for the turn that returned it, and all is kept once."""
    graph = build(ask=True)
    await called(graph, {"asked": FIRST}, CONFIG)
    await called(graph, Command(resume="up"), CONFIG)
    waiting = await called(graph, {"asked": SECOND}, CONFIG)
    asked = waiting["__interrupt__"][0].value
    last = waiting["documents"][4:]
    assert [item["id"] for item in asked["documents"]] == ids(last)
    assert asked["turn_id"] == turns_of(last)
    again = await called(graph, Command(resume={"outcome": 1, "used": ["nothing"]}), CONFIG)
    assert "no document that the turn returned" in again["__interrupt__"][0].value["error"]
    said = {"correction": CORRECTION, "used": ids(last[:1])}
    receipts = (await called(graph, Command(resume=said), CONFIG))["feedback"]
    kept = [read_feedback(retriever, receipt["feedback_id"]) for receipt in receipts]
    assert [one.turn_id for one in kept] == turns_of(last)
    used = [last[0].id in {one.id for one in last[n : n + 2]} for n in (0, 2, 4)]
    assert [one.used for one in kept] == [(last[0].id,) if has else None for has in used]
    assert count_feedback(retriever)["applied"] == 5
    assert {note.text for note in retriever.memory.notes()} == {CORRECTION}  # one a question
    for question in SECOND:
        found = retriever.invoke(question)
        assert sum(CORRECTION in document.page_content for document in found) == 1


async def test_of_sub_graphs_as_branches_each_one_s_last_retrieval_is_judged(called, build, rounds):
    result = await called(build(rounds), {"asked": FIRST, "outcome": 1}, CONFIG)
    turns = turns_of(result["documents"])
    assert len(turns) == 4
    assert [receipt["turn_id"] for receipt in result["feedback"]] == turns[1::2]


async def test_a_branch_that_waited_for_a_person_is_judged_with_the_others(called, build, retrieve):
    def ask(state):
        return {"question": interrupt("Which?") if state["question"] == "?" else state["question"]}

    builder = StateGraph(Branch, output_schema=Output)
    builder.add_sequence([("ask", ask), ("retrieve", retrieve)])
    builder.add_edge(START, "ask")
    graph = build(builder.compile())
    await called(graph, {"asked": [FIRST[0], "?"], "outcome": 1}, CONFIG)
    result = await called(graph, Command(resume=FIRST[1]), CONFIG)
    assert [one["turn_id"] for one in result["feedback"]] == turns_of(result["documents"])


async def test_feedback_within_a_sub_graph_judges_its_own_branches(retriever, called, build):
    """Whatever the graph around it does, and however often it runs it."""
    inner = build(kept=False, ask=True)
    outer = StateGraph(State)
    outer.add_node("inner", inner)
    outer.add_edge(START, "inner")
    graph = outer.compile(checkpointer=InMemorySaver())
    for asked in (FIRST, SECOND):
        waiting = await called(graph, {"asked": asked}, CONFIG)
        shown = waiting["__interrupt__"][0].value
        assert len(shown["turn_id"]) == len(asked)
        assert len(shown["documents"]) == 2 * len(asked)
        receipts = (await called(graph, Command(resume="up"), CONFIG))["feedback"]
        assert [receipt["turn_id"] for receipt in receipts] == shown["turn_id"]
    assert len(judged(retriever)) == 5


async def test_a_turn_that_the_state_names_is_the_one_that_is_judged(called, build):
    graph = build()
    turn = turns_of((await called(graph, {"asked": FIRST}, CONFIG))["documents"])[0]
    said = {"asked": SECOND, "turn_id": turn, "outcome": 1}
    assert (await called(graph, said, CONFIG))["feedback"]["turn_id"] == turn


def test_documents_of_a_graph_are_added_to_a_memory_as_they_were(retriever, build):
    """What says in which step they were found stays out of it."""
    found = build(kept=False).invoke({"asked": FIRST[:1]})["documents"]
    assert found[0].metadata["crabpath"]["step"]
    retriever.memory.add_documents(found)
    (held,) = retriever.memory.get_by_ids([found[0].id])
    assert "crabpath" not in held.metadata
