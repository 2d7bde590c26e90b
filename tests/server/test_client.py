"""The client of the server: used as the retriever and the memory that are in this process."""

import asyncio
import json
from contextlib import contextmanager
from typing import Any

import httpx
import pytest
from langchain.agents import create_agent
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langchain_tests.integration_tests import RetrieversIntegrationTests
from starlette.applications import Starlette
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from crabpath_retrievers import (
    CrabPath,
    ForbiddenError,
    InvalidInputError,
    NotFoundError,
    ServiceError,
    StoreUnavailableError,
    TokenError,
)
from crabpath_retrievers import CrabPathRetriever as EmbeddedRetriever
from crabpath_retrievers.callbacks import CrabPathCallbackHandler
from crabpath_server import Access, add_token, create_app
from crabpath_server.client import CrabPathRetriever, ServedMemory
from langgraph_crabpath import (
    CrabPathMiddleware,
    crabpath_feedback,
    crabpath_retrieve,
    create_crabpath_tool,
)
from llama_index.retrievers.crabpath import CrabPathRetriever as LlamaRetriever

QUESTION = "How do I deploy?"


@pytest.fixture
def url(memory, serve) -> str:
    """A server for programs of this machine."""
    return serve(create_app(memory))


@pytest.fixture
def served(url):
    """A retriever over the memory of the server."""
    with CrabPathRetriever.connect(url, k=2) as retriever:
        yield retriever


@pytest.fixture
def embedded(memory):
    """A retriever over the memory itself."""
    return EmbeddedRetriever(memory=memory, k=2)


class TestServedRetriever(RetrieversIntegrationTests):
    """The standard tests that LangChain gives to every retriever integration."""

    memory: CrabPath

    @pytest.fixture(autouse=True)
    def _served(self, url):
        with ServedMemory(url) as self.memory:
            self.memory.add_documents([Document(f"Page {n}.", id=str(n)) for n in range(3)])
            yield

    @property
    def retriever_constructor(self) -> type[BaseRetriever]:
        return CrabPathRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        return QUESTION


def leave_out(document, *names):
    """Text and metadata of a document, without some of the block."""
    block = {k: v for k, v in document.metadata["crabpath"].items() if k not in names}
    return document.id, document.page_content, {**document.metadata, "crabpath": block}


async def test_documents_come_back_as_from_the_memory_itself(served, embedded):
    """In every way of asking; but for the id of the turn."""
    wanted = [leave_out(found, "turn_id") for found in embedded.invoke(QUESTION)]
    answers = [
        await asyncio.to_thread(served.invoke, QUESTION),
        await served.ainvoke(QUESTION),
        *await asyncio.to_thread(served.batch, [QUESTION, QUESTION]),
    ]
    for answer in answers:
        assert [leave_out(found, "turn_id") for found in answer] == wanted
    assert len({answer[0].metadata["crabpath"]["turn_id"] for answer in answers}) == 4


def test_options_of_a_call_reach_the_server(served, memory):
    assert [d.id for d in served.invoke(QUESTION, k=3, filter={"title": "Sky"})] == ["sky"]
    found = served.invoke(QUESTION, {"configurable": {"user_id": "ann"}}, k=1)
    assert found[0].metadata["crabpath"]["namespace"] == "ann"
    assert len(memory.turns(namespace="ann")) == 1
    for option in ({"k": 0}, {"min_score": 2}, {"unknown": 1}, {"filter": print}):
        with pytest.raises(InvalidInputError):
            served.invoke(QUESTION, **option)


def test_hops_arrive_as_they_happen(served, memory):
    seen, wanted = [], []
    served.invoke(QUESTION, on_hop=seen.append)
    memory.retrieve(QUESTION, k=2, on_hop=wanted.append)
    assert seen == wanted != []
    with pytest.raises(InvalidInputError):
        served.invoke(QUESTION, on_hop=seen.append, seed_ids=7)


async def test_outcomes_are_learned_from(served, memory):
    found = served.invoke(QUESTION)
    (receipt,) = served.record(found, outcome=True, used=found[:1])
    assert receipt.status == "applied"
    (again,) = served.record(found, outcome=True, used=found[:1])
    assert (again.status, again.repeated) == ("repeated", True)
    assert [r.status for r in served.record(found, "down")] == ["applied"]
    (below,) = served.record(found, "up", source="self")
    assert (below.status, below.reason) == ("refused", "outranked")
    with pytest.raises(NotFoundError):
        served.record("nothing", outcome=True)
    other = await served.ainvoke(QUESTION, namespace="ännchen/1")
    receipt = await served.arecord(other[0], "down", correction="Run `ship`.", user="eve")
    assert receipt.status == "applied"
    (record,) = memory.learning.feedback(namespace="ännchen/1")
    assert (record.outcome, record.user, record.correction) == (-1, "eve", "Run `ship`.")
    undone = served.memory.undo(receipt.feedback_id, namespace="ännchen/1")
    assert undone.status == "undone"


