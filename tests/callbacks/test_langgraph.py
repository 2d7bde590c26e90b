"""Graphs of LangGraph: threads, interrupts, tools, agents."""

import uuid
from typing import Annotated, Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, ToolCall
from langchain_core.tools import create_retriever_tool, tool
from langgraph.callbacks import GraphCallbackHandler
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode
from langgraph.types import Command, RetryPolicy, interrupt
from typing_extensions import TypedDict

from crabpath_retrievers.callbacks import CrabPathCallbackHandler, OutcomePolicy, Rule

QUESTION = "Were Scott Derrickson and Ed Wood of the same nationality?"
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))


class State(TypedDict, total=False):
    """A question, what was found, and the answer."""

    question: str
    documents: list[Any]
    answer: str
    thumb: str
    messages: Annotated[list[Any], add_messages]


def graph(retriever, *steps, **compiled):
    """Retrieve, then the named steps in their order."""

    def retrieve(state):
        return {"documents": retriever.invoke(state["question"])}

    made = StateGraph(State)
    last = START
    for step in (retrieve, *steps):
        made.add_node(step.__name__, step)
        made.add_edge(last, step.__name__)
        last = step.__name__
    made.add_edge(last, END)
    return made.compile(checkpointer=InMemorySaver(), **compiled)


def answer(_):
    """Write an answer."""
    return {"answer": "Both are American."}


def ask(_):
    """Ask a person for a thumb."""
    return {"thumb": interrupt("was that right?")}


def config(handler, thread="t"):
    """A conversation that the handler follows."""
    return {"callbacks": [handler], "configurable": {"thread_id": thread}}


@pytest.fixture
def silent(retriever, told):
    """A handler that counts silence."""
    return CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)


def test_an_interrupt_is_neither_success_nor_failure(retriever, silent, told):
    """The root ends while a person is asked: nothing is learned, no run stays open."""
    graph(retriever, answer, ask).invoke({"question": QUESTION}, config(silent))
    assert told == []
    assert len(silent._listener.runs) == 0


def test_a_resumed_run_is_tied_to_what_was_retrieved_before(retriever, silent, told):
    """The resumed run has another root run id and retrieves nothing; its end counts."""
    app = graph(retriever, answer, ask)
    state = app.invoke({"question": QUESTION}, config(silent))
    app.invoke(Command(resume="yes"), config(silent))
    ((feedback, receipt),) = told
    asked = state["documents"][0].metadata["crabpath"]["turn_id"]
    assert (feedback.turn_id, receipt.status) == (asked, "applied")


def test_a_new_question_does_not_adopt_an_interrupted_one(retriever, silent, told):
    """Who asks something else instead of answering leaves the interrupted run without outcome."""
    app = graph(retriever, answer, ask)
    app.invoke({"question": QUESTION}, config(silent))
    app.invoke({"question": "Who was Ed Wood?"}, config(silent))
    app.invoke(Command(resume="yes"), config(silent))
    assert len(told) == 1
    assert retriever.memory.explain(told[0][0].turn_id).turn.query == "Who was Ed Wood?"


def test_other_threads_are_left_alone(retriever, silent, told):
    """A resumed run adopts what its own thread retrieved."""
    app = graph(retriever, answer, ask)
    ours = app.invoke({"question": QUESTION}, config(silent, "ours"))
    app.invoke({"question": QUESTION}, config(silent, "theirs"))
    app.invoke(Command(resume="yes"), config(silent, "ours"))
    asked = ours["documents"][0].metadata["crabpath"]["turn_id"]
    assert [feedback.turn_id for feedback, _ in told] == [asked]


def test_a_node_that_runs_again_counts_once(retriever, silent, told):
    """A node that retrieves and then asks is executed anew: only its last retrieval counts."""

    def ask_after_retrieval(state):
        documents = retriever.invoke(state["question"])
        return {"documents": documents, "answer": interrupt("what is right?")}

    made = StateGraph(State)
    made.add_node("both", ask_after_retrieval)
    made.add_edge(START, "both")
    app = made.compile(checkpointer=InMemorySaver())
    app.invoke({"question": QUESTION}, config(silent))
    state = app.invoke(Command(resume="American"), config(silent))
    last = state["documents"][0].metadata["crabpath"]["turn_id"]
    assert [feedback.turn_id for feedback, _ in told] == [last]


def test_a_retried_node_counts_once(retriever, silent, told):
    """Within one run a retry policy runs a node again: only its last retrieval counts."""
    seen = []

    def flaky(state):
        documents = retriever.invoke(state["question"])
        seen.append(documents[0].metadata["crabpath"]["turn_id"])
        if len(seen) == 1:
            raise ConnectionError
        return {"answer": "American"}

    made = StateGraph(State)
    made.add_node("flaky", flaky, retry_policy=RetryPolicy(initial_interval=0.01))
    made.add_edge(START, "flaky")
    made.compile().invoke({"question": QUESTION}, {"callbacks": [silent]})
    assert len(seen) == 2
    assert [feedback.turn_id for feedback, _ in told] == seen[1:]


