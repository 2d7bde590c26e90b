"""What people who swap a LangChain retriever write: its names, its config, its feedback."""

import asyncio
import copy
import logging
import pickle
import sys
from uuid import UUID, uuid4

import minilm
import pytest
from langchain.agents import create_agent
from langchain_classic.retrievers import MultiQueryRetriever
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.language_models import FakeListChatModel
from langchain_core.language_models.fake_chat_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import create_retriever_tool
from langchain_core.vectorstores import InMemoryVectorStore

from crabpath_retrievers import (
    CrabPath,
    CrabPathRetriever,
    EmbeddingMismatchError,
    Feedback,
    InvalidInputError,
    MissingExtraError,
    NotFoundError,
    Receipt,
)

DOCUMENTS = [
    Document(f"Page {n} speaks about topic{n}.", id=f"d{n}", metadata={"even": n % 2 == 0})
    for n in range(6)
]


class Counting(DeterministicFakeEmbedding):
    """Counts the texts of documents that it embeds."""

    embedded: int = 0

    def embed_documents(self, texts):
        self.embedded += len(texts)
        return super().embed_documents(texts)


@pytest.fixture
def fake():
    return Counting(size=16)


@pytest.fixture
def retriever(fake):
    with CrabPathRetriever.from_documents(DOCUMENTS, fake, k=3) as made:
        yield made


def name_turns(documents):
    return list(dict.fromkeys(d.metadata["crabpath"]["turn_id"] for d in documents))


