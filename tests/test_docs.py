"""What README and the pages of docs/ tell a user to write, runs as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langgraph.graph import StateGraph
from llama_index.core.llms import MockLLM
from markdown_it import MarkdownIt
from typing_extensions import TypedDict

from crabpath_retrievers import CrabPath, CrabPathRetriever

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
PAGES = ("Paris is the capital of France.", "Deploy with make ship.", "Tests take nine minutes.")


def read_blocks(page):
    """Blocks of Python by the heading that they stand under."""
    found, heading = {}, ""
    tokens = MarkdownIt().parse(page.read_text())
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[place + 1].content
        if token.type == "fence" and token.info == "python":
            found.setdefault(heading, []).append(token.content)
    return found


def run_blocks(page, heading=None, **given):
    for name, codes in read_blocks(page).items():
        for code in codes if heading in (None, name) else ():
            exec(code, given)  # noqa: S102  a page of this very repository
    return SimpleNamespace(**given)


def check_closed_loop(it):
    assert "Refunds go back" in it.context
    assert it.receipt.status == "applied"
    assert it.answer.turn.task_type == "refund"


def check_sync(it):
    assert it.section.fate == "edited"
    assert it.section.similarity > 0.92
    assert it.after.id == it.before
    assert "push" in it.after.content
    assert it.memory.info()["sources"] == 2


def check_migration(it):
    assert it.undone.status == "undone"
    assert (it.imported.namespace, it.imported.missing) == ("alice", 0)


def check_wrapping(it):
    assert (sorted(it.before), it.after) == (["hydra", "tests"], ["tests"])
    assert (it.report.added, it.report.removed, it.report.unchanged) == (1, 1, 1)
    assert sorted(it.refreshed) == ["petra", "tests"]
    assert it.memory.info()["nodes"] == 2


def check_regions(it):
    assert it.here in it.of_each.values()
    assert len(it.of_each) == 64
    chances = {score.action: score.success for score in it.best}
    assert chances["refund"] > chances["cancel"]
    assert it.worth


def check_health(it):
    assert it.fired.sampled == 1
    assert it.before == [it.report]
    assert "orphan_nodes" not in it.ill


def check_maintenance(it):
    assert (it.report.dry_run, it.report.run) == (True, "")
    assert it.memory.info()["nodes"] == 1


def check_ab(it):
    arm = it.trial.arm(it.session)
    assert it.answer.turn.namespace == it.trial.namespaces("ann")[arm]
    assert it.found[0].metadata["crabpath"]["namespace"] == it.trial.namespaces("ann")[arm]
    assert (it.checkpoint, it.report.verdict) == (None, "too little data")
    assert getattr(it.report, arm).success_rate == 1.0


def check_autotuner(it):
    assert (it.report.dry_run, it.report.run) == (True, "")
    assert it.knobs.half_life == 500.0
    assert it.memory.maintenance.knobs() == it.settings.knobs


CHECKS = [check for name, check in globals().items() if name.startswith("check_")]


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
def test_a_page_runs_as_it_stands(check):
    documents = [Document(f"Booking number {n} was paid.") for n in range(64)]
    page = ROOT / "docs" / f"{check.__name__.removeprefix('check_')}.md"
    it = run_blocks(page, documents=documents)
    with it.memory:
        check(it)


def test_blocks_of_the_readme_are_python_and_its_links_lead_somewhere():
    blocks = read_blocks(README)
    assert len([compile(c, n, "exec") for n, codes in blocks.items() for c in codes]) >= 5
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert all((ROOT / link).exists() for link in links)


@pytest.fixture
def documents(tmp_path, monkeypatch, chat_server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    return [Document(text) for text in PAGES]


def test_a_chat_model_as_router(chat_server, documents):
    chat_server.says = {"follow": [], "drop": [], "stop": True, "reason": ""}
    linked = [Document(f"See {d.page_content[:5]}. {d.page_content}") for d in documents]
    with run_blocks(README, "A chat model as router", documents=linked).retriever.memory as memory:
        turn = memory.retrieve("What is the capital of France?").turn
    assert turn.llm_failures == 0
    assert turn.llm_calls == len(chat_server.requests) <= 1


def test_which_step_succeeds_where():
    with CrabPath.open() as memory:
        pages = [Document(f"Booking number {n} was paid.", id=f"chunk-{n}") for n in range(64)]
        memory.add_documents(pages)
        it = run_blocks(README, "Which step succeeds where", memory=memory)
        assert it.mdp.best_action(it.here, "booking")[0].action in {"look up", "refund"}
        assert it.mdp.success_probability(it.here, "refund", "booking") > 0.5


def test_langchain(documents):
    retriever = CrabPathRetriever.from_documents(documents, k=2)
    chain = retriever | RunnableLambda(lambda found: found[0].page_content)
    heading, question = "LangChain: learn from what becomes of a chain", "What is the capital?"
    run_blocks(README, heading, retriever=retriever, chain=chain, question=question)
    assert retriever.invoke(question)[0].page_content == "It was Paris."
    retriever.memory.close()


class State(TypedDict, total=False):
    question: str
    documents: list
    turn_id: str
    feedback: dict


def test_langgraph(chat_server, documents):
    chat_server.says = "Run make release."
    builder = StateGraph(State)
    retriever = run_blocks(README, "LangGraph: an agent with a memory", builder=builder).retriever
    assert {"retrieve", "feedback"} <= set(builder.nodes)
    ann, bob = [retriever.invoke("How do I deploy?", namespace=user)[0] for user in ("ann", "bob")]
    assert ann.page_content == "Deployments start with `ship release`."
    assert "make release" in bob.page_content
    retriever.memory.close()


def test_llama_index(documents):
    it = run_blocks(README, "LlamaIndex", llm=MockLLM())
    response = it.engine.query("How do I deploy on a Friday?")
    assert response.source_nodes[0].text == "Nobody deploys on a Friday."
    it.retriever.memory.close()
