"""Outcomes of queries as feedback: what people say, and what LlamaIndex tells by itself."""

import asyncio
import threading

import openai
import pytest
from chat_server import too_many
from llama_index.core.agent.workflow import FunctionAgent
from llama_index.core.bridge.pydantic import PrivateAttr
from llama_index.core.chat_engine.types import AgentChatResponse
from llama_index.core.evaluation import EvaluationResult
from llama_index.core.instrumentation import get_dispatcher
from llama_index.core.llms import MockLLM
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.response_synthesizers import get_response_synthesizer
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.tools import QueryEngineTool, RetrieverTool, ToolOutput
from llama_index_instrumentation.dispatcher import instrument_tags
from werkzeug import Response

from crabpath_retrievers import InvalidInputError, OutcomePolicy, Rule
from llama_index.retrievers.crabpath import (
    CrabPathEventHandler,
    CrabPathReranker,
    CrabPathRetriever,
    turns_of,
)
from llama_index.retrievers.crabpath.runs import QueryTracker

RIGHT = "Scott Derrickson and Ed Wood were both American."
SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))


def bad_request():
    """HTTP 400, as for a prompt that is too long."""
    return Response('{"error": {"message": "too long"}}', 400, mimetype="application/json")


class Broken(MockLLM):
    """A model that fails."""

    _fault: type[Exception] = PrivateAttr(default=RuntimeError)
    _asked: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def complete(self, *_args, **_kwargs):
        """Never."""
        msg = "no"
        raise self._fault(msg)

    async def acomplete(self, *_args, **_kwargs):
        """Never, and as late as it is told to."""
        self._asked.set()
        await asyncio.sleep(self.max_tokens or 0)
        msg = "no"
        raise self._fault(msg)


def broken(fault):
    """A model that fails by an error of this class."""
    model = Broken()
    model._fault = fault
    return model


@pytest.fixture
def engine(retriever):
    """A query engine whose model repeats what it reads."""
    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


def handling(retriever, policy=None, **options):
    """A handler that hears everything while it is entered."""
    return CrabPathEventHandler(retriever.memory, policy, **options)


def consumed(retriever, turn):
    """Id of the feedback that a turn was learned from; None while there is none."""
    return retriever.memory.store.turns.find(turn, namespace=None).consumed


def test_a_correction_changes_the_next_retrieval(retriever, engine, question):
    """Said of a query by the name that the program gave it: end to end."""
    with handling(retriever) as handler:
        with instrument_tags({"query_id": "42"}):
            first = engine.query(question)
        assert RIGHT not in [item.text for item in first.source_nodes]
        (receipt,) = handler.record("42", -1.0, correction=RIGHT)
        assert receipt.status == "applied"
        second = engine.query(question)
    assert second.source_nodes[0].text == RIGHT


async def test_a_correction_of_a_response(retriever, engine, question):
    """The same by the response itself, without events, asynchronously."""
    response = await engine.aquery(question)
    (receipt,) = await retriever.arecord(response, -1.0, correction=RIGHT)
    assert receipt.status == "applied"
    assert (await engine.aquery(question)).source_nodes[0].text == RIGHT


def test_the_answer_says_which_documents_were_used(retriever, question):
    """A response's own words are its answer: what they rest on is credited."""
    nodes = retriever.retrieve(question)
    used = next(item for item in nodes if item.metadata["title"] == "Ed Wood")

    class Quoting(MockLLM):
        def complete(self, *_args, **_kwargs):
            return super().complete(used.text)

    engine = RetrieverQueryEngine.from_args(retriever, llm=Quoting())
    response = engine.query(question)
    retriever.record(response, 1.0)
    found = {n.node_id: n.metadata["crabpath"]["features"] for n in retriever.retrieve(question)}
    again = {node: features.get("again", 0.0) for node, features in found.items()}
    assert max(again, key=again.__getitem__) == used.node_id
    assert sorted(again.values())[-2] < again[used.node_id]


@pytest.mark.parametrize(
    ("result", "wanted"),
    [({"score": 0.75}, 0.5), ({"passing": False, "score": 0.9}, -1.0), ({"passing": True}, 1.0)],
)
def test_an_evaluation_is_an_outcome(retriever, engine, question, result, wanted):
    """Scores in [0, 1] become outcomes in [-1, 1]; passing or not counts first."""
    from llama_index.retrievers.crabpath.responses import make_response_feedback

    response = engine.query(question)
    (feedback,) = make_response_feedback(response, EvaluationResult(**result))
    assert (feedback.outcome, feedback.source) == (pytest.approx(wanted), "teacher")
    assert retriever.record(response, EvaluationResult(**result))[0].status == "applied"


