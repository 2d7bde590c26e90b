"""Outcomes of queries as feedback: what people say, and what LlamaIndex reports by itself."""

import asyncio

import openai
import pytest
from chat_server import too_many
from host_answers import CORRECTION, texts
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
from llama_index.retrievers.crabpath.events import QueryTracker
from tests.seams import count_open_runs

SILENT = OutcomePolicy(silent_success=Rule(0.2, "harvested"))
NO_ERRORS = OutcomePolicy(chain_error=Rule(-0.3, "harvested", on=False))


class Broken(MockLLM):
    """A model that fails, as late as its ``max_tokens`` say."""

    _fault: type[Exception] = PrivateAttr(default=RuntimeError)
    _asked: asyncio.Event = PrivateAttr(default_factory=asyncio.Event)

    def complete(self, *_args, **_kwargs):
        msg = "no"
        raise self._fault(msg)

    async def acomplete(self, *_args, **_kwargs):
        self._asked.set()
        await asyncio.sleep(self.max_tokens or 0)
        return self.complete()


def broken(fault):
    model = Broken()
    model._fault = fault  # noqa: SLF001  pydantic has no other attributes
    return model


@pytest.fixture
def engine(retriever):
    """A query engine whose model repeats what it reads."""
    return RetrieverQueryEngine.from_args(retriever, llm=MockLLM())


@pytest.fixture
def handle(retriever):
    """Makes a handler that hears everything while it is entered."""
    return lambda policy=None: CrabPathEventHandler(retriever.memory, policy)


def read_consumed(retriever, turn):
    """Id of the feedback that a turn was learned from; None while there is none."""
    return retriever.memory.store.turns.find(turn, namespace=None).consumed


def read_learned(retriever):
    """The feedback that the last turn was learned from; None without any."""
    store = retriever.memory.store
    (last,) = store.turns.window("default", until=2e9 * 2, turns=1, seconds=1e12)
    return last.consumed and store.learned.get_feedback(last.consumed).feedback


async def test_a_correction_changes_the_next_retrieval(retriever, engine, handle, question):
    """Said of the name that the program gave a query, or of the response itself."""
    with handle() as handler:
        with instrument_tags({"query_id": "42"}):
            first = engine.query(question)
        assert CORRECTION not in texts(first.source_nodes)
        (receipt,) = handler.record("42", -1.0, correction=CORRECTION)
        assert receipt.status == "applied"
        second = await engine.aquery(question)
    assert texts(second.source_nodes)[0] == CORRECTION
    (receipt,) = await retriever.arecord(second, -1.0, correction="They were not.")
    assert receipt.status == "applied"
    assert "They were not." in texts((await engine.aquery(question)).source_nodes)


@pytest.mark.parametrize(
    ("result", "rule", "wanted"),
    [
        ({"score": 0.75}, None, (0.5, "teacher")),
        ({"passing": False, "score": 0.9}, None, (-1.0, "teacher")),
        ({"passing": True}, Rule(0.5, "self"), (0.5, "self")),
        ({"passing": True}, Rule(1, "teacher", on=False), None),
    ],
)
def test_an_evaluation_is_an_outcome(retriever, engine, handle, question, result, rule, wanted):
    """Scores in [0, 1] become outcomes in [-1, 1]; passing or not counts first.

    To a handler, its policy says what it is worth, and whether it counts at all.
    """
    host = retriever if rule is None else handle(OutcomePolicy(score=rule))
    response = engine.query(question)
    receipts = host.record(response, EvaluationResult(**result))
    assert [receipt.status for receipt in receipts] == ([] if wanted is None else ["applied"])
    learned = read_learned(retriever)
    assert (learned and (learned.outcome, learned.source)) == wanted
    assert learned is None or question in learned.answer  # what the response says
    if wanted is None:
        assert host.record(response, 1.0)[0].status == "applied"


async def test_silent_success_teaches_if_it_is_wanted(retriever, engine, handle, question):
    """Damped, once per turn, and with the answer; of an async query by another thread.

    Not a bare retrieval: nothing was answered. Nor a stream: nobody knows whether it was read.
    """
    synthesizer = get_response_synthesizer(llm=MockLLM(), streaming=True)
    streaming = RetrieverQueryEngine(retriever, response_synthesizer=synthesizer)
    with handle():
        engine.query(question)
    with handle(SILENT) as handler:
        retriever.retrieve(question)
        response = streaming.query(question)
        assert read_learned(retriever) is None
        assert "".join(response.response_gen)
        assert handler.record(response, 1.0)[0].status == "applied"
        engine.query(question)
        await asyncio.to_thread(handler.flush)
        learned = read_learned(retriever)
        assert (learned.outcome, learned.source) == (0.2, "harvested")
        assert question in learned.answer
        (turn,) = turns_of(await engine.aquery(question))
        await asyncio.to_thread(handler.flush)
        assert read_consumed(retriever, turn) == f"event:silent_success:{turn}"


