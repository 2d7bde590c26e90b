"""Example 3 as a user runs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parents[2] / "examples" / "03_langgraph_agent.py"
CORRECTION = "Since May, deployments start with `ship release`, not with `make release`."


def answer(body):
    """A model that says what the documents of the request tell it to type."""
    documents = [m["content"] for m in body["messages"] if "<documents>" in str(m["content"])]
    return "Type ship." if "ship release" in documents[-1] else "Type make."


def test_the_agent_learns_from_a_correction(chat_server):
    """After the correction Ann is told what is right in another thread; Bob's memory is his own."""
    chat_server.says = answer
    environment = {**os.environ, "OPENAI_BASE_URL": chat_server.url, "OPENAI_API_KEY": "x"}
    done = subprocess.run(
        [sys.executable, SCRIPT], capture_output=True, text=True, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    reads = [CORRECTION in line for line in lines if line.startswith("  read:")]
    says = [line for line in lines if line.startswith("  agent:")]
    assert "  learned: applied" in lines
    assert (reads[0], *reads[2:]) == (False, True, False)
    assert (says[0], *says[2:]) == (
        "  agent: Type make.",
        "  agent: Type ship.",
        "  agent: Type make.",
    )
    assert len(SCRIPT.read_text(encoding="utf-8").splitlines()) < 80
