"""Arguments of ``CrabPath.open`` are declared once, and every way to open a memory takes them."""

import ast
import inspect
import re
from itertools import pairwise
from pathlib import Path
from typing import get_args, get_type_hints

import pytest
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.vectorstores import InMemoryVectorStore
from llama_index.core import MockEmbedding, VectorStoreIndex
from llama_index.core.schema import TextNode
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, CrabPathRetriever, InvalidInputError
from crabpath_retrievers.cli import app
from crabpath_retrievers.integration import NAMED_OPTIONS, OpenOptions
from langgraph_crabpath.serving import served_retriever
from llama_index.retrievers import crabpath as llama_index

ROOT = Path(__file__).parents[2]
OPEN_HINTS = get_type_hints(CrabPath.open)
EMBEDDINGS = DeterministicFakeEmbedding(size=8)
# Which memory is meant: a constructor has its own way to say so.
OWN = {"path", "embeddings", "vectors", "create"}
CONSTRUCTORS = {
    (CrabPathRetriever, "from_documents"): lambda: ([], EMBEDDINGS),
    (CrabPathRetriever, "from_dataset"): lambda: (None, EMBEDDINGS),
    (CrabPathRetriever, "from_texts"): lambda: ([], EMBEDDINGS),
    (CrabPathRetriever, "from_vectorstore"): lambda: (InMemoryVectorStore(EMBEDDINGS),),
    (CrabPathRetriever, "from_existing"): lambda: ("memory", EMBEDDINGS),
    (llama_index.CrabPathRetriever, "from_documents"): lambda: ([], EMBEDDINGS),
    (llama_index.CrabPathRetriever, "from_nodes"): lambda: ([], EMBEDDINGS),
    (llama_index.CrabPathRetriever, "from_index"): lambda: (
        VectorStoreIndex([TextNode(text="sky", embedding=[1.0] * 8)], embed_model=MockEmbedding(8)),
    ),
    (llama_index.CrabPathRetriever, "from_existing"): lambda: ("memory", EMBEDDINGS),
}
each_constructor = pytest.mark.parametrize(
    ("host", "name", "arguments"),
    [
        pytest.param(*key, given, id=".".join((key[0].__module__, key[1])))
        for key, given in CONSTRUCTORS.items()
    ],
)
# Where a memory is opened beside these; those of the laboratory measure memories of their own.
OPENERS = {
    *("crabpath.py", "retriever.py", "parts/wrapping.py", "parts/operation/migrate.py"),
    *("cli/queries.py", "cli/documents.py", "cli/feedback.py", "parts/demo.py"),
    *("parts/operation/commands/maintenance.py", "parts/operation/commands/transfer.py"),
    "parts/operation/commands/sources.py",
    *("crabpath_server/commands.py", "testing/linkers.py", "testing/vector_indexes.py"),
    *("testing/vector_stores.py", "crabpath_lab/testing/stream_learners.py"),
    *("crabpath_lab/compare/systems.py", "crabpath_lab/scratch.py", "crabpath_lab/methods/cold.py"),
    *("langgraph_crabpath/serving.py", "langgraph_crabpath/store.py"),
    "llama_index/retrievers/crabpath/retriever.py",
}
ASKING = {
    "query": ("query", "sky"),
    "serve": ("serve",),
    "explore": ("explore", "--store", "memory"),
    "mcp": ("mcp",),
}
LEFT_OUT = {
    **dict.fromkeys(ASKING, ()),
    **dict.fromkeys(("add", "ingest", "sync", "teach", "correct", "replay"), ("replica",)),
    "reembed": ("replica",),  # its embedder is the new one
    **dict.fromkeys(("forget", "reindex", "graphml", "import"), ("embeddings", "replica")),
}
"""Commands that open a memory, with what they do without: the replica of one that they write to,
the embedder where they embed nothing."""


class OpenedError(Exception):
    """A memory was to be opened, with these arguments."""


@pytest.fixture(scope="module", autouse=True)
def existing(tmp_path_factory):
    """The place of a memory."""
    place = tmp_path_factory.mktemp("memory")
    CrabPath.open(place, embeddings=EMBEDDINGS).close()
    return place


@pytest.fixture(autouse=True)
def opening(monkeypatch):
    """Opens no memory, and says with what one would have been opened."""

    def open_memory(path=None, **options):
        raise OpenedError({"path": path, **options})

    monkeypatch.setattr(CrabPath, "open", open_memory)


