"""Importing the package is cheap, and its public names are all there."""

import json
import subprocess
import sys

import pytest

import crabpath_retrievers
from crabpath_retrievers import errors

HEAVY = ("torch", "chromadb", "langgraph", "llama_index", "langchain_chroma", "transformers")
MEASURE = """
import json, sys, time
start = time.process_time()
import crabpath_retrievers
print(json.dumps({"seconds": time.process_time() - start, "modules": sorted(sys.modules)}))
"""


def imported():
    """Seconds and modules of an import in a fresh interpreter."""
    done = subprocess.run([sys.executable, "-c", MEASURE], check=True, capture_output=True)
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def measured():
    """Two imports; the first may have to read the disk."""
    return [imported() for _ in range(2)]


@pytest.mark.parametrize("name", HEAVY)
def test_nothing_heavy_is_imported(measured, name):
    """The package alone imports none of the large frameworks."""
    assert name not in measured[0]["modules"]


def test_import_is_fast(measured):
    """In less than half a second of processor time: other tests may run beside."""
    assert min(run["seconds"] for run in measured) < 0.5


@pytest.mark.parametrize("name", ["CrabPath", "CrabPathRetriever"])
def test_using_the_library_imports_no_other_host(name):
    """The classes themselves need neither torch nor Chroma nor the optional frameworks."""
    program = (
        f"import sys\nfrom crabpath_retrievers import {name}\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_the_policy_needs_no_framework():
    """What counts as an outcome is data: neither LangChain nor another host is imported."""
    program = (
        "import sys\nfrom crabpath_retrievers import OutcomePolicy, Rule\n"
        "OutcomePolicy(score=Rule(1, 'self'))\n"
        f"print([m for m in {(*HEAVY, 'langchain_core')!r} if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], check=True, capture_output=True, text=True
    )
    assert done.stdout == "[]\n"


def test_public_names_exist():
    """Every public name can be imported."""
    for name in crabpath_retrievers.__all__:
        assert getattr(crabpath_retrievers, name).__name__ == name


def test_public_names_are_listed():
    """Editors and notebooks complete the names that are imported at first use."""
    assert set(crabpath_retrievers.__all__) <= set(dir(crabpath_retrievers))


def test_unknown_name():
    """A name that does not exist is an AttributeError, as in any module."""
    with pytest.raises(AttributeError, match="has no attribute 'CrabPaht'"):
        _ = crabpath_retrievers.CrabPaht


def test_errors_form_a_tree():
    """Every error of the tree is public and derives from the one base."""
    found = {n: e for n, e in vars(errors).items() if isinstance(e, type)}
    assert set(found) <= set(crabpath_retrievers.__all__)
    assert all(issubclass(error, crabpath_retrievers.CrabPathError) for error in found.values())
    assert len(found) > 1