def test_progress_counts_the_documents_that_were_sent(served):
    totals, done = [], []

    @contextmanager
    def show(total):
        totals.append(total)
        yield done.append

    pages = [Document(f"Pear {number}.", id=f"pear{number}") for number in range(3)]
    served.memory.add_documents(pages, progress=show)
    assert totals == [3]
    assert sum(done) == 3
    with pytest.raises(InvalidInputError, match="progress"):
        served.memory.add_documents(pages, progress=3)


def test_texts_that_cannot_be_stored_are_taken_as_by_the_memory(served, memory):
    broken = "\ud800 the sky"
    assert served.memory.retrieve(broken).turn.query == memory.retrieve(broken).turn.query
    assert served.get_by_ids([broken]) == memory.get_by_ids([broken]) == []
    assert served.memory.documents(words=broken) == memory.documents(words=broken)
    assert served.memory.sources(under=broken) == {}
    note = served.memory.teach(broken, namespace=broken)
    assert [kept.id for kept in memory.notes(namespace=broken)] == [note]


def test_documents_are_added_read_and_forgotten(served, memory):
    strange = "a/b c?#%ä\n"
    pages = [Document("A pear.", id=strange, metadata={"source": "fruit.md", "n": 1})]
    assert served.add_documents(pages) == [strange]
    served.memory.forget([strange.strip(), strange + "x"])
    assert served.get_by_ids([strange, "nothing"]) == memory.get_by_ids([strange, "nothing"])
    assert served.memory.documents(source="fruit.md") == memory.documents(source="fruit.md")
    assert served.memory.documents(words="pear") == memory.documents(words="pear")
    assert served.memory.sources() == memory.sources()
    assert served.memory.forget([strange, "nothing"]) == 1
    assert served.memory.forget(source="sky.md") == 1
    assert {document.id for document in memory.documents()} == {"deploy", "pipeline"}
    again = served.add_documents(served.invoke(QUESTION))
    assert (sorted(again), memory.info()["nodes"]) == (["deploy", "pipeline"], 2)
    with pytest.raises(InvalidInputError, match="splitter"):
        served.add_documents(pages, vectors={strange: [1.0] * 16})
    with pytest.raises(InvalidInputError, match="ids"):
        served.add_documents(pages, ids=["a", "b"])


@pytest.mark.slow
def test_many_documents_are_sent_in_parts(served, memory):
    pages = [Document(f"{n} " + "word " * 10_000, id=f"p{n}") for n in range(200)]
    report = served.memory.add_documents(pages, split=False)
    assert (report.added, len(report.ids)) == (200, 200)
    assert memory.info()["nodes"] == 203


def test_notes_are_written_and_listed(served, memory):
    taught = served.memory.teach("Nobody deploys on a Friday.", query="May I deploy on Friday?")
    found = served.invoke(QUESTION)
    turn = found[0].metadata["crabpath"]["turn_id"]
    fixed = served.memory.correct("Use the button.", turn_id=turn, wrong="deploy")
    assert {note.id for note in memory.notes()} == {taught, fixed}
    assert served.memory.notes() == memory.notes()
    assert served.memory.turns() == memory.turns()
    assert served.get_by_ids([taught])[0].page_content == "Nobody deploys on a Friday."


def test_a_turn_is_explained(atlas, serve, namespace):
    with ServedMemory(serve(create_app(atlas)), namespace=namespace) as memory:
        answer = memory.retrieve("Page 7", k=20)
        walked = [item.node.id for item in answer.documents if item.returned.path]
        memory.record(answer, outcome=True, used=walked)
        explanation, wanted = memory.explain(answer.turn.id), atlas.explain(answer.turn.id)
        with pytest.raises(NotFoundError):
            memory.explain("nothing")
    assert explanation == wanted
    assert str(explanation) == str(wanted)
    assert any(reason.path for reason in explanation.documents)
    assert any(reason.moved for reason in explanation.documents)


async def test_every_method_can_be_awaited(served):
    memory = served.memory
    answer = await memory.aio.retrieve(QUESTION, k=1)
    assert (await memory.aio.record(answer.turn.id, outcome=True)).status == "applied"
    assert (await memory.aio.ready()).ready
    assert await memory.aio.get_by_ids(["deploy"]) == memory.get_by_ids(["deploy"])
    with pytest.raises(InvalidInputError, match="does not offer"):
        await memory.aio.sync("docs")


@pytest.mark.parametrize(
    "use",
    [
        lambda memory: memory.sync("docs"),
        lambda memory: memory.maintenance.run(),
        lambda memory: memory.regions,
        lambda memory: memory.info(),
        lambda memory: memory.forget(namespace="ann"),
        lambda memory: memory.documents(filter={"a": 1}),
    ],
)
def test_what_is_not_served_says_so(served, use):
    with pytest.raises(InvalidInputError, match="the server does not offer this"):
        use(served.memory)


def test_a_memory_is_connected_to_and_not_made(served):
    with pytest.raises(InvalidInputError, match="connect"):
        CrabPathRetriever.from_texts(["x"])
    assert not hasattr(served.memory, "nothing")


@pytest.fixture
def bearer(memory, serve, token_file):
    """The address of a server with tokens, and a function that makes some."""
    add_token(token_file, ["nobody"], ["read"])
    address = serve(create_app(memory, access=Access.from_file(token_file, check_seconds=0)))
    return address, lambda *names, rights: add_token(token_file, list(names), list(rights))


