"""Examples are run as a user runs them: as scripts, against a chat model on this machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture
def run_example(chat_server):
    """Runs an example by its number; returns what it printed."""

    def run(number: str, **environment: str) -> str:
        (script,) = EXAMPLES.glob(f"{number}_*.py")
        local = {"OPENAI_BASE_URL": chat_server.url, "OPENAI_API_KEY": "x", "CHAT_MODEL": "m"}
        done = subprocess.run(
            [sys.executable, "-W", "error::DeprecationWarning:__main__", script],
            env={**os.environ, **local, **environment},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run
