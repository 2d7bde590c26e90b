"""Example 07 as a user runs it, against a LangSmith on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from langsmith_server import API_KEY, LangSmithServer

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "07_langsmith_feedback.py"


def test_it_learns_from_langsmith(httpserver):
    """The trace, the judgement and the pull go over HTTP; the second answer is the corrected."""
    server = LangSmithServer(httpserver, "chat")
    environment = {
        **os.environ,
        "LANGSMITH_ENDPOINT": server.url,
        "LANGSMITH_API_KEY": API_KEY,
        "LANGSMITH_PROJECT": "chat",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLE)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines = dict(line.split(":", 1) for line in done.stdout.splitlines() if ":" in line)
    assert "backup" in lines["before"]
    assert "learned=1" in lines["pulled"]
    assert "never restore a backup" in lines["after"]
    assert {run["run_type"] for run in server.runs.values()} >= {"retriever", "chain"}
    (given,) = server.feedback.values()
    assert given["trace_id"] == given["run_id"]


def test_it_stays_short():
    """An example is read in one go."""
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 80
