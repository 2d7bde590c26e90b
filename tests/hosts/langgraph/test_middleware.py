"""CrabPath as middleware of a LangChain agent, with a chat model behind a real client."""

import pytest
from host_answers import CORRECTION, count_feedback, ids, read_feedback, texts, turn_of
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from crabpath_retrievers import OutcomePolicy, Rule
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from langgraph_crabpath import CrabPathMiddleware, create_crabpath_tool, format_documents

CONFIG = {"configurable": {"thread_id": "1"}}
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
STRICT = OutcomePolicy(tool_error=Rule(-0.5, "self"), silent_success=Rule(0.2, "harvested"))
OFF = OutcomePolicy(
    **{name: Rule(-1, "human", on=False) for name in ("correction", "score", "tool_error")}
)


@tool
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        msg = "no number is divided by 0"
        raise ToolException(msg)
    return a / b


divide.handle_tool_error = True


@tool
def unreachable(a: float, b: float) -> float:
    """Divide a by b on another machine."""
    msg = f"nobody there for {a} / {b}"
    raise ConnectionRefusedError(msg)


@tool
def approve(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt(what)}"


def said(question, **more):
    """Input of an agent: one message of a user."""
    return {"messages": [{"role": "user", "content": question}], **more}


def calls_tool(**arguments):
    """A model that answers a user by a call of its tool, and a tool by words."""
    return lambda body: arguments if body["messages"][-1]["role"] == "user" else "Done."


def agent(retriever, model, *tools, **options):
    """An agent with the memory, that keeps its threads."""
    middleware = CrabPathMiddleware(retriever, **options)
    return create_agent(model, tools, middleware=[middleware], checkpointer=InMemorySaver())


def outcomes(retriever, receipts):
    """Outcome and source of the feedback of receipts, as the memory holds it."""
    found = [read_feedback(retriever, receipt["feedback_id"]) for receipt in receipts]
    return [(feedback.outcome, feedback.source) for feedback in found]


async def test_the_model_reads_the_documents_of_the_last_question(
    retriever, question, called, chat_server, model
):
    """As data in one message before the question; the history does not hold them."""
    built, other = agent(retriever, model), "Who directed the film Ed Wood?"
    first = await called(built, said(question), CONFIG)
    second = await called(built, said(other), CONFIG)
    sent = [
        [(message["role"], message["content"]) for message in request["messages"]]
        for request in chat_server.requests
    ]
    shown = [("user", format_documents(r["crabpath_documents"])) for r in (first, second)]
    assert sent[0] == [shown[0], ("user", question)]
    assert sent[1] == [("user", question), ("assistant", "ok"), shown[1], ("user", other)]
    assert ids(first["crabpath_documents"]) == ids(retriever.invoke(question))
    assert ids(second["crabpath_documents"]) == ids(retriever.invoke(other))
    assert [message.text for message in first["messages"]] == [question, "ok"]
    assert first["crabpath_receipts"] == second["crabpath_receipts"] == []
    assert sum(count_feedback(retriever).values()) == 0


async def test_retrieves_once_for_a_run_with_tools(retriever, question, called, chat_server, model):
    chat_server.says = calls_tool(a=1, b=2)
    result = await called(agent(retriever, model, divide), said(question), CONFIG)
    first, second = (request["messages"] for request in chat_server.requests)
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["user", "user", "assistant", "tool"]
    assert len(result["crabpath_turns"]) == retriever.memory.info()["turns"] == 1


@pytest.mark.parametrize(
    ("used", "policy", "wanted"),
    [
        (None, SILENT, [(0.2, "harvested")]),
        (divide, OutcomePolicy(), [(-0.2, "harvested")]),
        (divide, OFF, []),
        (divide, STRICT, [(-0.5, "self")]),
        (unreachable, STRICT, [(0.2, "harvested")]),
    ],
)
async def test_the_policy_says_what_the_end_of_a_run_teaches(
    retriever, question, called, chat_server, model, used, policy, wanted
):
    """A failed connection says nothing about documents, though the agent reads of it in words."""
    chat_server.says = calls_tool(a=1, b=0) if used else "Done."
    built = create_agent(
        model,
        [used] if used else [],
        middleware=[
            CrabPathMiddleware(retriever, policy=policy),
            ToolRetryMiddleware(max_retries=0),
        ],
    )
    receipts = (await called(built, said(question)))["crabpath_receipts"]
    assert outcomes(retriever, receipts) == wanted
    assert {receipt["status"] for receipt in receipts} <= {"applied"}