def test_a_person_corrects_by_thread(retriever, handler):
    """While the graph waits, the host corrects the thread; the next retrieval is another one."""
    app = graph(retriever, answer, ask)
    app.invoke({"question": QUESTION}, config(handler, "conversation"))
    right = "Derrickson and Wood are both from the United States."
    (receipt,) = handler.correct(right, thread_id="conversation")
    assert receipt.status == "applied"
    assert retriever.invoke(QUESTION)[0].page_content == right
    app.invoke(Command(resume="thanks"), config(handler, "conversation"))


def test_a_feedback_node_speaks_for_the_thread(retriever, handler, told):
    """After the resume a node dispatches what the person said: it counts for the turn before."""
    from langchain_core.callbacks import dispatch_custom_event

    def feedback(state):
        score = float(state["thumb"] == "up")
        dispatch_custom_event("crabpath_feedback", {"score": score, "source": "human"})
        return {}

    app = graph(retriever, answer, ask, feedback)
    app.invoke({"question": QUESTION}, config(handler))
    app.invoke(Command(resume="down"), config(handler))
    ((given, receipt),) = told
    assert (given.outcome, given.source, receipt.status) == (-1.0, "human", "applied")


def test_a_resumed_run_in_another_process_reads_the_state(retriever, told):
    """A worker that did not retrieve finds the turn by the documents in the graph's state."""
    app = graph(retriever, answer, ask)
    state = app.invoke({"question": QUESTION}, config(CrabPathCallbackHandler(retriever)))
    fresh = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    app.invoke(Command(resume="yes"), config(fresh))
    asked = state["documents"][0].metadata["crabpath"]["turn_id"]
    assert [feedback.turn_id for feedback, _ in told] == [asked]


def test_documents_of_the_question_before_are_left_alone(retriever, silent, told):
    """What stands in the state from before is no turn of a run that retrieves nothing."""

    def chat(_):
        return {"answer": "Hello."}

    made = StateGraph(State)
    made.add_node("chat", chat)
    made.add_edge(START, "chat")
    app = made.compile(checkpointer=InMemorySaver())
    documents = retriever.invoke(QUESTION)
    app.invoke({"question": "hi", "documents": documents}, config(silent))
    assert told == []


def test_a_breakpoint_without_exception_is_heard_by_a_graph_handler(retriever, told):
    """interrupt_before raises nothing in any node; LangGraph's own handler class is told of it."""

    class Handler(CrabPathCallbackHandler, GraphCallbackHandler):
        """Hears breakpoints too."""

    def send(_):
        return {}

    handler = Handler(retriever, SILENT, on_receipt=told)
    app = graph(retriever, answer, send, interrupt_before=["send"])
    app.invoke({"question": QUESTION}, config(handler))
    assert told == []
    app.invoke(None, config(handler))
    assert told.statuses == ["applied"]


def test_a_tool_error_is_a_partial_failure_though_the_graph_ends_well(retriever, silent, told):
    """ToolNode hands the error to the model; the root ends, and the failure still counts."""

    @tool
    def book(city: str) -> str:
        """Book a flight."""
        msg = f"no flights to {city}"
        raise ValueError(msg)

    def call(_):
        wanted = ToolCall(name="book", args={"city": "Paris"}, id="1", type="tool_call")
        return {"messages": [AIMessage("", tool_calls=[wanted])]}

    def tools(state, config):
        return ToolNode([book], handle_tool_errors=True).invoke(state, config)

    app = graph(retriever, call, tools, answer)
    app.invoke({"question": QUESTION}, config(silent))
    ((feedback, receipt),) = told
    assert (told.kinds, feedback.outcome) == (["tool_error"], -0.2)
    assert receipt.status == "applied"


class Model(GenericFakeChatModel):
    """Says what it was given, and has tools bound as agents do."""

    def bind_tools(self, tools, **_):
        """It knows its lines."""
        return self


async def test_an_agent_is_followed(retriever, told):
    """create_agent calls the retriever as a tool; its last message is the answer."""
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=told)
    search = create_retriever_tool(retriever, "search", "Searches passages.")
    call = ToolCall(name="search", args={"query": QUESTION}, id="1", type="tool_call")
    said = iter([AIMessage("", tool_calls=[call]), AIMessage("Both are American.")])
    agent = create_agent(Model(messages=said), [search])
    run_id = uuid.uuid4()
    asked = {"messages": [("user", QUESTION)]}
    await agent.ainvoke(asked, {"callbacks": [handler], "run_id": run_id})
    ((feedback, receipt),) = told
    assert (feedback.answer, receipt.status) == ("Both are American.", "applied")
    (later,) = await handler.acorrect("They share a nationality.", run_id=run_id)
    assert later.status == "applied"