def name_space(documents):
    return documents[0].metadata["crabpath"]["namespace"]


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"nmaespace": "a"}, "unknown arguments nmaespace: use namespace"),
        ({"k": "four"}, "k cannot be 'four'"),
        ({"k": 0}, "k must be a whole number"),
        ({"min_score": 1.5}, "min_score must be a number from 0 to 1, not 1.5"),
        ({"search_type": "mmr"}, "there is no search_type='mmr' here: leave it out"),
        (
            {"search_kwargs": {"fetch_k": 3}},
            "search_kwargs cannot have fetch_k here",
        ),
        ({"search_kwargs": 3}, "search_kwargs must be a mapping"),
        ({"embedding": 3}, "embeddings must be LangChain Embeddings, or a text 'provider:model'"),
        ({"embedding": "nobody:model"}, "'nobody' is not supported"),
        ({"tags": 3}, "tags cannot be 3"),
    ],
)
def test_a_wrong_field_costs_nothing(fake, tmp_path, fields, sentence):
    """It is refused before anything is opened or embedded, in every way to make a retriever."""
    given = fields if "embedding" in fields else {**fields, "embedding": fake}
    store = InMemoryVectorStore(fake)
    store.add_documents(DOCUMENTS)
    before = fake.embedded
    path = tmp_path / "memory"
    for make in (
        lambda: CrabPathRetriever.from_documents(DOCUMENTS, path=path, **given),
        lambda: CrabPathRetriever.from_texts(["a"], path=path, **given),
        lambda: CrabPathRetriever.from_vectorstore(store, path=path, **given),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            make()
    assert not path.exists()
    assert fake.embedded == before
    if "embedding" not in fields:
        with CrabPath.open(embeddings=fake) as memory, pytest.raises(InvalidInputError):
            memory.as_retriever(**fields)


def test_the_names_of_langchain_work(fake, tmp_path, caplog):
    search = {"k": 2, "filter": {"even": True}}
    with CrabPathRetriever.from_documents(
        DOCUMENTS, embedding=fake, path=tmp_path, search_type="similarity", search_kwargs=search
    ) as made:
        assert {d.metadata["even"] for d in made.invoke("topic1")} == {True}
        assert made.k == 2
        assert made.memory.as_retriever(search_kwargs={"k": 1}).invoke("topic1")[1:] == []
        with pytest.raises(InvalidInputError, match="must be a Chroma condition"):
            made.invoke("topic1", filter=lambda _: True)
    search = {"score_threshold": 0.99}
    with CrabPathRetriever.from_existing(tmp_path, fake, search_kwargs=search) as made:
        assert made.invoke("topic1") == []
        assert made.invoke("topic1", min_score=0.0)
    assert "probability of relevance" in caplog.text
    with pytest.raises(InvalidInputError, match="two names of one argument"):
        CrabPathRetriever.from_texts(["a"], fake, embedding=fake)


def test_a_retriever_of_a_store_is_taken_as_it_is(fake):
    """Filters of the store's own kind, too; what cannot be carried over is refused."""
    store = InMemoryVectorStore(fake)
    store.add_documents(DOCUMENTS)
    search = {"k": 4, "filter": lambda document: document.id in ("d1", "d2")}
    with CrabPathRetriever.from_vectorstore(store.as_retriever(search_kwargs=search)) as made:
        assert sorted(d.id for d in made.invoke("topic1")) == ["d1", "d2"]
    for given in ({"search_type": "mmr"}, {"search_kwargs": {"pre_filter": {}}}):
        with pytest.raises(InvalidInputError, match="here: "):
            CrabPathRetriever.from_vectorstore(store.as_retriever(**given))


@pytest.mark.slow
def test_an_embedder_by_name_is_remembered(fake, tmp_path, monkeypatch):
    """Also by an archive; and it is loaded only where something is embedded."""
    name = f"huggingface:{minilm.find_folder()}"
    with CrabPathRetriever.from_documents(DOCUMENTS[:2], name, path=tmp_path / "m") as made:
        made.memory.transfer.export(tmp_path / "archive")
    with CrabPath.open(tmp_path / "copy") as copied:
        copied.transfer.import_archive(tmp_path / "archive")
    for place in ("m", "copy"):
        with CrabPath.open(tmp_path / place) as memory:
            assert memory.embedder.name == name
            assert asyncio.run(memory.aio.retrieve("topic1", k=1)).documents
    other = CrabPathRetriever.from_existing(tmp_path / "m", fake)
    with other, pytest.raises(EmbeddingMismatchError):
        other.invoke("topic1")
    with pytest.raises(MissingExtraError, match="pip install langchain-cohere"):
        CrabPath.open(tmp_path / "n", embeddings="cohere:embed")
    monkeypatch.setitem(sys.modules, "langchain.embeddings", None)
    with pytest.raises(MissingExtraError, match="pip install langchain langchain-openai"):
        CrabPath.open(tmp_path / "n", embeddings="openai:text-embedding-3-small")
    with CrabPath.open(tmp_path / "m") as memory:
        assert memory.info()["nodes"] == 2
    assert not (tmp_path / "n").exists()


@pytest.mark.parametrize(
    ("configurable", "options", "namespace"),
    [
        ({"user_id": "ann"}, {}, "ann"),
        ({"user_id": UUID(int=1)}, {}, str(UUID(int=1))),
        ({"namespace": "team", "user_id": "ann"}, {}, "team"),
        ({"langgraph_auth_user": {"identity": "bob"}, "namespace": "team"}, {}, "bob"),
        ({"user_id": " ", "namespace": ""}, {}, "own"),
        ({"user_id": "ann"}, {"namespace": "said"}, "said"),
    ],
)
async def test_one_rule_finds_the_namespace(retriever, configurable, options, namespace):
    """Given directly, or inherited from the chain around it."""
    own = retriever.memory.as_retriever(namespace="own")
    config = {"configurable": configurable}
    assert name_space(own.invoke("topic1", config, **options)) == namespace
    assert name_space(await own.ainvoke("topic1", config, **options)) == namespace
    chain = RunnableLambda(lambda text: name_space(own.invoke(text, **options)))
    assert chain.invoke("topic1", config) == namespace


async def test_a_run_id_in_the_config_is_that_of_the_turn(retriever):
    for answer in (retriever.invoke, lambda *given: asyncio.run(retriever.ainvoke(*given))):
        run = uuid4()
        await asyncio.to_thread(answer, "topic1", {"run_id": run})
        assert retriever.record(run, outcome=True).status == "applied"
    with pytest.raises(NotFoundError, match="only a callback handler knows"):
        retriever.record(uuid4(), outcome=True)


class ToolUser(GenericFakeChatModel):
    """Says what it is given, whichever tools are bound."""

    def bind_tools(self, *_, **__):
        return self


def ask_agent(retriever, *questions):
    """The last state of an agent that searches once for each question."""
    tool = create_retriever_tool(retriever, "search", ".", response_format="content_and_artifact")
    calls = [{"name": "search", "args": {"query": asked}, "id": asked} for asked in questions]
    said = [message for call in calls for message in (AIMessage("", tool_calls=[call]), "Done.")]
    agent, state = create_agent(ToolUser(messages=iter(said)), [tool]), {"messages": []}
    for question in questions:
        state = agent.invoke({"messages": [*state["messages"], HumanMessage(question)]})
    return state


def ask_in_parts(retriever):
    model = FakeListChatModel(responses=["topic1 a\ntopic2 b\ntopic3 c"])
    return MultiQueryRetriever.from_llm(retriever, model).invoke("topics")


ABOUT = {
    "documents": (lambda r: r.invoke("topic1"), 1),
    "several queries": (ask_in_parts, None),
    "chain": (lambda r: {"input": "?", "context": r.invoke("topic1"), "answer": "topic1"}, 1),
    "JSON": (lambda r: {"documents": [d.model_dump() for d in r.invoke("topic1")]}, 1),
    "agent": (lambda r: ask_agent(r, "topic1"), 1),
    "second question of an agent": (lambda r: ask_agent(r, "topic1", "topic2"), 1),
    "answers": (lambda r: [r.memory.retrieve("topic1")], 1),
    "ids": (lambda r: name_turns(r.invoke("topic1")), 1),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ABOUT)
async def test_record_takes_what_people_have(retriever, name):
    """On retriever and memory, blocking and awaited, in any words; each turn once."""
    (ask, count), memory = ABOUT[name], retriever.memory
    for record, outcome in ((retriever.record, True), (memory.record, "down")):
        about = await asyncio.to_thread(ask, retriever)
        receipts = await asyncio.to_thread(record, about, outcome, feedback_id=str(uuid4()))
        assert [receipt.status for receipt in receipts] == ["applied"] * (
            count or len(name_turns(about))
        )
    for record, outcome in ((retriever.arecord, False), (memory.aio.record, 0.5)):
        about = await asyncio.to_thread(ask, retriever)
        assert len(await record(about, outcome)) == (count or len(name_turns(about)))
        again = await record(about, outcome)
        assert {(receipt.status, receipt.repeated) for receipt in again} == {("repeated", True)}
    assert {said.outcome for said in memory.learning.feedback()} == {1.0, -1.0, 0.5}


def test_the_type_of_what_it_is_about_says_how_many_receipts_come(retriever):
    """One for what is of one turn by its type; a list for what may hold several, also of one."""
    documents, memory = retriever.invoke("topic1"), retriever.memory
    answer = memory.retrieve("topic1")
    for record in (retriever.record, memory.record):
        for about in (documents[0], answer, answer.turn.id, None):
            assert isinstance(record(about, outcome=True), Receipt), about
        for about in (documents, documents[:1], {"documents": documents}, [answer.turn.id]):
            (receipt,) = record(about, outcome=True)
            assert isinstance(receipt, Receipt)
    assert isinstance(memory.record(Feedback(answer.turn.id, 1.0)), Receipt)


def test_what_cannot_be_meant_is_refused(retriever):
    documents = retriever.invoke("topic1")
    for about, outcome, sentence in (
        ([], True, "no document that CrabPath returned"),
        ([Document("x")], True, "no document that CrabPath returned"),
        (documents, "great", "what would have been right goes into correction"),
        (documents, 2, "outcome must be a number from -1"),
        (documents, None, "record needs an outcome"),
        (Feedback("t", 1.0), True, "has its outcome and fields itself"),
    ):
        with pytest.raises(InvalidInputError, match=sentence):
            retriever.memory.record(about, outcome)
    assert retriever.memory.learning.feedback() == []
    receipt = retriever.record(documents[0], outcome=True, used=documents[:1])
    stored = retriever.memory.store.learned.get_feedback(receipt.feedback_id)
    assert stored.feedback.used == (documents[0].id,)


def test_a_temporary_memory_says_so_once(retriever, fake, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    with CrabPathRetriever.from_documents(DOCUMENTS, fake, path=tmp_path) as kept:
        kept.record(kept.invoke("topic1"), outcome=True)
        assert "temporary" not in caplog.text
    for _ in range(2):
        retriever.record(retriever.invoke("topic1"), outcome=True)
        retriever.memory.teach("Something else.")
    assert caplog.text.count("this memory is temporary") == 1


def test_copies_share_the_memory_and_pickles_are_refused(retriever):
    twin = copy.deepcopy(retriever)
    assert twin.memory is retriever.memory
    assert twin.invoke("topic1") == retriever.invoke("topic1")
    for given in (retriever, retriever.memory):
        with pytest.raises(InvalidInputError, match="cannot be pickled: pass its path"):
            pickle.dumps(given)
        assert "graph.sqlite" in repr(given)
