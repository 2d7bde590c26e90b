"""The LangGraph applications: each loads by path and is run over a real memory and client."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest
from blockbuster import blockbuster_ctx
from host_answers import CORRECTION, block_of, count_feedback, read_feedback, texts, turn_of
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver

from crabpath_retrievers import CrabPathRetriever, InvalidInputError, NotFoundError, Settings
from crabpath_retrievers.config import LearningSettings
from crabpath_retrievers.vectors import embedder
from langgraph_crabpath.serving import served_model, served_retriever

GRAPHS = Path(__file__).parents[3] / "graphs"
NAMES = ("rag", "agent", "human_feedback", "learn", "maintenance")
CONFIG = {"configurable": {"thread_id": "1"}}
ANN = {"user_id": "ann"}


def load(name):
    """The module of an application, loaded by its path as a server loads it."""
    spec = importlib.util.spec_from_file_location(f"graphs__{name}", GRAPHS / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_the_configuration_names_every_application():
    """And nothing outside of the folder, which is a template to copy."""
    configuration = json.loads((GRAPHS / "langgraph.json").read_text(encoding="utf-8"))
    assert configuration["graphs"] == {name: f"./{name}.py:graph" for name in NAMES}
    assert configuration["dependencies"] == ["."]
    assert {path.stem for path in GRAPHS.glob("*.py")} == {*NAMES, "auth", "store"}
    assert all(callable(load(name).graph) for name in NAMES)


@pytest.mark.parametrize(
    ("grade", "learned"),
    [
        ({"outcome": 0.8, "used": ["h1", "h4"]}, [(0.8, "self", "ann", ("h1", "h4"))]),
        ("Well done!", []),
        ({"outcome": 9, "used": []}, []),
    ],
)
async def test_rag_learns_from_its_own_grade(
    retriever, question, chat_server, model, grade, learned
):
    """But nothing from one that cannot be read."""
    chat_server.says = lambda body: grade if "response_format" in body else "Yes."
    graph = load("rag").build(retriever, model)
    result = await graph.ainvoke({"question": question}, context=ANN)
    assert (result["answer"], "feedback" in result) == ("Yes.", bool(learned))
    records = retriever.memory.learning.feedback(namespace="ann")
    found = [read_feedback(retriever, record.feedback_id) for record in records]
    assert [(one.outcome, one.source, one.namespace, one.used) for one in found] == learned


async def test_the_agent_remembers_and_learns(retriever, question, chat_server, model):
    """It reads the documents, looks again with its tool, and a correction changes its memory."""
    chat_server.says = lambda body: (
        {"query": "Ed Wood"} if body["messages"][-1]["content"] == question else "Yes."
    )
    graph = load("agent").build(retriever, model, InMemorySaver())
    asked = {"messages": [{"role": "user", "content": question}]}
    first = await graph.ainvoke(asked, CONFIG, context=ANN)
    assert len(first["crabpath_turns"]) == 2
    said = {**asked, "crabpath_feedback": {"correction": CORRECTION}}
    second = await graph.ainvoke(said, CONFIG, context=ANN)
    assert CORRECTION in texts(second["crabpath_documents"])


async def test_learn_learns_from_what_waits(place, embeddings, question):
    """Feedback of a memory that leaves learning to others is applied and indexed, and counted."""
    settings = Settings(learning=LearningSettings(apply="external"))
    retriever = CrabPathRetriever.from_existing(place, embeddings, settings=settings)
    with retriever.memory as memory:
        turn = turn_of(retriever.invoke(question))
        assert retriever.record(turn, 1, used=["h1"]).status == "waiting"
        graph = load("learn").build(retriever)
        with blockbuster_ctx():
            result = await graph.ainvoke({})
        assert result["learned"] == {"applied": 1, "refused": 0, "failed": 0}
        assert result["memory"] == memory.info()
        assert count_feedback(retriever)["applied"] == 1
        assert memory.store.learned.count_unindexed_episodes() == 0
        assert (await graph.ainvoke({}))["learned"]["applied"] == 0


async def test_maintenance_maintains(retriever):
    graph = load("maintenance").build(retriever)
    with blockbuster_ctx():
        looked = (await graph.ainvoke({"dry_run": True}))["report"]
        done = (await graph.ainvoke({}))["report"]
    assert (looked["dry_run"], looked["run"]) == (True, "")
    assert {"fade", "prune", "connect", "compact"} <= {step["step"] for step in done["steps"]}
    assert bool(done["run"]) == bool(done["changed"])


async def test_a_server_opens_memory_and_model_once(
    place, embeddings, monkeypatch, question, chat_server
):
    """Off the event loop; every graph of the process shares them. It makes no memory."""
    monkeypatch.setenv("CRABPATH_STORE", str(place / "nowhere"))
    with pytest.raises(NotFoundError, match=r"there is no memory at .*nowhere"):
        await load("learn").graph()
    assert not (place / "nowhere").exists()
    monkeypatch.setattr(embedder, "load_default_embeddings", lambda: embeddings)
    monkeypatch.setenv("CRABPATH_STORE", str(place))
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "minilm")
    with pytest.raises(InvalidInputError, match="'provider:model'"):
        await load("maintenance").graph()
    monkeypatch.delenv("CRABPATH_EMBEDDINGS")
    monkeypatch.setenv("CRABPATH_MODEL", "openai:local")
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    with blockbuster_ctx():
        retriever, model = await served_retriever(), await served_model()
        assert await load("human_feedback").graph() is not None
        assert retriever is await served_retriever()
        assert model is await served_model()
    assert isinstance(model, ChatOpenAI)
    assert (model.model_name, str(model.root_client.base_url)) == ("local", f"{chat_server.url}/")
    assert block_of(await retriever.ainvoke(question))
    retriever.memory.close()
