"""CrabPath as middleware of a LangChain agent, with a chat model behind a real client."""

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import ToolRetryMiddleware
from langchain.agents.structured_output import ToolStrategy
from langchain_core.tools import ToolException, tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.types import Command, interrupt
from pydantic import BaseModel

from crabpath_retrievers import InvalidInputError, OutcomePolicy, Rule
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from langgraph_crabpath import CrabPathMiddleware, create_crabpath_tool, format_documents

CORRECTION = "Both Scott Derrickson and Ed Wood were American."
CONFIG = {"configurable": {"thread_id": "1"}}
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))


@tool
def divide(a: float, b: float) -> float:
    """Divide a by b."""
    if b == 0:
        msg = "no number is divided by 0"
        raise ToolException(msg)
    return a / b


divide.handle_tool_error = True


def said(question, **more):
    """Input of an agent: one message of a user."""
    return {"messages": [{"role": "user", "content": question}], **more}


def agent(retriever, model, *tools, **options):
    """An agent with the memory, that keeps its threads."""
    middleware = CrabPathMiddleware(retriever, **options)
    return create_agent(model, tools, middleware=[middleware], checkpointer=InMemorySaver())


def texts(retriever, question):
    """The texts that a question returns now."""
    return [document.page_content for document in retriever.invoke(question)]


def kept(retriever):
    """All feedback that the memory holds, by status."""
    return retriever.memory.store.learned.count_feedback()


def recorded(retriever, receipt):
    """The feedback of a receipt, as the memory holds it."""
    return retriever.memory.store.learned.get_feedback(receipt["feedback_id"]).feedback


async def test_the_model_reads_the_documents(retriever, question, called, chat_server, model):
    """They stand as data in one message before the question; the history does not hold them."""
    result = await called(agent(retriever, model), said(question), CONFIG)
    sent = [
        (message["role"], message["content"]) for message in chat_server.requests[0]["messages"]
    ]
    documents = result["crabpath_documents"]
    assert sent == [("user", format_documents(documents)), ("user", question)]
    assert [d.id for d in documents] == [d.id for d in retriever.invoke(question)]
    assert [message.text for message in result["messages"]] == [question, "ok"]


async def test_documents_do_not_pile_up(retriever, question, called, chat_server, model):
    """In every turn the model reads those of the last question only."""
    built = agent(retriever, model)
    other = "Who directed the film Ed Wood?"
    await called(built, said(question), CONFIG)
    result = await called(built, said(other), CONFIG)
    sent = [message["content"] for message in chat_server.requests[1]["messages"]]
    assert sent == [question, "ok", format_documents(result["crabpath_documents"]), other]
    assert [d.id for d in result["crabpath_documents"]] == [d.id for d in retriever.invoke(other)]


async def test_retrieves_once_for_a_run_with_tools(retriever, question, called, chat_server, model):
    """The documents stay where they are while tools run, and one turn is recorded."""
    chat_server.says = lambda body: (
        {"a": 1, "b": 2} if body["messages"][-1]["role"] == "user" else "A half."
    )
    result = await called(agent(retriever, model, divide), said(question), CONFIG)
    first, second = (request["messages"] for request in chat_server.requests)
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["user", "user", "assistant", "tool"]
    assert len(result["crabpath_turns"]) == retriever.memory.info()["turns"] == 1


async def test_silence_teaches_nothing(retriever, question, called, model):
    """By default an agent that ends without an error records nothing."""
    result = await called(agent(retriever, model), said(question), CONFIG)
    assert result["crabpath_receipts"] == []
    assert sum(kept(retriever).values()) == 0


