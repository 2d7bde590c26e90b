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
    """Runs an example by its number; returns what it printed."""

    def run(number: str, *arguments: object, **environment: str) -> str:
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
        return done.stdout

    return run


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short_and_numbered(script):
    assert len(script.read_text(encoding="utf-8").splitlines()) < 80
    assert script.stem[:2].isdecimal()


def route(body):
    """A router that follows the first edge."""
    lines = body["messages"][1]["content"].split("<candidates>\n")[1].splitlines()[:-1]
    first = json.loads(lines[0])[0]
    return {"follow": [first], "drop": [], "stop": True, "reason": "the first will do"}


def answer_from_documents(body):
    documents = [m["content"] for m in body["messages"] if "<documents>" in str(m["content"])]
    return "Type ship." if "ship release" in documents[-1] else "Type make."


# What a chat model says; what is printed, in this order, with / between; and what is not.
PRINTED = {
    "01": (  # The chain answers from the pages; what was used comes first afterwards.
        lambda body: body["messages"][0]["content"].split("Release checklist: ")[1][:12],
        "answer: Two reviews,/feedback: applied/found again: Release checklist",
        "error",
    ),
    "02": (  # The router is asked once a question, and not about what succeeded.
        route,
        f"{'  model: 1 calls/  it says: the first will do/' * 2}again: /  model: 0 calls",
        "model: 2 calls",
    ),
    "03": (  # Ann is answered what is right in another thread; Bob's memory is his own.
        answer_from_documents,
        "agent: Type make./learned: applied/read: Since/agent: Type ship./bob: /Type make.",
        "bob: How do I start a deployment?\n  read: Since",
    ),
    "05": (  # What one user teaches, the other does not see.
        None,
        """before: steve finds Python, /after: ada finds Python, /after: steve finds Pythons, /\
steve knows: Monty sleeps in the hall./steve about ada's turn: refused""",
        "ada knows: Monty sleeps",
    ),
    "06": (  # The graph finds what similarity alone does not; the collection stays as it was.
        None,
        "with a graph: /Rue Dauphine/  Rue Dauphine: mention by Pierre Curie/collection: 5\n",
        "Rue Dauphine\nwith a graph",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("number", PRINTED)
def test_an_example(run_example, chat_server, number):
    chat_server.says, expected, absent = PRINTED[number]
    printed = run_example(number)
    position = 0
    for part in expected.split("/"):
        position = printed.index(part, position) + len(part)
    assert absent not in printed


@pytest.mark.slow
def test_04_a_query_engine_learns_and_remembers(run_example, tmp_path):
    """The correction is found afterwards, in LangChain too, and in the next run at once."""
    right = "Nobody deploys on a Friday: ask whoever is on call."
    (before, after), (again, _) = (
        run_example("04", tmp_path / "memory").split("correction: applied\n") for _ in range(2)
    )
    assert right not in before
    assert "Push to main" in before
    assert f"LangChain finds: {right}" in after
    assert after.splitlines()[1].endswith(right)
    assert right in again


@pytest.mark.slow
def test_07_langsmith_feedback(run_example, httpserver):
    """The trace, the judgement and the pull go over HTTP; the second answer is the corrected."""
    server = LangSmithServer(httpserver, "chat")
    langsmith = {"ENDPOINT": server.url, "API_KEY": API_KEY, "PROJECT": "chat"}
    given = {f"LANGSMITH_{name}": value for name, value in langsmith.items()}
    printed = run_example("07", **given, PYTHONPATH=os.pathsep.join(sys.path))
    lines = dict(line.split(":", 1) for line in printed.splitlines() if ":" in line)
    assert "backup" in lines["before"]
    assert "learned=1" in lines["pulled"]
    assert "never restore a backup" in lines["after"]
    assert {run["run_type"] for run in server.runs.values()} >= {"retriever", "chain"}
    (judged,) = server.feedback.values()
    assert judged["trace_id"] == judged["run_id"]
