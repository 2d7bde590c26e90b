"""Examples are run as a user runs them: as scripts, against servers on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from langsmith_server import API_KEY, LangSmithServer

EXAMPLES = Path(__file__).parents[2] / "examples"


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


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_numbered(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 80
    assert script.stem[:2].isdecimal()


def test_00_what_helped_comes_first_afterwards(run_example):
    printed = run_example("00")
    before, after = printed.index("found:"), printed.index("found after feedback:")
    assert printed[before + 1] == "  Release checklist"
    assert printed[after + 1] == "  Change log"


def test_every_example_is_described():
    described = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"`{script.name}`" in described for script in EXAMPLES.glob("*.py"))


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
