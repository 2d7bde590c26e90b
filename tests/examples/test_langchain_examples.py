"""The examples that need LangChain alone."""

import json
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_swap_into_a_chain(run_example, chat_server):
    """The chain answers from the pages; what was used comes first afterwards."""
    chat_server.says = "Two reviews."
    printed = run_example("01")
    assert "answer: Two reviews." in printed
    assert "Release checklist: Two reviews" in chat_server.requests[0]["messages"][0]["content"]
    assert "feedback: applied" in printed
    (again,) = [line for line in printed.splitlines() if line.startswith("found again: ")]
    assert again.startswith("found again: Release checklist")


def test_a_local_model_as_router(run_example, chat_server):
    """It is asked once a question, and not about what succeeded."""

    def route(body):
        lines = body["messages"][1]["content"].split("<candidates>\n")[1].splitlines()[:-1]
        first = json.loads(lines[0])[0]
        return {"follow": [first], "drop": [], "stop": True, "reason": "the first will do"}

    chat_server.says = route
    printed = run_example("02").splitlines()
    assert [line.split()[1] for line in printed if line.startswith("  model: ")] == ["1", "1", "0"]
    assert printed.count("  it says: the first will do") == 2


def test_two_users_two_minds(run_example):
    """What one user teaches, the other does not see."""
    printed = run_example("05")
    assert "before: steve finds Python, " in printed
    assert "after: ada finds Python, " in printed
    assert "after: steve finds Pythons, " in printed
    assert "steve knows: Monty sleeps in the hall." in printed
    assert "ada knows: Monty sleeps" not in printed
    assert "steve about ada's turn: refused" in printed


def test_wrapping_a_chroma_collection(run_example):
    """The graph finds what similarity alone does not; the collection stays as it was."""
    plain, graph, *rest = run_example("06").splitlines()
    assert "Rue Dauphine" not in plain
    assert "Rue Dauphine" in graph
    assert "  Rue Dauphine: mention by Pierre Curie" in rest
    assert rest[-1] == "documents in the collection: 5"


@pytest.mark.parametrize("script", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_examples_are_short(script):
    """Under eighty lines each, numbered."""
    assert len(script.read_text().splitlines()) < 80
    assert script.stem[:2].isdecimal()