def read_texts():
    """What the declaration says of each option."""
    tree = ast.parse(inspect.getsource(OpenOptions))
    body = tree.body[0].body
    return {
        field.target.id: " ".join(text.value.value.split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def test_open_shows_what_is_declared(monkeypatch):
    """Names, types and texts of its arguments: people read them there, and editors show them."""
    monkeypatch.undo()
    hints, declared = get_type_hints(CrabPath.open), get_type_hints(OpenOptions)
    assert {name: hints[name] for name in declared} == declared
    parameters = inspect.signature(CrabPath.open).parameters
    assert parameters.keys() == OWN | declared.keys()
    arguments = inspect.getdoc(CrabPath.open).partition("Args:\n")[2].partition("\n\n")[0]
    shown = dict(re.findall(r"^ {4}(\w+): ((?:.|\n {5})*)", arguments, re.MULTILINE))
    texts = read_texts()
    assert texts.keys() == declared.keys()
    assert {name: " ".join(shown[name].split()) for name in texts} == texts


def test_every_constructor_is_compared():
    """What makes a retriever of a host is called ``from_…``."""
    hosts = (CrabPathRetriever, llama_index.CrabPathRetriever)
    found = {(host, name) for host in hosts for name in vars(host) if name.startswith("from_")}
    assert found == CONSTRUCTORS.keys()


@pytest.mark.slow
def test_no_memory_is_opened_elsewhere():
    """A server is given one that is open; a host that opens one is to be compared here."""
    folders = (ROOT / "crabpath_retrievers", ROOT / "adapters")
    found = {
        path.relative_to(folder).as_posix()
        for folder in folders
        for path in folder.rglob("*.py")
        if any(map(opens, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }
    assert found == OPENERS


def opens(node):
    """Whether it is a call that opens a memory."""
    called = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    return re.fullmatch(r"CrabPath\.open|Services\.open|CrabPathRetriever\.from_\w+", called)


@each_constructor
@pytest.mark.parametrize("option", OpenOptions.__annotations__)
def test_every_constructor_takes_every_option(host, name, arguments, option):
    """Each passes it on as it is, and its type names it."""
    value = object()
    construct = getattr(host, name)
    with pytest.raises(OpenedError) as opened:
        construct(*arguments(), **{option: value})
    assert opened.value.args[0][option] is value
    *_, rest = inspect.signature(construct).parameters.values()
    (declared,) = get_args(rest.annotation)  # of Unpack[...]
    assert option in declared.__annotations__


@each_constructor
def test_an_option_that_does_not_exist_is_refused(host, name, arguments):
    """In one sentence, with the name that was meant, before anything is opened."""
    with pytest.raises(InvalidInputError, match=r"^unknown arguments replika: use replica$"):
        getattr(host, name)(*arguments(), replika="postgresql://standby/memory")


def test_what_a_text_can_say_is_an_option_of_the_shell():
    """And a variable of the environment; the place of the store has names of its own."""
    hints = get_type_hints(OpenOptions) | OPEN_HINTS
    texts = {name for name, hint in hints.items() if str in get_args(hint)}
    assert texts == {"path", *NAMED_OPTIONS}


def list_commands():
    """Commands that open a memory, by name, with the function behind each."""
    groups = [app, *(group.typer_instance for group in app.registered_groups)]
    commands = {c.name: c.callback for group in groups for c in group.registered_commands}
    openers = {"CrabPath", "_serve", "_open_for_queries"}
    return {
        name: callback
        for name, callback in commands.items()
        if openers & {*inspect.unwrap(callback).__code__.co_names}
    }


def test_every_command_has_the_options_that_it_needs():
    """None that opens a memory is without the others."""
    commands = list_commands()
    assert commands.keys() == LEFT_OUT.keys()
    lacks = {
        name: tuple(n for n in NAMED_OPTIONS if n not in inspect.signature(command).parameters)
        for name, command in commands.items()
    }
    assert lacks == LEFT_OUT


@pytest.mark.parametrize("command", ASKING)
@pytest.mark.parametrize("said", ["option", "environment"])
def test_the_shell_passes_every_option_on(command, said, existing, monkeypatch):
    """Also those by which a server is opened."""
    given = {name: f"http://{name}" for name in NAMED_OPTIONS}
    monkeypatch.setenv("CRABPATH_STORE", str(existing))
    line = list(ASKING[command])
    for name, value in given.items():
        if said == "option":
            line += [f"--{name}", value]
        else:
            monkeypatch.setenv(f"CRABPATH_{name.upper()}", value)
    result = CliRunner().invoke(app, line)
    assert isinstance(result.exception, OpenedError), result.output
    opened = result.exception.args[0]
    assert {name: opened[name] for name in given} == given


async def test_a_server_of_langgraph_passes_every_option_on(monkeypatch):
    given = {name: f"http://{name}" for name in NAMED_OPTIONS}
    for name, value in given.items():
        monkeypatch.setenv(f"CRABPATH_{name.upper()}", value)
    monkeypatch.setenv("CRABPATH_STORE", "memory")
    with pytest.raises(OpenedError) as opened:
        await served_retriever()
    assert opened.value.args[0] == {"path": "memory", "create": False, **given}
