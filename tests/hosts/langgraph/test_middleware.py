"""CrabPath as middleware of a LangChain agent, with a chat model behind a real client."""

from functools import partial

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
from crabpath_retrievers.integration import Receipt
from langgraph_crabpath import CrabPathMiddleware, create_crabpath_tool, format_documents

CONFIG = {"configurable": {"thread_id": "1"}}
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
STRICT = OutcomePolicy(tool_error=Rule(-0.5, "self"), silent_success=Rule(0.2, "harvested"))
OFF = OutcomePolicy(
    **{name: Rule(-1, "human", on=False) for name in ("correction", "score", "tool_error")}
)


@tool
def divide(a: float, b: float) -> float:
    """Divide a by b, where a is 0 on another machine."""
    if a == 0:
        raise ConnectionRefusedError
    if b == 0:
        msg = "no number is divided by 0"
        raise ToolException(msg)
    return a / b


divide.handle_tool_error = True


@tool
def approve(what: str) -> str:
    """Ask a person."""
    return f"{what}: {interrupt(what)}"


def calls_tool(**arguments):
    """A model that answers a user by a call of its tool, and a tool by words."""
    return lambda body: arguments if body["messages"][-1]["role"] == "user" else "Done."


class Agent:
    """An agent with the memory, that keeps its threads; awaited with what a user says."""

    def __init__(self, call, question, retriever, model, *tools, beside=(), **options):
        kept = {"response_format": options.pop("response_format", None)}
        middleware = [CrabPathMiddleware(retriever, **options), *beside]
        self.graph = create_agent(
            model, tools, middleware=middleware, checkpointer=InMemorySaver(), **kept
        )
        self._call, self._question = call, question

    async def __call__(self, said=None, *, config=CONFIG, **more):
        said = self._question if said is None else said
        messages = {"messages": [{"role": "user", "content": said}], **more}
        return await self._call(self.graph, messages, config)

    async def resume(self, said):
        return await self._call(self.graph, Command(resume=said), CONFIG)


@pytest.fixture
def make(called, question, retriever, model):
    """Makes agents: ``make(*tools, policy=…)``."""
    return partial(Agent, called, question, retriever, model)


@pytest.fixture
def outcomes(retriever):
    """Outcome and source of the feedback of receipts, as the memory holds it."""

    def read(receipts):
        found = [read_feedback(retriever, receipt["feedback_id"]) for receipt in receipts]
        return [(feedback.outcome, feedback.source) for feedback in found]

    return read


async def test_the_model_reads_the_documents_of_the_last_question(
    make, retriever, question, chat_server
):
    """As data in one message before the question; the history does not hold them."""
    agent, other = make(), "Who directed the film Ed Wood?"
    first, second = await agent(), await agent(other)
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


@pytest.mark.parametrize(
    ("numbers", "policy", "wanted"),
    [
        (None, SILENT, [(0.2, "harvested")]),
        ((1, 0), OutcomePolicy(), [(-0.2, "harvested")]),
        ((1, 0), OFF, []),
        ((1, 0), STRICT, [(-0.5, "self")]),
        ((0, 1), STRICT, [(0.2, "harvested")]),
    ],
)
async def test_the_policy_says_what_the_end_of_a_run_teaches(
    make, outcomes, chat_server, numbers, policy, wanted
):
    """A failed connection says nothing about documents, though the agent reads of it in words."""
    chat_server.says = calls_tool(a=numbers[0], b=numbers[1]) if numbers else "Done."
    agent = make(divide, policy=policy, beside=[ToolRetryMiddleware(max_retries=0)])
    receipts = (await agent())["crabpath_receipts"]
    assert outcomes(receipts) == wanted
    assert {receipt["status"] for receipt in receipts} <= {"applied"}


@pytest.mark.parametrize("unusable", [{"query": " "}, {"query": ["a"]}, {}])
async def test_an_unusable_call_of_the_search_says_nothing_about_documents(
    make, retriever, question, chat_server, unusable
):
    """Neither about those that the middleware found, nor about those of the next search."""

    def say(body):
        last = body["messages"][-1]
        if last["role"] == "user":
            return unusable
        return {"query": question} if "No search was made" in last["content"] else "Done."

    chat_server.says = say
    seen = []
    handler = CrabPathCallbackHandler(retriever, on_receipt=lambda *it: seen.append(it))
    result = await make(create_crabpath_tool(retriever))(config={**CONFIG, "callbacks": [handler]})
    statuses = [message.status for message in result["messages"] if message.type == "tool"]
    assert statuses == ["error", "success"]
    assert len(result["crabpath_turns"]) == 2
    assert (result["crabpath_receipts"], seen) == ([], [])
    assert sum(count_feedback(retriever).values()) == 0