@pytest.mark.parametrize("by", ["handler", "retriever"])
def test_what_a_person_says_replaces_it(retriever, engine, handle, question, by):
    """What was learned by itself is taken back first, but not for another namespace."""
    with handle(SILENT) as handler:
        response = engine.query(question)
        (turn,) = turns_of(response)
        host = handler if by == "handler" else retriever
        lenient = {} if by == "handler" else {"strict": False}
        (refused,) = host.record(response, -1.0, correction=CORRECTION, namespace="ann", **lenient)
        assert (refused.status, "'ann'" in refused.note) == ("refused", True)
        assert read_consumed(retriever, turn) == f"event:silent_success:{turn}"
        (receipt,) = host.record(response, -1.0, correction=CORRECTION, feedback_id="said")
    assert receipt[:3] == ("said", "applied", None)
    assert read_consumed(retriever, turn) == "said"


@pytest.mark.parametrize(
    ("policy", "fault", "wanted"),
    [
        (SILENT, RuntimeError, -0.3),
        (NO_ERRORS, RuntimeError, None),
        (OutcomePolicy(not_about_documents=()), ConnectionRefusedError, -0.3),
    ],
)
def test_an_error_after_retrieval(retriever, handle, question, policy, fault, wanted):
    """A little negative, unless the rule is off or the connection failed."""
    engine = RetrieverQueryEngine.from_args(retriever, llm=broken(fault))
    with handle(policy), pytest.raises(fault):
        engine.query(question)
    assert retriever.memory.info()["turns"] == 1
    learned = read_learned(retriever)
    assert (learned and learned.outcome) == wanted


async def test_a_query_that_was_stopped_says_nothing(retriever, handle, question):
    model = Broken(max_tokens=60)
    engine = RetrieverQueryEngine.from_args(retriever, llm=model)
    with handle(SILENT) as handler:
        task = asyncio.create_task(engine.aquery(question))
        await model._asked.wait()  # noqa: SLF001  as above
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await asyncio.to_thread(handler.flush)
    assert read_learned(retriever) is None


BAD_REQUEST = Response('{"error": {"message": "too long"}}', 400, mimetype="application/json")


@pytest.mark.filterwarnings("ignore::pydantic.warnings.PydanticDeprecationWarning")  # its own
@pytest.mark.parametrize(
    ("last", "fault", "wanted"),
    [
        (CORRECTION, None, 0.2),
        (CORRECTION, RuntimeError, -0.2),
        (CORRECTION, ConnectionError, 0.2),
        (too_many(), openai.RateLimitError, None),
        (BAD_REQUEST, openai.BadRequestError, -0.3),
    ],
    ids=["answers", "tool fails", "tool is not reached", "model is busy", "model fails"],
)
async def test_an_agent_run_is_one_run(
    retriever, llm, chat_server, handle, question, last, fault, wanted
):
    """Its turns get the outcome of the whole; a tool or the model may fail after retrieval."""
    tool_fails = fault in {RuntimeError, ConnectionError}
    engine = RetrieverQueryEngine.from_args(retriever, llm=broken(fault))
    make, source = (QueryEngineTool, engine) if tool_fails else (RetrieverTool, retriever)
    tool = make.from_defaults(source, name="passages", description="Passages.")
    chat_server.says = lambda body: (
        last if body["messages"][-1]["role"] == "tool" else {"input": question}
    )
    agent = FunctionAgent(tools=[tool], llm=llm, streaming=False)
    with handle(SILENT) as handler:
        if last is CORRECTION:
            output = await agent.run(question)
            assert str(output) == CORRECTION
            assert len(turns_of(output)) == (0 if tool_fails else 1)
        else:
            with pytest.raises(fault):
                await agent.run(question)
        await asyncio.sleep(0)
        await asyncio.to_thread(handler.flush)
    learned = read_learned(retriever)
    assert (learned and learned.outcome) == wanted
    assert wanted != 0.2 or learned.answer == CORRECTION


