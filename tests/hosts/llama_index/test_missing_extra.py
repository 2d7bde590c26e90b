"""Without LlamaIndex the import says how to install it; the library itself needs none of it."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

BLOCKED = """
import sys
class Nothing:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("llama_index.core"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Nothing())
"""


def run(code):
    """Run code in a fresh interpreter; its output."""
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout + done.stderr


def test_the_message_names_the_command():
    """And the error is both the project's and an ImportError."""
    code = """
from crabpath_retrievers import MissingExtraError
try:
    import llama_index.retrievers.crabpath
except MissingExtraError as error:
    print(isinstance(error, ImportError), error)
"""
    wanted = "True LlamaIndex is not installed: pip install 'crabpath-retrievers[llama-index]'\n"
    assert run(BLOCKED + code) == wanted


def test_the_library_does_not_import_it():
    """Neither at import nor when a memory is opened and asked."""
    code = """
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPathRetriever
CrabPathRetriever.from_texts(["a"], DeterministicFakeEmbedding(size=8)).invoke("a")
print("llama_index.core" in sys.modules)
"""
    assert run(BLOCKED + code) == "False\n"