async def test_a_failed_tool_of_an_earlier_run_does_not_count(make, retriever, chat_server):
    chat_server.says = calls_tool(a=1, b=0)
    agent = make(divide)
    assert len((await agent())["crabpath_receipts"]) == 1
    chat_server.says = "ok"
    assert (await agent("Thanks"))["crabpath_receipts"] == []
    assert count_feedback(retriever)["applied"] == 1


async def test_rules_for_what_a_user_says(make, outcomes, retriever):
    """The policy gives the worth of a correction; an outcome beside the text comes first."""
    agent = make(policy=OutcomePolicy(correction=Rule(-0.5, "self")))
    await agent()
    receipts = []
    for words in ({"correction": CORRECTION}, {"outcome": 0.1, "correction": CORRECTION}):
        receipts += (await agent(crabpath_feedback=words))["crabpath_receipts"]
    assert outcomes(receipts) == [(-0.5, "self"), (0.1, "self")]
    off = make(policy=OFF)
    await off()
    for words, kind in (({"correction": CORRECTION}, "correction"), ("up", "score")):
        (receipt,) = (await off("Thanks", crabpath_feedback=words))["crabpath_receipts"]
        assert receipt["status"] == "refused"
        assert f"this is a {kind}, which the policy does not count" in receipt["note"]
    assert sum(count_feedback(retriever).values()) == 2


@pytest.mark.parametrize("blank", [" ", "\u200b\ufeff"])
async def test_a_correction_without_visible_text_says_nothing(make, retriever, blank):
    agent = make()
    await agent()
    said = {"correction": blank}
    (receipt,) = (await agent("Go on", crabpath_feedback=said))["crabpath_receipts"]
    assert "neither outcome nor correction" in receipt["note"]
    (receipt,) = (await agent("Go on", crabpath_feedback={"outcome": "up", **said}))[
        "crabpath_receipts"
    ]
    assert read_feedback(retriever, receipt["feedback_id"]).correction is None
    assert retriever.memory.notes() == []


async def test_words_that_are_no_verdict_teach_nothing(make, outcomes, retriever):
    """A remark is no failure and no correction; a thumb is one however it is written."""
    agent = make()
    await agent()
    for words in ("It was 1966.", "", "thumbs"):
        (receipt,) = (await agent("Go on", crabpath_feedback=words))["crabpath_receipts"]
        assert receipt["status"] == "refused"
        assert "what would have been right goes into correction" in receipt["note"]
    assert sum(count_feedback(retriever).values()) == 0
    for words, outcome in (("Thumbs up", 1.0), ("👎🏿", -1.0)):
        receipts = (await agent(crabpath_feedback=words))["crabpath_receipts"]
        assert outcomes(receipts) == [(outcome, "human")]
    assert retriever.memory.notes() == []


class Said(BaseModel):
    """The answer."""

    answer: str


async def test_structured_output_is_the_answer(make, retriever, chat_server):
    chat_server.says = {"answer": "Both were American."}
    agent = make(policy=SILENT, response_format=ToolStrategy(Said))
    (receipt,) = (await agent())["crabpath_receipts"]
    assert read_feedback(retriever, receipt["feedback_id"]).answer == "Both were American."


async def test_what_a_user_says_replaces_what_agent_and_callback_handler_reported(
    make, outcomes, retriever
):
    """Both report one event; it is one feedback, with the answer of the agent."""
    seen = []
    handler = CrabPathCallbackHandler(retriever, SILENT, on_receipt=lambda *it: seen.append(it))
    agent = make(policy=SILENT)
    (receipt,) = (await agent(config={**CONFIG, "callbacks": [handler]}))["crabpath_receipts"]
    ((feedback, second),) = seen
    assert (feedback.feedback_id, second.status) == (receipt["feedback_id"], "applied")
    assert count_feedback(retriever)["applied"] == 1
    human, _ = (await agent(crabpath_feedback="down"))["crabpath_receipts"]
    replaced = retriever.memory.store.learned.get_feedback(receipt["feedback_id"])
    assert (replaced.status, replaced.feedback.answer) == ("undone", "ok")
    assert human["status"] == "applied"
    assert outcomes([human]) == [(-1, "human")]


