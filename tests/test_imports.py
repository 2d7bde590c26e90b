"""Importing is cheap and needs no host; public names are there; adapters use those alone."""

import ast
import json
import re
import subprocess
import sys
from importlib import import_module
from importlib.metadata import metadata, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import crabpath_retrievers
from crabpath_retrievers import errors
from crabpath_retrievers.core.extras import EXTRAS

ROOT = Path(__file__).parents[1]
ADAPTERS = ROOT / "adapters"
HOSTS = ("langgraph_crabpath", "llama_index")
PARTS = ("crabpath_lab", "crabpath_server")
HEAVY = {"torch", "chromadb", "langgraph", "llama_index", "langchain_chroma", "transformers"}
MEASURE = """
import json, sys, time
start = time.process_time()
{program}
print(json.dumps([time.process_time() - start, sorted(sys.modules)]))
"""
WITHOUT = """
import sys
sys.modules[{module!r}] = None
from crabpath_retrievers import MissingExtraError
try:
    import {adapter}
except MissingExtraError as error:
    print(isinstance(error, ImportError), error)
"""
BARE = """
import sys
for module in ("llama_index", "matplotlib", "networkx", "psycopg", "rich", "scipy", "typer"):
    sys.modules[module] = None
"""
USE = """
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPathRetriever
CrabPathRetriever.from_texts(["a"], DeterministicFakeEmbedding(size=8)).invoke("a")
"""


def run(program):
    """What a fresh interpreter prints."""
    command = [sys.executable, "-c", program]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def imported(program):
    """Seconds and modules of an import in a fresh interpreter."""
    seconds, modules = json.loads(run(MEASURE.format(program=program)))
    return seconds, set(modules)


@pytest.mark.slow
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
    for module in (crabpath_retrievers, *map(import_module, PARTS)):
        listed = [name for name in dir(module) if not name.startswith("_")]
        assert listed == sorted(module.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'CrabPaht'"):
        _ = crabpath_retrievers.CrabPaht


def test_errors_form_a_tree():
    """Every error of the tree is public and derives from the one base."""
    found = {n: e for n, e in vars(errors).items() if isinstance(e, type)}
    assert set(found) <= set(crabpath_retrievers.__all__)
    assert all(issubclass(error, crabpath_retrievers.CrabPathError) for error in found.values())
    assert len(found) > 1


def test_adapters_of_hosts_import_public_names_only():
    """From ``crabpath_retrievers`` and ``crabpath_retrievers.integration``."""
    files = [file for host in HOSTS for file in (ADAPTERS / host).rglob("*.py")]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in files]
    imports = [n for tree in trees for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)]
    modules = {node.module for node in imports if node.module is not None}
    internal = {name for name in modules if name.split(".")[0] == "crabpath_retrievers"}
    assert internal == {"crabpath_retrievers", "crabpath_retrievers.integration"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "adapter", "message"),
    [
        ("langchain", "langgraph_crabpath", r"needs lang[a-z.]*: .*\[langgraph\]"),
        ("llama_index.core", "llama_index.retrievers.crabpath", "LlamaIndex is not .*llama-index"),
        ("mcp.server", "crabpath_server; crabpath_server.Access", r"needs mcp: .*\[server\]"),
        ("mcp.server", "crabpath_server.mcp", r"needs mcp: .*\[server\]"),
        ("starlette", "crabpath_server.app", r"needs starlette: .*\[server\]"),
        ("bm25s", "crabpath_lab; crabpath_lab.METHODS", r"methods needs bm25s: .*\[eval\]"),
        ("bm25s", "crabpath_lab.methods", r"crabpath_lab.methods needs bm25s: .*\[eval\]"),
        ("ir_measures", "crabpath_lab; crabpath_lab.evaluate", r"needs ir_measures: .*\[eval\]"),
        (
            "langchain_classic",
            "crabpath_lab; crabpath_lab.cached_embedder()",
            r"needs langchain_classic: .*\[eval\]",
        ),
    ],
)
def test_the_message_names_the_command(module, adapter, message):
    assert re.search(f"^True .*{message}", run(WITHOUT.format(module=module, adapter=adapter)))


@pytest.mark.slow
def test_the_library_imports_no_host():
    """Neither at import nor when a memory is opened and asked."""
    assert not {"langgraph", "langchain", "llama_index.core"} & imported(USE)[1]


@pytest.mark.slow
def test_a_base_install_does_without_the_extras():
    """It indexes, asks and learns; the program says in one sentence what it needs."""
    assert not run(BARE + USE)
    program = "from crabpath_retrievers.__main__ import run_command_line as run; run()"
    command = [sys.executable, "-c", BARE + program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    needs = "the command line needs rich, typer: pip install 'crabpath-retrievers[cli]'\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", needs)


def test_the_modules_of_extras_are_of_their_packages():
    """Their table agrees with what the distribution declares."""
    declared = metadata("crabpath-retrievers").get_all("Requires-Dist")
    known = packages_distributions()
    for extra, modules in EXTRAS.items():
        packages = {
            re.sub("[._]", "-", Requirement(one).name.lower())
            for one in declared
            if f"extra == '{extra}'" in one.replace('"', "'")
        }
        for part in packages & {"crabpath-lab", "crabpath-server"}:
            needed = map(Requirement, metadata(part).get_all("Requires-Dist"))
            packages |= {re.sub("[._]", "-", one.name.lower()) for one in needed}
        for module in modules:
            names = {re.sub("[._]", "-", name.lower()) for name in known[module]}
            assert names & packages, (extra, module)


def test_all_distributions_are_of_one_version():
    version = crabpath_retrievers.__version__
    for part in PARTS:
        assert import_module(part).__version__ == version
        text = (ADAPTERS / part / "pyproject.toml").read_text(encoding="utf-8")
        assert re.findall(r'"crabpath-retrievers\S*==(\S*)"', text) == [version]
    own = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    adapter = (ADAPTERS / "llama_index" / "pyproject.toml").read_text(encoding="utf-8")
    minilm = (ADAPTERS / "minilm_onnx" / "pyproject.toml").read_text(encoding="utf-8")
    assert all(f'\nversion = "{version}"' in text for text in (adapter, minilm))
    needed = re.findall(r'"((?:crabpath-retrievers|llama-index-retrievers-crabpath)>=[^"]*)"', own)
    needed += re.findall(r'"(crabpath-retrievers>=[^"]*)"', adapter)
    assert len(needed) == 2
    assert all(Requirement(text).specifier.contains(version) for text in needed)
    assert set(re.findall(r'"crabpath-(?:lab|minilm|server)\S*==(\S*)"', own)) == {version}
    licence = (ROOT / "LICENSE").read_text(encoding="utf-8")
    for folder in ("llama_index", "minilm_onnx", *PARTS):
        assert (ADAPTERS / folder / "LICENSE").read_text(encoding="utf-8") == licence
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## {version} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
