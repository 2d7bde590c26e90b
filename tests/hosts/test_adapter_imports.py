"""Adapters use public names, and say what to install; the library needs no host."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ADAPTERS = Path(__file__).parents[2] / "adapters"
IMPORT = """
import sys
sys.modules[{module!r}] = None
from crabpath_retrievers import MissingExtraError
try:
    import {adapter}
except MissingExtraError as error:
    print(isinstance(error, ImportError), error)
"""
USE = """
import sys
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPathRetriever
CrabPathRetriever.from_texts(["a"], DeterministicFakeEmbedding(size=8)).invoke("a")
print(sorted({"langgraph", "langchain", "llama_index.core"} & set(sys.modules)))
"""


def test_adapters_import_public_names_only():
    """From ``crabpath_retrievers`` and ``crabpath_retrievers.integration``."""
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in ADAPTERS.rglob("*.py")]
    imports = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    modules = {node.module for node in imports if node.module is not None}
    internal = {name for name in modules if name.split(".")[0] == "crabpath_retrievers"}
    assert internal == {"crabpath_retrievers", "crabpath_retrievers.integration"}


def run(code):
    """What a fresh interpreter prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "adapter", "message"),
    [
        ("langchain", "langgraph_crabpath", r"needs lang[a-z.]*: .*\[langgraph\]"),
        ("llama_index.core", "llama_index.retrievers.crabpath", "LlamaIndex is not .*llama-index"),
    ],
)
def test_the_message_names_the_command(module, adapter, message):
    assert re.search(f"^True .*{message}", run(IMPORT.format(module=module, adapter=adapter)))


@pytest.mark.slow
def test_the_library_imports_no_host():
    """Neither at import nor when a memory is opened and asked."""
    assert run(USE) == "[]\n"
