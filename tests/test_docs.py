"""What README and the pages of docs/ tell a user to write, runs as it stands there."""

import re
import shlex
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.runnables import RunnableLambda
from langchain_openai import ChatOpenAI
from langsmith_server import API_KEY, LangSmithServer
from llama_index.core import Document as LlamaDocument
from llama_index.core import VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.llms import MockLLM
from markdown_it import MarkdownIt
from served import running
from typer.main import get_command
from typer.testing import CliRunner

import crabpath_retrievers
import langgraph_crabpath
from benchmarks.commands import app as benchmarks
from crabpath_retrievers import CrabPath, CrabPathRetriever, Settings, callbacks, testing
from crabpath_retrievers.cli import app
from crabpath_server import Access, add_token, client, create_app
from llama_index.retrievers import crabpath as llama_crabpath

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = ("Paris is the capital of France.", "Deploy with make ship.", "Tests take nine minutes.")


def read_written(page):
    """A page without the parts that are made from the code."""
    return re.sub(r"<!-- api: .*?<!-- end of api -->", "", page.read_text(), flags=re.DOTALL)


def read_tokens(page, kinds=("fence",), language=None):
    """Blocks of a page by kind, each with the heading that it stands under."""
    tokens, heading = MarkdownIt().parse(read_written(page)), ""
    for place, token in enumerate(tokens):
        if token.type == "heading_open":
            heading = tokens[place + 1].content
        if token.type in kinds and language in (None, token.info):
            yield heading, token


def run_blocks(page, heading=None, **given):
    for name, token in read_tokens(page, language="python"):
        if heading in (None, name):
            exec(token.content, given)  # noqa: S102  a page of this very repository
    return SimpleNamespace(**given)


@pytest.fixture
def documents(tmp_path, monkeypatch, chat_server):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OPENAI_BASE_URL", chat_server.url)
    monkeypatch.setenv("OPENAI_API_KEY", "x")
    return [Document(text) for text in PAGES]


# Pages of docs/: what a page takes for granted, and what its code must have come to.


@pytest.fixture
def served(documents, monkeypatch):
    """The address of a server with a token, and both in the environment."""
    token = add_token("tokens.json", ["ann"], ["read", "feedback", "teach", "write"])
    access = Access.from_file("tokens.json")
    with CrabPath.open("./memory") as memory, running(create_app(memory, access=access)) as url:
        monkeypatch.setenv("CRABPATH_URL", url)
        monkeypatch.setenv("CRABPATH_TOKEN", token)
        yield url


@pytest.fixture
def given(documents, chat_server, httpserver, monkeypatch, request):
    """Names that pages take for granted, made where they are asked for."""

    def make(page):
        if page == "how-to/client":
            request.getfixturevalue("served")
        if page == "how-to/feedback-callbacks":
            monkeypatch.setenv("LANGSMITH_ENDPOINT", LangSmithServer(httpserver, "my-project").url)
            monkeypatch.setenv("LANGSMITH_API_KEY", API_KEY)
            retriever = CrabPathRetriever.from_documents(documents, k=2)
            chain = retriever | RunnableLambda(lambda found: found[0].page_content)
            return {"retriever": retriever, "chain": chain, "question": "What is the capital?"}
        if page == "how-to/langgraph":
            CrabPathRetriever.from_documents(documents, path="./memory").memory.close()
            return {"model": ChatOpenAI(model="m", max_retries=0)}
        if page == "how-to/llama-index":
            Path("docs").mkdir()
            for number, text in enumerate(PAGES):
                Path("docs", f"{number}.md").write_text(text)
            nodes = [LlamaDocument(text=text) for text in PAGES]
            index = VectorStoreIndex.from_documents(nodes, embed_model=MockEmbedding(8))
            return {"index": index, "llm": MockLLM()}
        if page == "how-to/llm-router":
            chat_server.says = {"follow": [], "drop": [], "stop": True, "reason": ""}
            linked = [Document(f"See {text[:5]}. {text}") for text in PAGES]
            return {"documents": linked, "llm": ChatOpenAI(model="m", max_retries=0)}
        bookings = [
            Document(f"Booking number {n} was paid.", metadata={"number": n}) for n in range(64)
        ]
        if page == "how-to/one-database":
            return {"documents": bookings, "url": request.getfixturevalue("pgvector_url")}
        return {"documents": bookings, "embeddings": DeterministicFakeEmbedding(size=8)}

    return make


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
    assert it.here in it.mdp.regions
    assert it.plan[0].action == "refund"
    chances = {score.action: score.success for score in it.best}
    assert chances["refund"] > chances["cancel"]
    assert it.worth