async def test_a_correction_with_the_next_message_changes_its_retrieval(
    make, retriever, chat_server
):
    """It is not given twice, and is recorded for its user alone."""
    agent = make()
    ann, bob, thief = (
        {"configurable": {"thread_id": thread, "user_id": name}}
        for thread, name in (("1", "ann"), ("2", "bob"), ("1", "bob"))
    )
    first = await agent(config=ann)
    assert CORRECTION not in texts(first["crabpath_documents"])
    result = await agent(config=ann, crabpath_feedback={"correction": CORRECTION})
    (receipt,) = result["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("applied", first["crabpath_turns"][0])
    assert read_feedback(retriever, receipt["feedback_id"]).answer == "ok"
    assert CORRECTION in texts(result["crabpath_documents"])
    assert CORRECTION in chat_server.requests[1]["messages"][-2]["content"]
    await agent("Thanks", config=ann)
    assert count_feedback(retriever)["applied"] == 1
    assert CORRECTION not in texts((await agent(config=bob))["crabpath_documents"])
    assert {given.user for given in retriever.memory.learning.feedback(source="human")} == {"ann"}
    stolen = await agent("x", config=thief, crabpath_feedback="up")
    assert [receipt["status"] for receipt in stolen["crabpath_receipts"]] == ["refused"]


async def test_feedback_after_small_talk_is_about_the_last_answer_with_documents(
    make, retriever, chat_server
):
    """A question that finds none leaves no turn; without any such answer feedback is refused."""
    agent = make(options={"min_score": 0.9})
    (refused,) = (await agent("Hi", crabpath_feedback="up"))["crabpath_receipts"]
    assert refused["status"] == "refused"
    assert (await agent("Thanks"))["crabpath_turns"] == []
    (refused,) = (await agent("Hi", crabpath_feedback="up"))["crabpath_receipts"]
    assert "no earlier answer with documents" in refused["note"]
    agent, talk = make(), make(options={"min_score": 1.0}, policy=SILENT)
    talk.graph.checkpointer = agent.graph.checkpointer
    turns = (await agent())["crabpath_turns"]
    chat_server.says = "You are welcome."
    told = await talk("Thanks")
    assert (told["crabpath_documents"], told["crabpath_turns"]) == ([], turns)
    assert told["crabpath_receipts"] == []  # small talk is no event of that turn
    said = {"correction": CORRECTION}
    (receipt,) = (await talk("No", crabpath_feedback=said))["crabpath_receipts"]
    assert [receipt["turn_id"]] == turns
    assert read_feedback(retriever, receipt["feedback_id"]).answer == "ok"


async def test_a_thumb_after_small_talk_takes_nothing_back(make, retriever, question):
    """It may be about the small talk; a correction, or another's word, is not withheld."""
    agent, talk = make(namespace="team"), make(namespace="team", options={"min_score": 1.0})
    talk.graph.checkpointer = agent.graph.checkpointer
    ann, bob = ({"configurable": {"thread_id": "1", "user_id": name}} for name in ("ann", "bob"))

    async def give(who, feedback):
        said = await talk("Thanks", config=who, crabpath_feedback=feedback)
        (receipt,) = said["crabpath_receipts"]
        return receipt

    async def find():
        return texts(await retriever.ainvoke(question, namespace="team"))

    await agent(config=ann)
    assert (await give(ann, {"correction": CORRECTION}))["status"] == "applied"
    refused = await give(ann, "up")
    assert (refused["status"], refused["reason"]) == ("refused", "outranked")
    assert "has other feedback of this user already" in refused["note"]
    assert CORRECTION in await find()
    assert (await give(ann, "down"))["status"] == "applied"  # as she has said
    assert CORRECTION in await find()
    assert (await give(bob, "up"))["status"] == "applied"
    assert (await give(ann, {"correction": "Neither was."}))["status"] == "applied"
    assert "Neither was." in await find()
    (turn,) = (await agent(config=ann))["crabpath_turns"]
    first, second = [await give(ann, thumb) for thumb in ("up", "down")]
    assert (first["turn_id"], first["status"], second["status"]) == (turn, "applied", "refused")
    assert retriever.record(turn, "down", user="ann").status == "applied"


async def test_a_correction_is_about_the_question_that_found_no_documents(
    make, retriever, question
):
    """At the start of a thread, and after an answer; a thumb is about that answer."""
    agent, strict = make(), make(options={"min_score": 1.0})
    said = {"correction": CORRECTION}
    for before in (None, question):
        unknown = f"Who wrote the {(before and 'second') or 'first'} line?"
        strict.graph.checkpointer = agent.graph.checkpointer
        turns = (await agent(before))["crabpath_turns"] if before else []
        assert (await strict(unknown))["crabpath_turns"] == turns
        (receipt,) = (await strict("Thanks", crabpath_feedback=said))["crabpath_receipts"]
        assert receipt["status"] == "applied"
        assert retriever.memory.explain(receipt["turn_id"]).turn.query == unknown
    await strict("Who wrote the third line?")
    (receipt,) = (await strict("Thanks", crabpath_feedback="up"))["crabpath_receipts"]
    assert [receipt["turn_id"]] == turns


async def test_feedback_reaches_the_turns_of_the_tool(make, retriever, question, chat_server):
    chat_server.says = lambda body: (
        {"query": "Ed Wood"} if body["messages"][-1]["content"] == question else "Yes."
    )
    agent = make(create_crabpath_tool(retriever, task_type="search"), task_type="answer")
    turns = (await agent())["crabpath_turns"]
    types = [retriever.memory.explain(turn).turn.task_type for turn in turns]
    assert types == ["answer", "search"]
    result = await agent("Thanks", crabpath_feedback="up")
    found = [(receipt["turn_id"], receipt["status"]) for receipt in result["crabpath_receipts"]]
    assert found == [(turn, "applied") for turn in turns]


async def test_what_was_used_counts_for_the_retrieval_that_found_it(
    make, retriever, question, chat_server
):
    """The one before the model or that of the tool, and the thumb counts for both."""
    chat_server.says = lambda body: (
        {"query": "Where is Lake Baikal?"}
        if body["messages"][-1]["content"] == question
        else "Yes."
    )
    first = await (agent := make(create_crabpath_tool(retriever)))()
    found = first["crabpath_documents"]
    (searched,) = [message.artifact for message in first["messages"] if message.type == "tool"]
    used = [
        ({*ids(one)} - {*ids(other)}).pop() for one, other in [(found, searched), (searched, found)]
    ]
    said = {"outcome": "up", "used": used}
    receipts = (await agent("Thanks", crabpath_feedback=said))["crabpath_receipts"]
    kept = [read_feedback(retriever, receipt["feedback_id"]) for receipt in receipts]
    assert [one.used for one in kept] == [(node,) for node in used]
    assert [receipt["status"] for receipt in receipts] == ["applied", "applied"]


async def test_a_client_cannot_hand_in_documents_or_turns(make, retriever, question):
    agent, turns = make(), [turn_of(retriever.invoke(question))]
    result = await agent(crabpath_turns=turns, crabpath_feedback="up")
    (receipt,) = result["crabpath_receipts"]
    assert (receipt["status"], receipt["turn_id"]) == ("refused", None)
    schema = agent.graph.get_input_jsonschema()
    assert set(schema["properties"]) == {"messages", "crabpath_feedback"}


async def test_feedback_that_cannot_be_used_does_not_stop_the_agent(make, retriever):
    """The receipt says why, the policy's outcome stays, and the thread goes on."""
    agent, receipts, every = make(policy=SILENT), [], []
    for feedback in ("up", 7, None):
        result = await agent(crabpath_feedback=feedback)
        receipts.append([(r["status"], r["note"]) for r in result["crabpath_receipts"]])
        every += [frozenset(receipt) for receipt in result["crabpath_receipts"]]
        assert result["messages"][-1].text == "ok"
    assert [[status for status, _ in found] for found in receipts] == [
        ["refused", "applied"],
        ["refused", "applied"],
        ["applied"],
    ]
    assert {*every} == {frozenset(Receipt._fields)}
    assert "no earlier answer with documents in this thread: give the agent a " in receipts[0][0][1]
    assert "must be a number from -1 to 1, not 7" in receipts[1][0][1]
    assert count_feedback(retriever)["applied"] == 3


async def test_a_run_with_tools_and_an_interrupt_retrieves_and_records_once(
    make, retriever, chat_server
):
    chat_server.says = calls_tool(what="Deploy")
    agent = make(approve, policy=SILENT)
    waiting = await agent()
    assert waiting["__interrupt__"][0].value == "Deploy"
    assert sum(count_feedback(retriever).values()) == 0
    result = await agent.resume("yes")
    assert [receipt["status"] for receipt in result["crabpath_receipts"]] == ["applied"]
    assert len(result["crabpath_turns"]) == retriever.memory.info()["turns"] == 1
    first, second = (request["messages"] for request in chat_server.requests)
    assert second[: len(first)] == first
    assert [message["role"] for message in second] == ["user", "user", "assistant", "tool"]


PICTURE = [{"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}]


@pytest.mark.parametrize("said", [PICTURE, "\u200b"])
async def test_a_message_without_text_asks_nothing(make, retriever, chat_server, said):
    await make()(said)
    assert len(chat_server.requests[0]["messages"]) == 1
    assert retriever.memory.info()["turns"] == 0
