"""What README and the pages of docs/ tell a user to write, runs as it stands there."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest
from langchain_core.documents import Document
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from llama_index.core.llms import MockLLM
from markdown_it import MarkdownIt

from crabpath_retrievers import CrabPathRetriever

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


def check_query(it):
    assert [document.metadata["title"] for document in it.filtered] == ["Holidays"]
    assert len(it.plain) == 2
    assert len(it.budget) < 3


def check_teach_and_undo(it):
    assert it.corrected[0].page_content == "The port is 8443."
    assert it.undone[0].id == "port"
    assert [said.correction for said in it.from_eve] == ["The port is 8443."]


CHECKS = {
    "how-to/ab-test": check_ab,
    "how-to/agent-episodes": check_regions,
    "how-to/autotune": check_autotuner,
    "how-to/maintain": check_maintenance,
    "how-to/monitor": check_health,
    "how-to/move-and-replay": check_migration,
    "how-to/query": check_query,
    "how-to/sync": check_sync,
    "how-to/teach-and-undo": check_teach_and_undo,
    "how-to/wrap-your-store": check_wrapping,
    "tutorials/closed-loop": check_closed_loop,
}


@pytest.mark.parametrize("page", CHECKS)
def test_a_page_runs_as_it_stands(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    documents = [Document(f"Booking number {n} was paid.") for n in range(64)]
    it = run_blocks(ROOT / "docs" / f"{page}.md", documents=documents)
    with it.memory if hasattr(it, "memory") else it.retriever.memory:
        CHECKS[page](it)


def test_the_first_tutorial_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    given, printed = {}, ""
    page = ROOT / "docs" / "tutorials" / "first-memory.md"
    for token in MarkdownIt().parse(page.read_text()):
        if token.type == "fence" and token.info == "python":
            exec(token.content, given)  # noqa: S102  a page of this very repository
            printed += capsys.readouterr().out
        elif token.type == "fence" and token.info == "text":
            assert printed == token.content
            printed = ""
    assert printed == ""


def test_the_quickstart_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    it = run_blocks(README, "Quickstart")
    it.retriever.memory.close()
    (code,) = read_blocks(README)["Quickstart"]
    shown = [line[2:] for line in code.splitlines() if line.startswith("# [")]
    assert capsys.readouterr().out.splitlines() == shown


def test_blocks_of_the_readme_are_python_and_its_links_lead_somewhere():
    blocks = read_blocks(README)
    assert len([compile(c, n, "exec") for n, codes in blocks.items() for c in codes]) >= 4
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
    llm = ChatOpenAI(model="m", max_retries=0)
    page = ROOT / "docs" / "how-to" / "llm-router.md"
    it = run_blocks(page, "A chat model as router", documents=linked, llm=llm)
    with it.retriever.memory as memory:
        turn = memory.retrieve("What is the capital of France?").turn
    assert turn.llm_failures == 0
    assert turn.llm_calls == len(chat_server.requests) <= 1


def test_langchain(documents):
    retriever = CrabPathRetriever.from_documents(documents, k=2)
    chain = retriever | RunnableLambda(lambda found: found[0].page_content)
    heading, question = "LangChain: learn from outcomes", "What is the capital?"
    run_blocks(README, heading, retriever=retriever, chain=chain, question=question)
    assert retriever.invoke(question)[0].page_content == "It was Paris."
    retriever.memory.close()


def test_langgraph(chat_server, documents):
    chat_server.says = "Run make release."
    retriever = CrabPathRetriever.from_documents(documents)
    run_blocks(README, "LangGraph", retriever=retriever)
    ann, bob = [retriever.invoke("How do I deploy?", namespace=user)[0] for user in ("ann", "bob")]
    assert ann.page_content == "Deployments start with `ship release`."
    assert bob.page_content == "Deploy with make ship."
    retriever.memory.close()


def test_llama_index(documents):
    with CrabPathRetriever.from_documents(documents).memory as memory:
        it = run_blocks(README, "LlamaIndex", llm=MockLLM(), memory=memory)
        response = it.engine.query("How do I deploy on a Friday?")
        assert response.source_nodes[0].text == "Nobody deploys on a Friday."