def check_health(it):
    assert it.status == 200
    assert it.fired.sampled == 1
    assert it.before == [it.report]
    assert "orphan_nodes" not in it.ill


def check_tracing(it):
    assert len(it.found) == 2


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


def check_rest(it):
    assert it.answer["documents"][0]["text"] == "Deploy with make ship."
    assert it.receipt["status"] == "applied"


def check_look_inside(it):
    assert [document.metadata["title"] for document in it.ops] == ["Hydra", "Help"]
    assert it.again == it.ops[:1]
    assert len(it.tests) == 1
    assert [note.text for note in it.notes] == ["Hydra moves to Paris in May."]
    assert "Query: Where do the tests run?" in str(it.explanation)
    assert {it.tests[0].id, it.ops[0].id} <= set(it.near)
    assert "graphml" in Path("graph.graphml").read_text()


def check_teach_and_undo(it):
    assert it.corrected[0].page_content.endswith(":\nThe port is 8443.")
    assert it.undone[0].id == "port"
    assert [said.correction for said in it.from_eve] == ["The port is 8443."]


def check_callbacks(it):
    assert it.retriever.invoke(it.question)[0].page_content.endswith("\nThe capital is Paris.")
    assert it.graded
    assert it.pulled.learned == 0


def check_langgraph(it):
    assert it.learned["feedback"]["status"] == "applied"
    assert [event["type"] for event in it.events][-1] == "crabpath_retrieved"
    assert [one["status"] for one in it.answered["crabpath_receipts"]] == ["applied"]
    assert it.remembered[0].key == "tea"
    assert it.items.turns(namespace=it.store.find_turn_namespace(it.anns))[0].feedback_id
    it.items.close()


def check_llama_index(it):
    assert it.found[0].page_content.endswith(":\nNobody deploys on a Friday.")
    assert it.ordered.source_nodes
    it.ranking.close()
    assert it.chat_memory.memory_blocks == [it.block]
    it.block.memory.close()


def check_router(it):
    turn = it.retriever.memory.retrieve("What is the capital of France?").turn
    assert (turn.llm_failures, turn.llm_calls) in {(0, 0), (0, 1)}


def check_client(it):
    assert it.found[0].metadata["crabpath"]["namespace"] == "ann"
    assert it.receipt.status == "applied"
    assert len(it.nodes) == 2


def check_mcp(it):
    assert it.answer == ("deploy", "applied")


def check_embedders(it):
    assert it.memory.embedder.model == "DeterministicFakeEmbedding"


def check_shadow(it):
    assert [document.id for document in it.found] == [
        document.id for document in it.present.invoke("Which booking was paid?")
    ]
    assert [receipt.status for receipt in it.receipts] == ["applied"]
    assert (it.week.turns, it.week.documents, it.retriever.failures) == (1, 1, 0)


def check_extending(it):
    assert len(it.found.documents) == 3
    assert it.memory.info()["edges"] == {"link": 6}
    program = typer.Typer()
    it.register(program)
    it.memory.close()
    said = CliRunner().invoke(program, ["extended"])
    assert (said.exit_code, said.stdout) == (0, "1\n")
    said = CliRunner().invoke(program, ["extended", "--least", "2"])
    assert "there are 1 turns, not 2" in str(said.exception)


