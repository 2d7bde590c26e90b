"""Without LangGraph or LangChain's agents the import says what to install."""

import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

PROGRAM = """
import sys
sys.modules[{module!r}] = None
try:
    import langgraph_crabpath
except ImportError as error:
    print(type(error).__name__, error)
"""


@pytest.mark.parametrize("module", ["langgraph", "langchain"])
def test_names_the_command(module):
    """The error is ours, an ImportError too, and names pip."""
    program = PROGRAM.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("MissingExtraError langgraph_crabpath needs lang")
    assert done.stdout.endswith("pip install 'crabpath-retrievers[langgraph]'\n")


def test_the_library_itself_needs_neither():
    """``import crabpath_retrievers`` and a retriever of it load no LangGraph."""
    program = (
        "import sys, crabpath_retrievers, crabpath_retrievers.retriever\n"
        "print(sorted({'langgraph', 'langchain'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