def test_every_question_of_a_fusion_is_found(retriever, llm, chat_server, handle, question):
    """Though a node that several questions found comes once, with the turn of only one."""
    chat_server.says = "Was Scott Derrickson American?\nWas Ed Wood American?"
    fused = QueryFusionRetriever([retriever], llm=llm, num_queries=3, similarity_top_k=10)
    engine = RetrieverQueryEngine.from_args(fused, llm=MockLLM())
    with handle() as handler, instrument_tags({"query_id": 7}):
        found = texts(engine.query(question).source_nodes)
    assert len(found) == len(set(found))
    assert [r.status for r in handler.record("7", 1.0)] == ["applied"] * 3
    assert retriever.memory.info()["turns"] == 3


def test_the_turn_of_a_reranker_is_found(index, question, closing):
    """Though no retrieval reports it: the response carries it."""
    made = closing(CrabPathRetriever.from_index(index))
    reranker = CrabPathReranker(memory=made.memory)
    engine = RetrieverQueryEngine.from_args(
        index.as_retriever(), llm=MockLLM(), node_postprocessors=[reranker]
    )
    handler = CrabPathEventHandler(made.memory, SILENT)
    with handler, instrument_tags({"query_id": "q"}):
        (turn,) = turns_of(engine.query(question))
    assert read_consumed(made, turn) == f"event:silent_success:{turn}"
    assert handler.record("q", -1.0)[0].status == "applied"


@pytest.mark.parametrize(
    ("response", "outcome", "message"),
    [
        ("named", 2, "outcome must be a number"),
        ("named", EvaluationResult(invalid_result=True, invalid_reason="no"), "no result"),
        ([], 1.0, "no document that CrabPath returned"),
    ],
)
def test_what_cannot_be_recorded_is_refused(retriever, handle, response, outcome, message):
    for host in (retriever, handle()):
        with pytest.raises(InvalidInputError, match=message):
            host.record(response, outcome)


def test_what_another_tool_says_names_no_turn(retriever, question):
    """Not even where it says the id of one; texts count where the program gives them."""
    mine, theirs = retriever.retrieve(question), retriever.for_namespace("bob").retrieve(question)
    (said,) = turns_of(theirs)
    sources = [
        ToolOutput(content="", tool_name="tool", raw_input={}, raw_output=output)
        for output in ("sunny", said, [said], mine)
    ]
    response = AgentChatResponse(response="sunny", sources=sources)
    assert turns_of(response) == turns_of(mine)
    assert turns_of([said]) == turns_of(said) == [said]


def test_several_turns_under_one_feedback_id_are_kept_apart(retriever, question):
    nodes = [*retriever.retrieve(question), *retriever.retrieve("Ed Wood")]
    receipts = retriever.record(nodes, 1.0, feedback_id="thumb")
    assert [receipt.status for receipt in receipts] == ["applied"] * 2
    assert all(receipt.feedback_id.startswith("thumb-") for receipt in receipts)
    again = retriever.record(nodes, 1.0, feedback_id="thumb")
    assert [one[:3] for one in again] == [one[:3] for one in receipts]
    assert all(one.repeated for one in again)


def test_detached_it_hears_nothing(retriever, engine, handle, question):
    """And leaves the dispatcher as it was; attaching twice hears once."""
    root = get_dispatcher()
    before = list(root.event_handlers), list(root.span_handlers)
    handler = handle(SILENT).attach().attach()
    assert len(root.event_handlers) == len(before[0]) + 1
    handler.detach()
    assert (root.event_handlers, root.span_handlers) == before
    engine.query(question)
    assert read_learned(retriever) is None


async def test_runs_of_threads_and_tasks_do_not_mix(retriever, engine, handle, question):
    found = {}

    async def ask(name):
        with instrument_tags({"query_id": name}):
            found[name] = turns_of(await engine.aquery(f"{question} {name}"))

    with handle() as handler:
        threads = [asyncio.to_thread(asyncio.run, ask(f"t{n}")) for n in range(6)]
        await asyncio.gather(*threads, *(ask(f"q{n}") for n in range(6)))
        for name, turns in found.items():
            receipts = handler.record(name, 1.0)
            consumed = [read_consumed(retriever, turn) for turn in turns]
            assert consumed == [receipt.feedback_id for receipt in receipts]
    assert len({turn for turns in found.values() for turn in turns}) == 12


def test_old_runs_are_forgotten_and_open_ones_do_not_pile_up():
    runs = QueryTracker(keep=4)
    for number in range(10):
        runs.enter(f"s{number}", None)
        runs.add_turns(runs.of(f"s{number}"), [f"t{number}"], [])
        assert runs.leave(f"s{number}").turns == {f"t{number}": None}
    assert (runs.find("t0"), runs.find("t9")) == (None, runs.find("s9"))
    assert count_open_runs(runs) == 0