def check_one_database(it):
    assert len(it.found) == 2
    assert all(document.metadata["number"] >= 60 for document in it.found)
    assert it.count == 64


CHECKS = {
    "how-to/ab-test": check_ab,
    "how-to/agent-episodes": check_regions,
    "how-to/autotune": check_autotuner,
    "how-to/client": check_client,
    "how-to/embedders": check_embedders,
    "how-to/extend": check_extending,
    "how-to/feedback-callbacks": check_callbacks,
    "how-to/langgraph": check_langgraph,
    "how-to/llama-index": check_llama_index,
    "how-to/llm-router": check_router,
    "how-to/look-inside": check_look_inside,
    "how-to/maintain": check_maintenance,
    "how-to/mcp": check_mcp,
    "how-to/monitor": check_health,
    "how-to/move-and-replay": check_migration,
    "how-to/one-database": check_one_database,
    "how-to/query": check_query,
    "how-to/rest": check_rest,
    "how-to/shadow": check_shadow,
    "how-to/sync": check_sync,
    "how-to/teach-and-undo": check_teach_and_undo,
    "how-to/trace": check_tracing,
    "how-to/wrap-your-store": check_wrapping,
}
OWN_TESTS = {"adopt", "existing-data", "workers"}  # of tests/docs and tests/hosts/test_workers.py
PRINTING = {  # pages that show what their code prints, in a block of text below it
    str(page.relative_to(DOCS))[:-3]
    for page in DOCS.rglob("*.md")
    if page.stem not in OWN_TESTS and any(read_tokens(page, language="text"))
}
RUNNING = sorted(
    str(page.relative_to(DOCS))[:-3]
    for page in DOCS.rglob("*.md")
    if page.stem not in OWN_TESTS and any(read_tokens(page, language="python"))
)


@pytest.mark.parametrize("page", [page for page in RUNNING if page not in PRINTING])
def test_a_page_runs_as_it_stands(page, given):
    """Every page that has code; what it must have come to stands in ``CHECKS``."""
    it = run_blocks(DOCS / f"{page}.md", **given(page))
    if page in CHECKS:
        CHECKS[page](it)
    if hasattr(it, "memory") or hasattr(it, "retriever"):
        (it.memory if hasattr(it, "memory") else it.retriever.memory).close()


@pytest.mark.parametrize("page", sorted(PRINTING))
def test_a_page_prints_what_it_shows(page, documents, capsys):
    names, printed = {}, ""
    for _, token in read_tokens(DOCS / f"{page}.md"):
        if token.info == "python":
            exec(token.content, names)  # noqa: S102  a page of this very repository
            printed += capsys.readouterr().out
        elif token.info == "text":
            assert printed == token.content
            printed = ""
    assert printed == ""


@pytest.mark.slow
def test_the_suites_of_a_page_pass_where_nothing_else_of_ours_is(tmp_path):
    """As an author runs them, without the fixtures of this repository."""
    page = DOCS / "how-to" / "extend.md"
    code = [token.content for _, token in read_tokens(page, language="python")]
    (tmp_path / "test_extended.py").write_text("\n".join(code[:-1]))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


def test_checks_are_of_pages_that_run():
    assert set(CHECKS) <= set(RUNNING)


def test_every_page_says_first_for_whom_it_is():
    for page in DOCS.rglob("*.md"):
        lines = [line for line in page.read_text().splitlines() if line]
        heading = next(n for n, line in enumerate(lines) if line.startswith("# "))
        assert re.fullmatch(r"\*For .+\.\*", lines[heading + 1]), page.name