async def test_silence_may_be_told_to_teach(retriever, question, called, chat_server, model):
    """Then its outcome is recorded with the answer, as harvested."""
    chat_server.says = "Scott Derrickson is an American director."
    built = agent(retriever, model, policy=SILENT)
    (receipt,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    feedback = recorded(retriever, receipt)
    assert receipt["status"] == "applied"
    assert (feedback.outcome, feedback.source) == (0.2, "harvested")
    assert feedback.answer == "Scott Derrickson is an American director."


async def test_a_failed_tool_counts_against_the_run(
    retriever, question, called, chat_server, model
):
    """A partial negative is recorded when a tool of this run failed, not one of an earlier run."""
    chat_server.says = lambda body: (
        {"a": 1, "b": 0} if body["messages"][-1]["content"] == question else "It cannot be done."
    )
    built = agent(retriever, model, divide)
    (receipt,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    assert recorded(retriever, receipt).outcome == -0.2
    later = await called(built, said("Thanks"), CONFIG)
    assert later["crabpath_receipts"] == []
    assert kept(retriever)["applied"] == 1


@tool
def unreachable(a: float, b: float) -> float:
    """Divide a by b on another machine."""
    msg = f"nobody there for {a} / {b}"
    raise ConnectionRefusedError(msg)


@pytest.mark.parametrize(
    ("used", "on_failure", "wanted"),
    [
        (divide, "continue", [(-0.5, "self")]),
        (unreachable, "continue", [(0.2, "harvested")]),
        (unreachable, "error", []),
    ],
)
async def test_a_failed_connection_says_nothing_about_documents(
    retriever, question, called, chat_server, model, used, on_failure, wanted
):
    """Though the agent is told of it in words alone; an agent that fails by it records nothing."""
    chat_server.says = lambda body: (
        {"a": 1, "b": 0} if body["messages"][-1]["content"] == question else "It cannot be done."
    )
    policy = OutcomePolicy(tool_error=Rule(-0.5, "self"), silent_success=Rule(0.2, "harvested"))
    retries = ToolRetryMiddleware(max_retries=0, on_failure=on_failure)
    middleware = [CrabPathMiddleware(retriever, policy=policy), retries]
    built = create_agent(model, [used], middleware=middleware)
    try:
        receipts = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    except ConnectionRefusedError:
        receipts = []
    found = [recorded(retriever, receipt) for receipt in receipts]
    assert [(feedback.outcome, feedback.source) for feedback in found] == wanted


async def test_every_rule_can_be_switched_off(retriever, question, called, chat_server, model):
    """Neither the failed tool is learned from then, nor what the user says."""
    chat_server.says = lambda body: (
        {"a": 1, "b": 0} if body["messages"][-1]["content"] == question else "It cannot be done."
    )
    off = {name: Rule(-1, "human", on=False) for name in ("correction", "score", "tool_error")}
    built = agent(retriever, model, divide, policy=OutcomePolicy(**off))
    assert (await called(built, said(question), CONFIG))["crabpath_receipts"] == []
    for words, kind in ((CORRECTION, "correction"), ("up", "score")):
        result = await called(built, said("Thanks", crabpath_feedback=words), CONFIG)
        (receipt,) = result["crabpath_receipts"]
        assert receipt["status"] == "refused"
        assert f"this is a {kind}, which the policy does not count" in receipt["note"]
    assert sum(kept(retriever).values()) == 0


async def test_the_policy_says_what_a_correction_is_worth(retriever, question, called, model):
    """And who is thought to say so; what the user says of it beside the text comes first."""
    policy = OutcomePolicy(correction=Rule(-0.5, "self"))
    built = agent(retriever, model, policy=policy)
    await called(built, said(question), CONFIG)
    result = await called(built, said(question, crabpath_feedback=CORRECTION), CONFIG)
    result2 = await called(
        built, said("x", crabpath_feedback={"outcome": 0.1, "correction": CORRECTION}), CONFIG
    )
    found = [recorded(retriever, r) for r in result["crabpath_receipts"]]
    found += [recorded(retriever, r) for r in result2["crabpath_receipts"]]
    assert [(f.outcome, f.source) for f in found] == [(-0.5, "self"), (0.1, "self")]


async def test_structured_output_is_the_answer(retriever, question, called, chat_server, model):
    """An agent that answers in a schema says its answer there."""

    class Said(BaseModel):
        """The answer."""

        answer: str

    chat_server.says = {"answer": "Both were American."}
    middleware = [CrabPathMiddleware(retriever, policy=SILENT)]
    built = create_agent(model, [], middleware=middleware, response_format=ToolStrategy(Said))
    (receipt,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    assert recorded(retriever, receipt).answer == "Both were American."


async def test_the_callback_handler_may_follow_the_same_agent(retriever, question, called, model):
    """Both tell of one event; it is one feedback, and what a user says replaces it."""
    told = []
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=lambda *it: told.append(it))
    built = agent(retriever, model, policy=SILENT)
    config = {**CONFIG, "callbacks": [handler]}
    (receipt,) = (await called(built, said(question), config))["crabpath_receipts"]
    ((feedback, second),) = told
    assert (feedback.feedback_id, second.status) == (receipt["feedback_id"], "applied")
    assert kept(retriever)["applied"] == 1
    (human,) = handler.score(0, thread_id="1", source="human")
    status = retriever.memory.store.learned.get_feedback
    assert (human.status, status(receipt["feedback_id"]).status) == ("applied", "undone")


async def test_a_correction_with_the_next_message_changes_the_next_retrieval(
    retriever, question, called, chat_server, model
):
    """It is learned before the retrieval of that message, and is not given twice."""
    built = agent(retriever, model)
    assert CORRECTION not in texts(retriever, question)
    first = await called(built, said(question), CONFIG)
    result = await called(built, said(question, crabpath_feedback=CORRECTION), CONFIG)
    (receipt,) = result["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("applied", first["crabpath_turns"][0])
    assert recorded(retriever, receipt).answer == "ok"
    assert CORRECTION in [d.page_content for d in result["crabpath_documents"]]
    assert CORRECTION in chat_server.requests[1]["messages"][-2]["content"]
    await called(built, said("Thanks"), CONFIG)
    assert kept(retriever)["applied"] == 1


async def test_the_user_has_the_last_word(retriever, question, called, model):
    """What the policy recorded for a turn is taken back when the user speaks about it."""
    built = agent(retriever, model, policy=SILENT)
    (harvested,) = (await called(built, said(question), CONFIG))["crabpath_receipts"]
    result = await called(built, said(question, crabpath_feedback="down"), CONFIG)
    human, _ = result["crabpath_receipts"]
    status = retriever.memory.store.learned.get_feedback
    assert status(harvested["feedback_id"]).status == "undone"
    assert (human["status"], recorded(retriever, human).outcome) == ("applied", -1)


async def test_feedback_reaches_the_turns_of_the_tool(
    retriever, question, called, chat_server, model
):
    """What the tool found in a run is learned about like what was found before it."""
    chat_server.says = lambda body: (
        {"query": "Ed Wood"} if body["messages"][-1]["content"] == question else "Yes."
    )
    built = agent(retriever, model, create_crabpath_tool(retriever))
    first = await called(built, said(question), CONFIG)
    assert len(first["crabpath_turns"]) == 2
    result = await called(built, said("Thanks", crabpath_feedback="up"), CONFIG)
    assert [receipt["turn_id"] for receipt in result["crabpath_receipts"]] == first[
        "crabpath_turns"
    ]
    assert {receipt["status"] for receipt in result["crabpath_receipts"]} == {"applied"}


async def test_two_users_two_minds(retriever, question, called, model):
    """The namespace follows from the run, for retrieving and for learning."""
    built = agent(retriever, model)
    ann = {"configurable": {"thread_id": "1", "user_id": "ann"}}
    bob = {"configurable": {"thread_id": "2", "user_id": "bob"}}
    await called(built, said(question), ann)
    hers = await called(built, said(question, crabpath_feedback=CORRECTION), ann)
    his = await called(built, said(question), bob)
    assert CORRECTION in [d.page_content for d in hers["crabpath_documents"]]
    assert CORRECTION not in [d.page_content for d in his["crabpath_documents"]]
    assert {given.user for given in retriever.memory.learning.feedback(source="human")} == {"ann"}
    stolen = {"configurable": {"thread_id": "1", "user_id": "bob"}}
    receipts = (await called(built, said("x", crabpath_feedback="up"), stolen))["crabpath_receipts"]
    assert [receipt["status"] for receipt in receipts] == ["refused"]


async def test_a_client_cannot_hand_in_documents_or_turns(
    retriever, question, called, chat_server, model
):
    """Of the middleware's keys only the feedback is taken from the input."""
    turn = retriever.invoke(question)[0].metadata["crabpath"]["turn_id"]
    sent = said(question, crabpath_turns=[turn], crabpath_feedback="up")
    (receipt,) = (await called(agent(retriever, model), sent, CONFIG))["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("refused", None)
    schema = agent(retriever, model).get_input_jsonschema()
    assert set(schema["properties"]) == {"messages", "crabpath_feedback"}


async def test_feedback_that_cannot_be_used_does_not_stop_the_agent(
    retriever, question, called, model
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
    assert kept(retriever)["applied"] == 3


async def test_an_interrupted_run_retrieves_and_records_once(
    retriever, question, called, chat_server, model
):
    """A tool that waits for a person does not make the middleware work twice."""

    @tool
    def approve(what: str) -> str:
        """Ask a person."""
        return f"{what}: {interrupt(what)}"

    chat_server.says = lambda body: (
        {"what": "Deploy"} if body["messages"][-1]["role"] == "user" else "Done."
    )
    built = agent(retriever, model, approve, policy=SILENT)
    waiting = await called(built, said(question), CONFIG)
    assert waiting["__interrupt__"][0].value == "Deploy"
    assert sum(kept(retriever).values()) == 0
    result = await called(built, Command(resume="yes"), CONFIG)
    assert [receipt["status"] for receipt in result["crabpath_receipts"]] == ["applied"]
    assert len(result["crabpath_turns"]) == retriever.memory.info()["turns"] == 1


async def test_a_message_without_text_is_left_alone(retriever, called, chat_server, model):
    """An image alone asks nothing of the memory."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    await called(agent(retriever, model), said([image]), CONFIG)
    assert len(chat_server.requests[0]["messages"]) == 1
    assert retriever.memory.info()["turns"] == 0


def test_refuses_what_is_no_retriever(retriever):
    """Any other object is refused when the agent is built."""
    with pytest.raises(InvalidInputError, match="pass a CrabPathRetriever, not a CrabPath"):
        CrabPathMiddleware(retriever.memory)