def test_by_default_silence_teaches_nothing(retriever, engine, question):
    """A query that ended says little."""
    with handling(retriever):
        (turn,) = turns_of(engine.query(question))
    assert consumed(retriever, turn) is None


def test_silent_success_if_it_is_wanted(retriever, engine, question):
    """Damped, once per turn, and with the answer."""
    with handling(retriever, SILENT):
        (turn,) = turns_of(engine.query(question))
    name = consumed(retriever, turn)
    kept = retriever.memory.store.learned.get_feedback(name).feedback
    assert (kept.outcome, kept.source) == (0.2, "harvested")
    assert question in kept.answer


async def test_silent_success_asynchronously(retriever, engine, question):
    """Learned by another thread, once the handler is flushed at the latest."""
    with handling(retriever, SILENT) as handler:
        (turn,) = turns_of(await engine.aquery(question))
        await asyncio.to_thread(handler.flush)
        assert consumed(retriever, turn) == f"event:silent_success:{turn}"


def test_what_a_person_says_replaces_it(retriever, engine, question):
    """What was learned by itself is taken back first; it does not use up the turn."""
    with handling(retriever, SILENT) as handler:
        response = engine.query(question)
        (turn,) = turns_of(response)
        assert consumed(retriever, turn) == f"event:silent_success:{turn}"
        (receipt,) = handler.record(response, -1.0, correction=RIGHT, feedback_id="said")
    assert receipt == ("said", "applied", None)
    assert consumed(retriever, turn) == "said"


def test_so_does_what_the_retriever_records(retriever, engine, question):
    """It takes the place of what the handler saw."""
    with handling(retriever, SILENT):
        response = engine.query(question)
        (turn,) = turns_of(response)
        (receipt,) = retriever.record(response, -1.0, feedback_id="said")
    assert receipt.status == "applied"
    assert consumed(retriever, turn) == "said"


def test_a_bare_retrieval_is_no_success(retriever, question):
    """Nothing was answered."""
    with handling(retriever, SILENT):
        (turn,) = turns_of(retriever.retrieve(question))
    assert consumed(retriever, turn) is None


def test_a_stream_is_no_success(retriever, question):
    """Nobody knows whether it was read; it can be spoken of later."""
    synthesizer = get_response_synthesizer(llm=MockLLM(), streaming=True)
    engine = RetrieverQueryEngine(retriever, response_synthesizer=synthesizer)
    with handling(retriever, SILENT) as handler:
        response = engine.query(question)
        (turn,) = turns_of(response)
        assert consumed(retriever, turn) is None
        assert "".join(response.response_gen)
        assert handler.record(response, 1.0)[0].status == "applied"


def test_an_error_after_retrieval(retriever, question):
    """The query raised: a little negative, unless the rule is off or the connection failed."""
    off = OutcomePolicy(chain_error=Rule(-0.3, "harvested", on=False))
    for policy, fault, wanted in (
        (SILENT, RuntimeError, -0.3),
        (off, RuntimeError, None),
        (SILENT, ConnectionRefusedError, None),
        (OutcomePolicy(not_about_documents=()), ConnectionRefusedError, -0.3),
    ):
        engine = RetrieverQueryEngine.from_args(retriever, llm=broken(fault))
        turns = retriever.memory.info()["turns"]
        with handling(retriever, policy), pytest.raises(fault):
            engine.query(question)
        assert retriever.memory.info()["turns"] == turns + 1
        assert outcome_of_last(retriever) == wanted


def outcome_of_last(retriever, namespace="default"):
    """Outcome that the last turn was learned from; None without any."""
    store = retriever.memory.store
    (last,) = store.turns.window(namespace, until=2e9 * 2, turns=1, seconds=1e12)
    return last.consumed and store.learned.get_feedback(last.consumed).feedback.outcome