def test_blocks_that_do_not_run_say_why():
    """Code is Python that runs, or commands that need more than a test has: these give a reason."""
    for page in DOCS.rglob("*.md"):
        tokens = MarkdownIt().parse(read_written(page))
        for before, token in pairwise(tokens):
            if page.stem in OWN_TESTS and token.info.startswith('python title="'):
                continue
            if page.name == "adopt.md" and token.info == "sh":
                continue
            if token.type == "fence" and token.info not in {"python", "text", "mermaid"}:
                assert token.info == "sh", f"{page.name} has a block of {token.info!r}"
                assert before.content.startswith("<!-- not run: "), f"{page.name}: {token.content}"


# What the shell is told.

SHELL = {"crabpath": get_command(app), "python -m benchmarks": get_command(benchmarks)}
WRITTEN = sorted(
    [
        *{*ROOT.glob("*.md")} - {ROOT / "CHANGELOG.md"},
        *DOCS.rglob("*.md"),
        ROOT / "examples" / "README.md",
    ]
)


def read_shell_lines(page):
    """Lines of code blocks, and code within text, that begin with a command of ours."""
    for _, token in read_tokens(page, kinds=("fence", "code_block", "inline")):
        if token.info == "mermaid":
            continue
        code = token.content.replace("\\\n", " ")
        if token.type == "inline":
            code = "\n".join(re.findall(r"`([^`]+)`", code))
        for line in code.splitlines():
            for begin, command in SHELL.items():
                if line.strip().removeprefix("$ ").startswith(f"{begin} "):
                    yield command, line.split(begin, 1)[1].split(" #")[0].replace("…", "X")


def check_shell_line(command, line):
    """Every word that names a command or an option is one that exists."""
    words = shlex.split(re.sub(r"[\[\]]", " ", line))
    while hasattr(command, "commands"):
        if not words or words[0] in {"--help", "-h", "--version", "--install-completion"}:
            return
        names = words[0].split("|")
        assert set(names) & {*command.commands} == set(names) != set(), f"no command: {line}"
        command, words = command.commands[names[0]], words[1:]
    known = {
        "--help",
        *(name for one in command.params for name in (*one.opts, *one.secondary_opts)),
    }
    options = words[: words.index("--")] if "--" in words else words
    unknown = {w.split("=")[0] for w in options if re.fullmatch(r"--?[a-z].*", w)} - known
    assert not unknown, f"{line} has {unknown}"


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_and_options_that_pages_name_exist(page):
    for command, line in read_shell_lines(page):
        check_shell_line(command, line)


# Names within text.

FILE = (
    r"`((?:[\w-]+/)+[\w-]+\.(?:py|md))`"
    r"|(?<![\w/(])((?:docs|tests|examples|graphs)/[\w/-]+\.(?:py|md))"
)
PLACES = ("", "crabpath_retrievers", "crabpath_retrievers/retrieval", "adapters")
INVENTED = {"docs/a.md", "docs/old.md"}


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_and_settings_that_pages_name_exist(page):
    text = page.read_text()
    for file in {"".join(found) for found in re.findall(FILE, text)} - INVENTED:
        assert any((ROOT / place / file).exists() for place in PLACES), file
    for group, name in re.findall(r"`(?:settings\.)?([a-z]+)\.([a-z_]+)", text):
        settings = getattr(Settings(), group, None)
        assert settings is None or hasattr(settings, name), f"{group}.{name}"


# Figures.


def read_experiments():
    """What the page of figures says of each experiment, by the anchor of its heading."""
    page = (DOCS / "experiments" / "figures.md").read_text()
    sections = re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return {re.sub(r"[^\w -]", "", name.lower()).replace(" ", "-"): text for name, text in sections}


def test_figures_beside_a_link_to_an_experiment_are_its_own():
    sections, checked = read_experiments(), 0
    link = re.compile(r"\]\([./]*experiments/figures\.md#([\w-]+)\)(:[^()]*\)|)")
    for page in DOCS.rglob("*.md"):
        if page.parent.name == "experiments":
            continue
        for anchor, said in link.findall(page.read_text()):
            for figure in re.findall(r"(?<![\d.])\.\d+", said):
                assert f"0{figure}" in sections[anchor], (page.name, anchor, figure)
                checked += 1
    assert checked


