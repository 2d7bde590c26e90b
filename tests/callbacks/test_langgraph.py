"""Graphs of LangGraph: threads, interrupts, tools, agents."""

from typing import Annotated, Any

import pytest
from langchain_core.callbacks import dispatch_custom_event
from langgraph.callbacks import GraphCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from tests.seams import count_open_runs

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"


class State(TypedDict, total=False):
    question: str
    documents: list[Any]
    answer: str
    thumb: str
    messages: Annotated[list[Any], add_messages]


def chain_nodes(*steps, node_options=None, **compiled):
    """A graph of these steps in their order."""
    made, last = StateGraph(State), START
    for step in steps:
        made.add_node(step.__name__, step, **(node_options or {}))
        made.add_edge(last, step.__name__)
        last = step.__name__
    made.add_edge(last, END)
    return made.compile(checkpointer=InMemorySaver(), **compiled)


@pytest.fixture
def graph(retriever):
    """Retrieve, then the named steps in their order."""

    def retrieve(state):
        return {"documents": retriever.invoke(state["question"])}

    return lambda *steps, **compiled: chain_nodes(retrieve, *steps, **compiled)


def answer(_):
    return {"answer": "Both are American."}


def ask(_):
    """Ask a person for a thumb."""
    return {"thumb": interrupt("was that right?")}


def config(handler, thread="t"):
    return {"callbacks": [handler], "configurable": {"thread_id": thread}}


def turn_of(state):
    return state["documents"][0].metadata["crabpath"]["turn_id"]


def test_a_resumed_run_is_tied_to_what_its_thread_retrieved_last(
    graph, retriever, silent, recorded
):
    """It has another root run id and retrieves nothing; its end counts, the interrupt does not.

    A new question of the thread does not adopt the interrupted one.
    """
    app = graph(answer, ask)
    app.invoke({"question": "Who was Ed Wood?"}, config(silent, "ours"))
    state = app.invoke({"question": QUESTION}, config(silent, "ours"))
    app.invoke({"question": QUESTION}, config(silent, "theirs"))
    assert (recorded, count_open_runs(silent)) == ([], 0)
    app.invoke(Command(resume="yes"), config(silent, "ours"))
    assert (recorded.turns, recorded.statuses) == ([turn_of(state)], ["applied"])
    assert retriever.memory.explain(recorded.turns[0]).turn.query == QUESTION


def test_a_resumed_run_in_another_process_reads_the_state(
    graph, retriever, handler, silence, recorded
):
    """A worker that did not retrieve finds the turn by the documents in the graph's state."""
    app = graph(answer, ask)
    state = app.invoke({"question": QUESTION}, config(handler))
    fresh = CrabPathCallbackHandler(retriever, silence, on_receipt=recorded)
    app.invoke(Command(resume="yes"), config(fresh))
    assert recorded.turns == [turn_of(state)]


def test_a_node_that_runs_again_after_an_interrupt_counts_once(retriever, silent, recorded):
    def ask_after_retrieval(state):
        documents = retriever.invoke(state["question"])
        return {"documents": documents, "answer": interrupt("what is right?")}

    app = chain_nodes(ask_after_retrieval)
    app.invoke({"question": QUESTION}, config(silent))
    state = app.invoke(Command(resume="American"), config(silent))
    assert recorded.turns == [turn_of(state)]


def test_a_retried_node_counts_once(retriever, silent, recorded):
    seen = []

    def flaky(state):
        seen.append(turn_of({"documents": retriever.invoke(state["question"])}))
        if len(seen) == 1:
            raise ConnectionError
        return {"answer": "American"}

    retry = {"retry_policy": RetryPolicy(initial_interval=0.01)}
    chain_nodes(flaky, node_options=retry).invoke({"question": QUESTION}, config(silent))
    assert len(seen) == 2
    assert recorded.turns == seen[1:]


def test_a_feedback_node_speaks_for_the_thread(graph, handler, recorded):
    """After the resume a node dispatches what the person said: it counts for the turn before."""

    def feedback(state):
        score = float(state["thumb"] == "up")
        dispatch_custom_event("crabpath_feedback", {"score": score, "source": "human"})
        return {}

    app = graph(answer, ask, feedback)
    app.invoke({"question": QUESTION}, config(handler))
    app.invoke(Command(resume="down"), config(handler))
    ((given, receipt),) = recorded
    assert (given.outcome, given.source, receipt.status) == (-1.0, "human", "applied")
    (receipt,) = handler.correct("Both are from the United States.", thread_id="t")
    assert receipt.status == "applied"


def test_documents_of_the_question_before_are_left_alone(retriever, silent, recorded):
    """What stands in the state from before is no turn of a run that retrieves nothing."""
    documents = retriever.invoke(QUESTION)
    chain_nodes(answer).invoke({"question": "hi", "documents": documents}, config(silent))
    assert recorded == []


def test_a_breakpoint_without_exception_is_heard_by_a_graph_handler(
    graph, retriever, silence, recorded
):
    """interrupt_before raises nothing in any node; LangGraph's own handler class is told of it."""

    class Handler(CrabPathCallbackHandler, GraphCallbackHandler):
        pass

    def send(_):
        return {}

    handler = Handler(retriever, silence, on_receipt=recorded)
    app = graph(answer, send, interrupt_before=["send"])
    app.invoke({"question": QUESTION}, config(handler))
    assert recorded == []
    app.invoke(None, config(handler))
    assert recorded.statuses == ["applied"]
