"""Each distribution is built and tried alone: beside it lies nothing else of this repository."""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = {
    "base": ROOT,
    "server": ROOT / "adapters" / "crabpath_server",
    "lab": ROOT / "adapters" / "crabpath_lab",
    "llama_index": ROOT / "adapters" / "llama_index",
}
OURS = re.compile(r"_?_?(editable_impl_)?(crabpath|langgraph_crabpath|llama_index_retrievers)")
START = "import sys; sys.path[1:1] = {places!r}\n"
LEARN = """
import tempfile
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath, CrabPathRetriever
with tempfile.TemporaryDirectory() as folder:
    vectors = DeterministicFakeEmbedding(size=8)
    retriever = CrabPathRetriever.from_texts(["a", "b"], vectors, path=folder)
    found = retriever.invoke("a")
    assert retriever.record(found, True, used=found[:1])[0].status == "applied"
    retriever.memory.close()
"""
SHELL = """
from crabpath_retrievers.__main__ import run_command_line
sys.argv = ["crabpath", *{words!r}]
run_command_line()
"""

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """A function from names of distributions to the folders that hold their files."""
    folder = tmp_path_factory.mktemp("wheels")
    built = {}

    def unpack(*names):
        for name in names:
            if name not in built:
                target = built[name] = folder / name
                command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
                command += ["--no-build-isolation", "--no-index", "--target", str(target)]
                subprocess.run([*command, str(SOURCES[name])], check=True, capture_output=True)
        return [built[name] for name in names]

    return unpack


@pytest.fixture(scope="module")
def others(tmp_path_factory):
    """All that is installed here, but for this repository."""
    folder = tmp_path_factory.mktemp("others")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not OURS.match(entry.name):
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def run(wheels, others, tmp_path):
    """A function that runs a program where only some distributions are installed."""

    def start(names, program, *, places=None):
        found = [*map(str, places or wheels(*names)), str(others)]
        command = [sys.executable, "-S", "-c", START.format(places=found) + program]
        kept = {n: v for n, v in os.environ.items() if n != "PYTHONPATH"}
        return subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=tmp_path, env=kept
        )

    return start


def say(done):
    """What a program printed, on one line."""
    return " ".join((done.stdout + done.stderr).split())


def test_the_base_answers_and_learns_alone(run):
    program = LEARN + (
        "import importlib.util as u\n"
        "assert not any(map(u.find_spec, ('crabpath_server', 'crabpath_lab')))\n"
    )
    done = run(["base"], program)
    assert done.returncode == 0, done.stderr
    shown = run(["base"], SHELL.format(words=["--help"]))
    assert shown.returncode == 0, shown.stderr
    assert {"query", "replay", "doctor", "regions"} <= set(shown.stdout.split())
    assert not shown.stderr


@pytest.mark.parametrize(
    ("words", "extra"),
    [
        (["serve", "--port", "1"], "server"),
        (["mcp"], "server"),
        (["eval", "beir"], "eval"),
        (["ab", "list"], "lab"),
    ],
)
def test_a_command_of_a_missing_part_names_its_extra(run, words, extra):
    done = run(["base"], SHELL.format(words=words))
    assert done.returncode == 1
    assert f"pip install 'crabpath-retrievers[{extra}]'" in say(done)
    assert "Traceback" not in done.stderr


def test_a_method_of_a_missing_part_names_its_extra(run):
    program = LEARN.replace("    retriever.memory.close()", "    retriever.memory.shadow(str)")
    done = run(["base"], program)
    assert "MissingExtraError" in done.stderr
    assert "pip install 'crabpath-retrievers[lab]'" in done.stderr


def test_the_server_has_its_commands_and_application(run):
    done = run(["base", "server"], SHELL.format(words=["serve", "--help"]))
    assert done.returncode == 0, done.stderr
    made = run(["base", "server"], "from crabpath_server import create_app, client; print(1)")
    assert made.stdout == "1\n", made.stderr


def test_the_client_needs_nothing_of_the_server(run):
    """Agents have other releases of MCP's package beside it."""
    hide = "for name in ('mcp', 'starlette', 'uvicorn'): sys.modules[name] = None\n"
    done = run(["base", "server"], hide + "import crabpath_server.client; print(1)")
    assert done.stdout == "1\n", done.stderr


@pytest.mark.parametrize("words", [["serve", "m"], ["mcp", "m"]])
def test_commands_of_the_server_name_its_extra_beside_the_client_alone(run, words):
    hide = "for name in ('mcp', 'starlette', 'uvicorn'): sys.modules[name] = None\n"
    done = run(["base", "server"], hide + LEARN.replace("path=folder", "path='m'"))
    done = run(["base", "server"], hide + SHELL.format(words=words))
    assert done.returncode == 1
    assert "pip install 'crabpath-retrievers[server]'" in say(done)
    assert "Traceback" not in done.stderr


def test_a_star_import_and_help_work_with_the_base_alone(run):
    program = "import pydoc; from crabpath_retrievers import *; CrabPath; "
    program += "import crabpath_retrievers; pydoc.render_doc(crabpath_retrievers); print(1)"
    done = run(["base"], program)
    assert done.stdout == "1\n", done.stderr


def test_the_laboratory_has_its_commands_and_shadows(run):
    """Without what only evaluation needs."""
    hide = "for name in ('bm25s', 'ir_measures', 'matplotlib', 'langchain_classic', "
    hide += "'langchain_chroma'): sys.modules[name] = None\n"
    for words in (["ab", "list", "--help"], ["compare", "--help"], ["fetch"]):
        done = run(["base", "lab"], hide + SHELL.format(words=words))
        assert done.returncode == 0, done.stderr
        assert not done.stderr
    program = LEARN.replace("    retriever.memory.close()", "    retriever.memory.shadow(str)")
    shadowed = run(["base", "lab"], program)
    assert shadowed.returncode == 0, shadowed.stderr


def test_the_adapter_of_llama_index_works(run):
    program = "from llama_index.retrievers.crabpath import CrabPathReranker; print(1)"
    done = run(["base", "llama_index"], program)
    assert done.stdout == "1\n", done.stderr


def test_a_part_of_another_version_says_which_to_upgrade(run, wheels, tmp_path):
    """The rest of the command line works."""
    base, server = wheels("base", "server")
    newer = tmp_path / "newer"
    shutil.copytree(server, newer)
    module = newer / "crabpath_server" / "__init__.py"
    module.write_text(re.sub(r'__version__ = ".*"', '__version__ = "0.2.0"', module.read_text()))
    done = run([], "import crabpath_server", places=[base, newer])
    said = "crabpath-server 0.2.0 does not work with crabpath-retrievers 0.1.0"
    assert said in done.stderr
    assert "pip install 'crabpath-retrievers==0.2.0'" in done.stderr
    shown = run([], SHELL.format(words=["--help"]), places=[base, newer])
    assert (shown.returncode, shown.stderr) == (0, "")
    assert said in say(shown)
    assert "query" in shown.stdout