# The reference.


@pytest.mark.parametrize(
    "module",
    [crabpath_retrievers, callbacks, client, langgraph_crabpath, llama_crabpath, testing],
    ids=lambda m: m.__name__,
)
def test_every_public_name_is_in_the_reference(module):
    text = "".join(page.read_text() for page in (DOCS / "reference").glob("*.md"))
    named = set(re.findall(r"^<!-- api: (\S+)", text, re.MULTILINE))
    errors = {name for name in dir(crabpath_retrievers.errors) if not name.startswith("_")}
    known = errors | {"Settings"}  # pages of their own, the latter generated
    whole = module.__name__ in named
    missing = {n for n in module.__all__ if f"{module.__name__}.{n}" not in named} - known
    assert whole or not missing


# Links.


def find_anchors(page):
    """What a link to a heading of the page can say."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = (re.sub(r"\[([^\]]+)\]\([^)]*\)|[`*]", r"\1", heading) for heading in headings)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in plain}


def test_links_between_files_of_the_repository_lead_somewhere():
    pages = [*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "adapters").glob("*/*.md")]
    dead = []
    for page in pages:
        for link in re.findall(r"\]\((?![a-z]+:)([^)\s]+)\)", page.read_text()):
            path, _, anchor = link.partition("#")
            to = (page.parent / path) if path else page
            if not to.exists() or (anchor and anchor not in find_anchors(to)):
                dead.append((str(page.relative_to(ROOT)), link))
    assert len(pages) > 50
    assert not dead


# README.md


def test_the_quickstart_prints_what_it_shows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    it = run_blocks(README, "Quickstart")
    it.retriever.memory.close()
    lines = "".join(t.content for h, t in read_tokens(README) if h == "Quickstart").splitlines()
    shown = [line[2:] for line in lines if line.startswith("# [")]
    assert capsys.readouterr().out.splitlines() == shown


def test_the_readme_is_short_has_no_other_code_and_its_links_lead_somewhere():
    lines = re.sub("<!--.*?-->", "", README.read_text()).splitlines()  # marks are not seen
    assert len(lines) <= 150
    assert max(map(len, lines)) <= 160
    run = {"Quickstart", "LangChain: learn from outcomes", "LangGraph", "LlamaIndex"}
    assert {heading for heading, _ in read_tokens(README, language="python")} == run
    links = re.findall(r"\]\(([^)#:]+)\)", README.read_text())
    assert links
    assert all((ROOT / link).exists() for link in links)


@pytest.fixture
def _memory(documents, tmp_path, monkeypatch):
    """The memory of README's examples: in the folder ``memory`` of where they run."""
    monkeypatch.chdir(tmp_path)
    CrabPathRetriever.from_documents(documents, path="memory").close()


@pytest.mark.usefixtures("_memory")
def test_langchain(chat_server):
    chat_server.says = "London."
    it = run_blocks(README, "LangChain: learn from outcomes")
    assert it.retriever.invoke("What is the capital?")[0].page_content.endswith(
        "\nThe capital is Paris."
    )
    it.retriever.close()


@pytest.mark.usefixtures("_memory")
def test_langgraph(chat_server):
    chat_server.says = "Run make release."
    retriever = run_blocks(README, "LangGraph").retriever
    ann, bob = [retriever.invoke("How do I deploy?", namespace=user)[0] for user in ("ann", "bob")]
    assert ann.page_content.endswith(":\nRun `ship it`.")
    assert bob.page_content == "Deploy with make ship."
    retriever.close()


@pytest.mark.usefixtures("_memory")
def test_llama_index():
    it = run_blocks(README, "LlamaIndex")
    response = it.engine.query("How do I deploy on a Friday?")
    assert response.source_nodes[0].text.endswith(":\nNobody deploys on a Friday.")
    it.retriever.memory.close()