async def test_a_query_that_was_stopped_says_nothing(retriever, question):
    """Cancelled is neither failure nor success."""
    model = Broken(max_tokens=60)
    engine = RetrieverQueryEngine.from_args(retriever, llm=model)
    with handling(retriever, SILENT) as handler:
        task = asyncio.create_task(engine.aquery(question))
        await model._asked.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(handler.flush)
    assert retriever.memory.info()["turns"] == 1
    assert outcome_of_last(retriever) is None


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
async def test_an_agent_run_is_one_run(retriever, llm, chat_server, question):
    """Its turns get the outcome of the whole, and the agent's last words as answer."""
    tool = RetrieverTool.from_defaults(retriever, name="passages", description="Passages.")

    def says(body):
        asked = [message for message in body["messages"] if message["role"] == "tool"]
        return RIGHT if asked else {"input": question}

    chat_server.says = says
    agent = FunctionAgent(tools=[tool], llm=llm, streaming=False)
    with handling(retriever, SILENT) as handler:
        (turn,) = turns_of(await agent.run(question))
        await asyncio.sleep(0)
        await asyncio.to_thread(handler.flush)
    kept = retriever.memory.store.learned.get_feedback(f"event:silent_success:{turn}").feedback
    assert (kept.outcome, kept.answer) == (0.2, RIGHT)


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize(
    ("refused", "fault", "wanted"),
    [(too_many, openai.RateLimitError, None), (bad_request, openai.BadRequestError, -0.3)],
)
async def test_an_agent_run_that_fails(
    retriever, llm, chat_server, question, refused, fault, wanted
):
    """After the tool answered: LlamaIndex ends that without a result. A rate limit says nothing."""
    tool = RetrieverTool.from_defaults(retriever, name="passages", description="Passages.")

    def says(body):
        if any(message["role"] == "tool" for message in body["messages"]):
            return refused()
        return {"input": question}

    chat_server.says = says
    agent = FunctionAgent(tools=[tool], llm=llm, streaming=False)
    with handling(retriever, SILENT) as handler:
        with pytest.raises(fault):
            await agent.run(question)
        await asyncio.sleep(0)
        await asyncio.to_thread(handler.flush)
    assert outcome_of_last(retriever) == wanted


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize(("fault", "wanted"), [(RuntimeError, -0.2), (ConnectionError, 0.2)])
async def test_an_agent_run_of_which_a_part_fails(
    retriever, llm, chat_server, question, fault, wanted
):
    """The tool raises after it has retrieved; the agent answers all the same."""
    engine = RetrieverQueryEngine.from_args(retriever, llm=broken(fault))
    tool = QueryEngineTool.from_defaults(engine, name="passages", description="Passages.")

    def says(body):
        asked = [message for message in body["messages"] if message["role"] == "tool"]
        return RIGHT if asked else {"input": question}

    chat_server.says = says
    agent = FunctionAgent(tools=[tool], llm=llm, streaming=False)
    with handling(retriever, SILENT) as handler:
        assert str(await agent.run(question)) == RIGHT
        await asyncio.sleep(0)
        await asyncio.to_thread(handler.flush)
    assert outcome_of_last(retriever) == wanted


def test_every_question_of_a_fusion_is_found(retriever, llm, chat_server, question):
    """Though a node that several questions found carries the turn of only one."""
    chat_server.says = "Was Scott Derrickson American?\nWas Ed Wood American?"
    fused = QueryFusionRetriever([retriever], llm=llm, num_queries=3, similarity_top_k=10)
    engine = RetrieverQueryEngine.from_args(fused, llm=MockLLM())
    with handling(retriever) as handler, instrument_tags({"query_id": 7}):
        engine.query(question)
    assert [r.status for r in handler.record("7", 1.0)] == ["applied"] * 3


def test_the_turn_of_a_reranker_is_found(index, question):
    """Though no retrieval tells of it: the response carries it."""
    made = CrabPathRetriever.from_index(index)
    dense = index.as_retriever(similarity_top_k=10)
    engine = RetrieverQueryEngine.from_args(
        dense, llm=MockLLM(), node_postprocessors=[CrabPathReranker(memory=made.memory)]
    )
    with handling(made, SILENT) as handler, instrument_tags({"query_id": "q"}):
        (turn,) = turns_of(engine.query(question))
    assert consumed(made, turn) == f"event:silent_success:{turn}"
    assert handler.record("q", -1.0)[0].status == "applied"
    made.memory.close()


def test_feedback_about_the_turn_of_another_namespace_is_refused(retriever, engine, question):
    """By the retriever of one's own namespace, and by a handler that is told whose turn it is."""
    response = engine.query(question)
    ann = retriever.for_namespace("ann")
    with handling(retriever, SILENT) as handler:
        other = engine.query(question)
        refused = handler.record(other, -1.0, correction=RIGHT, namespace="ann")
        refused += ann.record(response, -1.0, correction=RIGHT)
    assert [receipt.status for receipt in refused] == ["refused", "refused"]
    assert all("'ann'" in receipt.note for receipt in refused)
    (turn,) = turns_of(other)
    assert consumed(retriever, turn) == f"event:silent_success:{turn}"  # not taken back
    assert RIGHT not in [item.text for item in retriever.retrieve(question)]