async def test_an_agent_that_fails_by_a_connection_records_nothing(
    retriever, question, called, chat_server, model
):
    chat_server.says = calls_tool(a=1, b=0)
    built = agent(retriever, model, unreachable, policy=STRICT)
    with pytest.raises(ConnectionRefusedError):
        await called(built, said(question), CONFIG)
    assert sum(count_feedback(retriever).values()) == 0


async def test_a_failed_tool_of_an_earlier_run_does_not_count(
    retriever, question, called, chat_server, model
):
    chat_server.says = calls_tool(a=1, b=0)
    built = agent(retriever, model, divide)
    assert len((await called(built, said(question), CONFIG))["crabpath_receipts"]) == 1
    chat_server.says = "ok"
    assert (await called(built, said("Thanks"), CONFIG))["crabpath_receipts"] == []
    assert count_feedback(retriever)["applied"] == 1


async def test_rules_for_what_a_user_says(retriever, question, called, model):
    """The policy gives the worth of a correction; an outcome beside the text comes first."""
    built = agent(retriever, model, policy=OutcomePolicy(correction=Rule(-0.5, "self")))
    await called(built, said(question), CONFIG)
    receipts = []
    for words in (CORRECTION, {"outcome": 0.1, "correction": CORRECTION}):
        result = await called(built, said(question, crabpath_feedback=words), CONFIG)
        receipts += result["crabpath_receipts"]
    assert outcomes(retriever, receipts) == [(-0.5, "self"), (0.1, "self")]
    off = agent(retriever, model, policy=OFF)
    await called(off, said(question), CONFIG)
    for words, kind in ((CORRECTION, "correction"), ("up", "score")):
        result = await called(off, said("Thanks", crabpath_feedback=words), CONFIG)
        (receipt,) = result["crabpath_receipts"]
        assert receipt["status"] == "refused"
        assert f"this is a {kind}, which the policy does not count" in receipt["note"]
    assert sum(count_feedback(retriever).values()) == 2


async def test_structured_output_is_the_answer(retriever, question, called, chat_server, model):
    class Said(BaseModel):
        """The answer."""

        answer: str

    chat_server.says = {"answer": "Both were American."}
    middleware = [CrabPathMiddleware(retriever, policy=SILENT)]
    built = create_agent(model, [], middleware=middleware, response_format=ToolStrategy(Said))
    (receipt,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    assert read_feedback(retriever, receipt["feedback_id"]).answer == "Both were American."


async def test_the_callback_handler_may_follow_the_same_agent(retriever, question, called, model):
    """Both report one event; it is one feedback, and what a user says replaces it."""
    seen = []
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=lambda *it: seen.append(it))
    built = agent(retriever, model, policy=SILENT)
    config = {**CONFIG, "callbacks": [handler]}
    (receipt,) = (await called(built, said(question), config))["crabpath_receipts"]
    ((feedback, second),) = seen
    assert (feedback.feedback_id, second.status) == (receipt["feedback_id"], "applied")
    assert count_feedback(retriever)["applied"] == 1
    (human,) = handler.score(0, thread_id="1", source="human")
    status = retriever.memory.store.learned.get_feedback
    assert (human.status, status(receipt["feedback_id"]).status) == ("applied", "undone")


