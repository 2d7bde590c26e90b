"""What the README tells a user of each host to write, runs as it stands there."""

import re
from pathlib import Path

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.graph import StateGraph
from llama_index.core.llms import MockLLM
from markdown_it import MarkdownIt
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPath, CrabPathRetriever

README = Path(__file__).parents[1] / "README.md"
PAGES = ("Paris is the capital of France.", "Deploy with make ship.", "Tests take nine minutes.")


def sections():
    found, heading = {}, ""
    tokens = MarkdownIt().parse(README.read_text())
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[place + 1].content
        if token.type == "fence" and token.info == "python":
            found.setdefault(heading, []).append(token.content)
    return found


@pytest.fixture
def run_section(tmp_path, monkeypatch, chat_server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "x")

    def run(heading, *names, **given):
        for code in sections()[heading]:
            exec(code, given)  # noqa: S102  the README of this very repository
        return [given[name] for name in names]

    return run


@pytest.fixture
def documents():
    return [Document(text) for text in PAGES]


def test_a_chat_model_as_router(run_section, chat_server, documents):
    chat_server.says = {"follow": [], "drop": [], "stop": True, "reason": ""}
    linked = [Document(f"See {d.page_content[:5]}. {d.page_content}") for d in documents]
    (retriever,) = run_section("A chat model as router", "retriever", documents=linked)
    turn = retriever.memory.retrieve("What is the capital of France?").turn
    assert turn.llm_failures == 0
    assert turn.llm_calls == len(chat_server.requests) <= 1
    retriever.memory.close()


def test_regions(run_section):
    with CrabPath.open() as memory:
        pages = [Document(f"Booking number {n} was paid.", id=f"chunk-{n}") for n in range(64)]
        memory.add_documents(pages)
        mdp, here = run_section("Which step succeeds where", "mdp", "here", memory=memory)
        assert mdp.best_action(here, "booking")[0].action in {"look up", "refund"}
        assert mdp.success_probability(here, "refund", "booking") > 0.5


def test_langchain(run_section, documents):
    retriever = CrabPathRetriever.from_documents(documents, k=2)
    chain = retriever | RunnableLambda(lambda found: found[0].page_content)
    question = "What is the capital of Germany?"
    run_section(
        "LangChain: learn from what becomes of a chain",
        retriever=retriever,
        chain=chain,
        question=question,
    )
    assert retriever.invoke(question)[0].page_content == "It was Paris."
    retriever.memory.close()


def test_langgraph(run_section, chat_server):
    chat_server.says = "Run make release."

    class State(TypedDict, total=False):
        question: str
        documents: list
        turn_id: str
        feedback: dict

    builder = StateGraph(State)
    (retriever,) = run_section("LangGraph: an agent with a memory", "retriever", builder=builder)
    assert {"retrieve", "feedback"} <= set(builder.nodes)
    ann, bob = [retriever.invoke("How do I deploy?", namespace=user)[0] for user in ("ann", "bob")]
    assert ann.page_content == "Deployments start with `ship release`."
    assert "make release" in bob.page_content
    retriever.memory.close()


def test_llama_index(run_section):
    retriever, engine = run_section("LlamaIndex", "retriever", "engine", llm=MockLLM())
    response = engine.query("How do I deploy on a Friday?")
    assert response.source_nodes[0].text == "Nobody deploys on a Friday."
    retriever.memory.close()


def test_blocks_are_python_and_links_lead_somewhere():
    assert len([compile(c, n, "exec") for n, codes in sections().items() for c in codes]) >= 5
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert all((README.parent / link).exists() for link in links)