def test_a_token_chooses_the_namespace(bearer, memory):
    url, make = bearer
    with CrabPathRetriever.connect(url, token=make("ann", "eve", rights=["read"])) as retriever:
        assert retriever.namespace == retriever.memory.as_retriever().namespace == "ann"
        retriever.invoke(QUESTION)
        retriever.invoke(QUESTION, namespace="eve")
        with pytest.raises(ForbiddenError, match="does not grant the namespace 'bob'"):
            retriever.invoke(QUESTION, namespace="bob")
        with pytest.raises(ForbiddenError, match="'write'"):
            retriever.add_documents([Document("x")])
    assert [len(memory.turns(namespace=name)) for name in ("ann", "eve", "bob")] == [1, 1, 0]
    for token, error in ((None, TokenError), ("wrong", TokenError), ("ä\n", InvalidInputError)):
        with pytest.raises(error):
            CrabPathRetriever.connect(url, token=token)
    with pytest.raises(ForbiddenError):
        CrabPathRetriever.connect(url, token=make("ann", rights=["read"]), namespace="bob")


def test_a_server_that_is_away_is_said_to_be(url):
    for address in ("ftp://x", "", 7, "http://ann:secret@127.0.0.1:9"):
        with pytest.raises(InvalidInputError):
            CrabPathRetriever.connect(address)
    with pytest.raises(InvalidInputError, match="has no host"):
        CrabPathRetriever.connect("http://")
    with pytest.raises(StoreUnavailableError, match="cannot be reached"):
        CrabPathRetriever.connect("http://127.0.0.1:9")
    with CrabPathRetriever.connect(url) as retriever:
        pass
    with pytest.raises(StoreUnavailableError, match="closed"):
        retriever.invoke(QUESTION)
    assert not retriever.memory.ready().ready


def test_a_token_follows_no_redirect_to_another_server(memory, serve):
    seen = []

    def see(request):
        seen.append(request.headers)
        return Response()

    other = serve(Starlette(routes=[Route("/{path:path}", see)]))
    moved = Route("/{path:path}", lambda _: RedirectResponse(f"{other}/v1/session", 307))
    with pytest.raises(ServiceError):
        CrabPathRetriever.connect(serve(Starlette(routes=[moved])), token="x" * 43)
    assert seen == []


class Failing(httpx.HTTPTransport):
    """Answers some requests with 503 before they reach the server."""

    def __init__(self, failures):
        super().__init__()
        self.left, self.sent = failures, 0

    def handle_request(self, request):
        if request.url.path == "/v1/session":
            return super().handle_request(request)
        self.sent += 1
        if self.left:
            self.left -= 1
            return httpx.Response(
                503, json={"type": "#serviceerror", "status": 503, "detail": "busy"}
            )
        return super().handle_request(request)


def test_only_what_changes_nothing_twice_is_sent_again(url):
    turn = None
    calls = {
        "record": lambda memory: memory.record(turn, outcome=True),
        "notes": lambda memory: memory.notes(),
        "retrieve": lambda memory: memory.retrieve(QUESTION),
        "add": lambda memory: memory.add_documents([Document("x")]),
    }
    with ServedMemory(url) as memory:
        turn = memory.retrieve(QUESTION).turn.id
    sent = {}
    for name, call in calls.items():
        transport = Failing(1)
        with ServedMemory(url, transport=transport) as memory:
            try:
                call(memory)
            except ServiceError as error:
                assert str(error) == "busy"  # noqa: PT017
            sent[name] = transport.sent
    assert sent == {"record": 2, "notes": 2, "retrieve": 1, "add": 1}


def test_callbacks_nodes_and_llama_index_take_it(served, memory):
    handler = CrabPathCallbackHandler(served)
    chain = served | RunnableLambda(lambda found: found[0].page_content)
    chain.invoke(QUESTION, {"callbacks": [handler], "run_id": (run := "0" * 31 + "1")})
    (receipt,) = handler.correct("Use the button.", run_id=run)
    assert receipt.status == "applied"
    state = crabpath_retrieve(served).invoke({"question": QUESTION})
    told = crabpath_feedback(served).invoke({**state, "outcome": 1})
    assert told["feedback"]["status"] == "applied"
    nodes = LlamaRetriever(served.memory).retrieve(QUESTION)
    assert {node.node.node_id for node in nodes} >= {"deploy"}
    assert len(memory.learning.feedback()) == 2


def test_the_middleware_of_agents_takes_it(served, memory, chat_server):
    model = ChatOpenAI(model="m", base_url=chat_server.url, api_key="x", max_retries=0)
    tool = create_crabpath_tool(served)
    agent = create_agent(model, [tool], middleware=[CrabPathMiddleware(served)])
    state = agent.invoke({"messages": [("user", QUESTION)]})
    assert state["messages"][-1].text == "ok"
    assert "Deploys go through" in json.dumps(chat_server.requests[0]["messages"])
    assert "Deploys go through" in tool.invoke({"query": QUESTION})
    assert len(memory.turns()) == 2
