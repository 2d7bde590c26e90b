"""Importing the package is cheap, and its public names are all there."""

import json
import subprocess
import sys

import pytest

import crabpath_retrievers
from crabpath_retrievers import errors

HEAVY = {"torch", "chromadb", "langgraph", "llama_index", "langchain_chroma", "transformers"}
MEASURE = """
import json, sys, time
start = time.process_time()
{program}
print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
"""


def imported(program):
    """Seconds and modules of an import in a fresh interpreter."""
    command = [sys.executable, "-c", MEASURE.format(program=program)]
    seconds, modules = json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
    return seconds, set(modules)


def test_importing_is_fast_and_needs_no_framework():
    """Less than half a second of processor time; the first may have to read the disk."""
    runs = [imported("import crabpath_retrievers") for _ in range(2)]
    assert min(seconds for seconds, _ in runs) < 0.5
    assert not HEAVY & runs[0][1]
    policy = (
        "from crabpath_retrievers import OutcomePolicy, Rule; OutcomePolicy(score=Rule(1, 'self'))"
    )
    assert not (HEAVY | {"langchain_core"}) & imported(policy)[1]
    # The classes themselves need neither torch nor Chroma nor the optional frameworks.
    assert not HEAVY & imported("from crabpath_retrievers import CrabPath, CrabPathRetriever")[1]


def test_public_names_exist_and_are_listed():
    """Editors and notebooks complete the names that are imported at first use."""
    for name in crabpath_retrievers.__all__:
        assert getattr(crabpath_retrievers, name).__name__ == name
    assert set(crabpath_retrievers.__all__) <= set(dir(crabpath_retrievers))
    with pytest.raises(AttributeError, match="has no attribute 'CrabPaht'"):
        _ = crabpath_retrievers.CrabPaht


def test_errors_form_a_tree():
    """Every error of the tree is public and derives from the one base."""
    found = {n: e for n, e in vars(errors).items() if isinstance(e, type)}
    assert set(found) <= set(crabpath_retrievers.__all__)
    assert all(issubclass(error, crabpath_retrievers.CrabPathError) for error in found.values())
    assert len(found) > 1