async def test_a_correction_with_the_next_message_changes_its_retrieval(
    retriever, question, called, chat_server, model
):
    """It is not given twice, and is recorded for its user alone."""
    built = agent(retriever, model)
    ann, bob, thief = (
        {"configurable": {"thread_id": thread, "user_id": name}}
        for thread, name in (("1", "ann"), ("2", "bob"), ("1", "bob"))
    )
    first = await called(built, said(question), ann)
    assert CORRECTION not in texts(first["crabpath_documents"])
    result = await called(built, said(question, crabpath_feedback=CORRECTION), ann)
    (receipt,) = result["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("applied", first["crabpath_turns"][0])
    assert read_feedback(retriever, receipt["feedback_id"]).answer == "ok"
    assert CORRECTION in texts(result["crabpath_documents"])
    assert CORRECTION in chat_server.requests[1]["messages"][-2]["content"]
    await called(built, said("Thanks"), ann)
    assert count_feedback(retriever)["applied"] == 1
    his = await called(built, said(question), bob)
    assert CORRECTION not in texts(his["crabpath_documents"])
    assert {given.user for given in retriever.memory.learning.feedback(source="human")} == {"ann"}
    stolen = await called(built, said("x", crabpath_feedback="up"), thief)
    assert [receipt["status"] for receipt in stolen["crabpath_receipts"]] == ["refused"]


async def test_the_user_has_the_last_word(retriever, question, called, model):
    built = agent(retriever, model, policy=SILENT)
    (harvested,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    result = await called(built, said(question, crabpath_feedback="down"), CONFIG)
    human, _ = result["crabpath_receipts"]
    taken_back = retriever.memory.store.learned.get_feedback(harvested["feedback_id"])
    assert (taken_back.status, taken_back.feedback.answer) == ("undone", "ok")
    assert human["status"] == "applied"
    assert outcomes(retriever, [human]) == [(-1, "human")]


async def test_feedback_reaches_the_turns_of_the_tool(
    retriever, question, called, chat_server, model
):
    chat_server.says = lambda body: (
        {"query": "Ed Wood"} if body["messages"][-1]["content"] == question else "Yes."
    )
    built = agent(retriever, model, create_crabpath_tool(retriever))
    turns = (await called(built, said(question), CONFIG))["crabpath_turns"]
    assert len(turns) == 2
    result = await called(built, said("Thanks", crabpath_feedback="up"), CONFIG)
    found = [(receipt["turn_id"], receipt["status"]) for receipt in result["crabpath_receipts"]]
    assert found == [(turn, "applied") for turn in turns]


async def test_a_client_cannot_hand_in_documents_or_turns(retriever, question, called, model):
    built = agent(retriever, model)
    turns = [turn_of(retriever.invoke(question))]
    sent = said(question, crabpath_turns=turns, crabpath_feedback="up")
    (receipt,) = (await called(built, sent, CONFIG))["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("refused", None)
    schema = built.get_input_jsonschema()
    assert set(schema["properties"]) == {"messages", "crabpath_feedback"}


async def test_feedback_that_cannot_be_used_does_not_stop_the_agent(
    retriever, question, called, chat_server, model
):
    """The receipt says why, the policy's outcome stays, and the thread goes on."""
    built = agent(retriever, model, policy=SILENT)
    receipts = []
    for feedback in ("up", 7, None):
        result = await called(built, said(question, crabpath_feedback=feedback), CONFIG)
        receipts.append([(r["status"], r["note"]) for r in result["crabpath_receipts"]])
        assert result["messages"][-1].text == "ok"
    assert [[status for status, _ in found] for found in receipts] == [
        ["refused", "applied"],
        ["refused", "applied"],
        ["applied"],
    ]
    assert "no earlier answer in this thread: give the agent a checkpointer" in receipts[0][0][1]
    assert "must be a number from -1 (failure) to 1 (success), not 7" in receipts[1][0][1]
    assert count_feedback(retriever)["applied"] == 3


async def test_an_interrupted_run_retrieves_and_records_once(
    retriever, question, called, chat_server, model
):
    chat_server.says = calls_tool(what="Deploy")
    built = agent(retriever, model, approve, policy=SILENT)
    waiting = await called(built, said(question), CONFIG)
    assert waiting["__interrupt__"][0].value == "Deploy"
    assert sum(count_feedback(retriever).values()) == 0
    result = await called(built, Command(resume="yes"), CONFIG)
    assert [receipt["status"] for receipt in result["crabpath_receipts"]] == ["applied"]
    assert len(result["crabpath_turns"]) == retriever.memory.info()["turns"] == 1


async def test_a_message_without_text_asks_nothing(retriever, called, chat_server, model):
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    await called(agent(retriever, model), said([image]), CONFIG)
    assert len(chat_server.requests[0]["messages"]) == 1
    assert retriever.memory.info()["turns"] == 0
