"""Example 04, run as a user runs it."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

EXAMPLE = Path(__file__).parents[2] / "examples" / "04_llama_index_query_engine.py"
CORRECTION = "Nobody deploys on a Friday: ask whoever is on call."


def run(path):
    """What it prints, by its headings."""
    done = subprocess.run(
        [sys.executable, EXAMPLE, path], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    before, _, rest = done.stdout.partition("correction: applied\n")
    return before, rest


def test_it_learns_and_remembers(tmp_path):
    """The correction comes after it was given, in LangChain too, and in the next run at once."""
    before, after = run(tmp_path / "memory")
    assert CORRECTION not in before
    assert "Push to main" in before
    assert f"LangChain finds: {CORRECTION}" in after
    assert after.splitlines()[1].endswith(CORRECTION)
    again, _ = run(tmp_path / "memory")
    assert CORRECTION in again


def test_it_is_short():
    """An example is read."""
    assert len(EXAMPLE.read_text(encoding="utf-8").splitlines()) < 80