@pytest.mark.parametrize(
    ("response", "outcome", "message"),
    [
        ("named", float("nan"), "outcome must be a number"),
        ("named", 2, "outcome must be a number"),
        ("named", EvaluationResult(invalid_result=True, invalid_reason="no"), "no result"),
        (None, 1.0, "NoneType has no CrabPath turn"),
        ([], 1.0, "list has no CrabPath turn"),
    ],
)
def test_what_cannot_be_recorded(retriever, response, outcome, message):
    """Is refused in a sentence, by retriever and handler."""
    for host in (retriever, handling(retriever)):
        with pytest.raises(InvalidInputError, match=message):
            host.record(response, outcome)


def test_what_another_tool_says_names_no_turn(retriever, question):
    """Not even where it says the id of one; texts count where the program gives them."""
    mine, theirs = retriever.retrieve(question), retriever.for_namespace("bob").retrieve(question)
    said = turns_of(theirs)[0]
    outputs = [("weather", "sunny"), ("spy", said), ("list", [said]), ("search", mine)]
    sources = [
        ToolOutput(content="", tool_name=name, raw_input={}, raw_output=output)
        for name, output in outputs
    ]
    response = AgentChatResponse(response="sunny", sources=sources)
    assert turns_of(response) == turns_of(mine)
    assert len(retriever.record(response, 1.0)) == 1
    assert turns_of([said]) == turns_of(said) == [said]


def test_an_unknown_name_is_refused(retriever):
    """As an unknown turn is."""
    (receipt,) = handling(retriever).record("never", 1.0)
    assert receipt.status == "refused"
    assert "no turn 'never'" in receipt.note


def test_a_feedback_id_is_one_per_turn(retriever, question):
    """Several turns under one id are told apart."""
    nodes = [*retriever.retrieve(question), *retriever.retrieve("Ed Wood")]
    receipts = retriever.record(nodes, 1.0, feedback_id="thumb")
    assert [receipt.status for receipt in receipts] == ["applied"] * 2
    assert all(receipt.feedback_id.startswith("thumb-") for receipt in receipts)
    assert retriever.record(nodes, 1.0, feedback_id="thumb") == receipts


def test_the_policy_says_what_an_evaluation_is_worth(retriever, engine, question):
    """To a handler: full or half, and whether it counts at all."""
    good = EvaluationResult(passing=True)
    store = retriever.memory.store
    half = OutcomePolicy(score=Rule(0.5, "self"))
    (receipt,) = handling(retriever, half).record(engine.query(question), good)
    kept = store.learned.get_feedback(receipt.feedback_id).feedback
    assert (kept.outcome, kept.source) == (0.5, "self")
    off = handling(retriever, OutcomePolicy(score=Rule(1, "teacher", on=False)))
    assert off.record(engine.query(question), good) == []
    assert off.record(engine.query(question), 1.0)[0].status == "applied"


def test_detached_it_hears_nothing(retriever, engine, question):
    """And leaves the dispatcher as it was; attaching twice hears once."""
    root = get_dispatcher()
    before = list(root.event_handlers), list(root.span_handlers)
    handler = handling(retriever, SILENT).attach().attach()
    assert len(root.event_handlers) == len(before[0]) + 1
    handler.detach()
    assert (root.event_handlers, root.span_handlers) == before
    (turn,) = turns_of(engine.query(question))
    assert consumed(retriever, turn) is None


def test_many_threads(retriever, engine, question):
    """Runs of threads do not mix: each name finds its own turn."""
    with handling(retriever) as handler:
        found = {}

        def ask(number):
            with instrument_tags({"query_id": f"q{number}"}):
                found[f"q{number}"] = turns_of(engine.query(f"{question} {number}"))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        runs = {name: list(handler._runs.find(name).turns) for name in found}
    assert runs == found
    assert len({turn for turns in found.values() for turn in turns}) == 8


async def test_many_tasks(retriever, engine, question):
    """Nor do those of tasks on one loop."""

    async def ask(number):
        with instrument_tags({"query_id": f"q{number}"}):
            return turns_of(await engine.aquery(f"{question} {number}"))

    with handling(retriever) as handler:
        found = await asyncio.gather(*(ask(number) for number in range(8)))
        for number, turns in enumerate(found):
            assert list(handler._runs.find(f"q{number}").turns) == turns


def test_memory_is_bounded():
    """Old runs are forgotten, and runs that never end do not pile up."""
    runs = QueryTracker(keep=4)
    for number in range(10):
        runs.enter(f"s{number}", None)
        runs.add_turns(runs.of(f"s{number}"), [f"t{number}"], [])
        assert runs.leave(f"s{number}").turns == {f"t{number}": None}
    assert runs.find("t0") is None
    assert runs.find("t9") is runs.find("s9")
    assert not runs._roots
    assert not runs._runs
