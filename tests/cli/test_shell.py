"""Habits of shells: versions, help, questions before deleting, embedders, other processes."""

import logging
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import langchain.embeddings
import pytest
import typer
from filelock import FileLock
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.core import TyperGroup

from crabpath_retrievers import CrabPath, __version__
from crabpath_retrievers.cli import app
from crabpath_retrievers.core import calls
from crabpath_retrievers.core.calls import limit_waiting

NAMES = ("apple", "banana", "cherry")


@pytest.fixture
def docs(tmp_path):
    """A folder with three documents."""
    folder = tmp_path / "docs"
    folder.mkdir()
    for name in NAMES:
        (folder / f"{name}.md").write_text(f"# {name}\n\nAll about the {name}.\n")
    return folder


@pytest.fixture
def _embedders(monkeypatch):
    """LangChain makes an embedder of as many dimensions as its name says."""

    def make(name):
        provider, _, size = name.partition(":")
        assert provider == "fake"
        return DeterministicFakeEmbedding(size=int(size))

    monkeypatch.setattr(langchain.embeddings, "init_embeddings", make)


def test_version_and_help(cli):
    """The groups of commands come in the order of use; the exit codes stand below them."""
    assert {cli(flag).stdout for flag in ("--version", "-V")} == {f"crabpath {__version__}\n"}
    shown = cli("-h").stdout
    assert shown == cli("--help").stdout
    places = [shown.index(f"─ {name} ─") for name in ("Documents", "Ask", "Feedback", "Operate")]
    assert places == sorted(places)
    assert all(name in shown for name in ("Exit codes: 0 done", "─ Move ─", "--install-completion"))
    assert "─ Options ─" in cli("transfer", "export", "-h").stdout


def _list_commands(group, path=()):
    for name, command in group.commands.items():
        if isinstance(command, TyperGroup):
            yield from _list_commands(command, (*path, name))
        else:
            yield " ".join((*path, name)), command


def test_every_command_takes_the_store_in_the_same_way():
    """As --store, and as its argument where no other one stands there."""
    # Many places, or none; compare names a store of others.
    tokens = {f"token {what}" for what in ("create", "list", "revoke", "rotate")}
    without = {"compare", "eval", "experiment", "fetch", "transfer migrate", *tokens}
    for name, command in _list_commands(typer.main.get_command(app)):
        names = {option for p in command.params for option in p.opts}
        assert ({"--store", "-s"} <= names) == (name not in without), name
        taken = any(p.param_type_name == "argument" for p in command.params)
        assert taken or name in {"compare", "token list"}, name


@pytest.mark.usefixtures("_embedders", "docs")
def test_a_store_is_the_same_by_option_and_by_argument(cli, read, refuse, monkeypatch):
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:16")
    read("add", "docs", "--store", "here")
    monkeypatch.setenv("CRABPATH_STORE", "elsewhere")
    for command in ("info", "list", "doctor", "maintain", "ready", "health", "history list"):
        assert cli(*command.split(), "here").exit_code == 0, command
        assert cli(*command.split(), "-s", "here").exit_code == 0, command
    read("transfer", "export", "here", "one")
    read("transfer", "export", "two", "--store", "here")
    read("transfer", "import", "one", "copy")
    read("transfer", "import", "two", "--store", "another")
    assert read("info", "copy")["nodes"] == read("info", "another")["nodes"] == 3
    assert "elsewhere" in "".join(refuse("info").split())


@pytest.mark.usefixtures("_embedders", "docs")
def test_two_stores_for_one_command_are_refused(cli, read, refuse, monkeypatch, tmp_path):
    """None is ignored, and nothing is written; the same place said twice is one."""
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:16")
    read("add", "docs", "--store", "here")
    read("transfer", "export", "here", "saved")
    taking = [
        name.split()
        for name, command in _list_commands(typer.main.get_command(app))
        if any(p.name == "place" for p in command.params)
    ]
    assert len(taking) > 20
    for command in taking:
        file = ("saved",) if command[-1] == "import" else ()
        both = refuse(*command, *file, "here", *_rest(command), "--store", "there")
        assert "two stores are given, here and --store there: give one" in both, command
    assert not (tmp_path / "there").exists()
    assert read("info", "here", "--store", str(tmp_path / "here"))["nodes"] == 3
    assert read("transfer", "export", "here", "again", "-s", "here")["path"] == "again"


def _rest(command):
    """The file that a command needs after its store."""
    return ("file",) if command[-1] in {"replay", "export", "graphml"} else ()


@pytest.mark.slow
@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.usefixtures("_embedders")
def test_output_fits_into_a_file_of_any_encoding(tmp_path, encoding):
    """What the encoding lacks is written as an escape; nothing ends with a traceback."""
    with CrabPath.open(tmp_path / "m", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document("Launch 🚀", id="🚀", metadata={"title": "日程"})])
        turn = memory.retrieve("Ωmega 🚀?").turn.id
    for command in (["list"], ["list", "--turns"], ["explain", turn], ["explain", "🚀"]):
        line = [sys.executable, "-m", "crabpath_retrievers", *command, "-s", str(tmp_path / "m")]
        env = {**os.environ, "PYTHONIOENCODING": encoding}
        done = subprocess.run(line, capture_output=True, env=env, check=False)
        said = done.stdout.decode(encoding) + done.stderr.decode(encoding)
        assert done.returncode == (2 if command[-1] == "🚀" else 0), said
        assert ("🚀" if encoding == "utf-8" else "\\U0001f680") in said, said
        assert "Traceback" not in said


@pytest.mark.usefixtures("_embedders", "docs")
def test_an_embedder_is_named_once_and_then_remembered(cli, read, refuse, monkeypatch):
    """By an option or by the environment; another one is refused in a sentence."""
    assert read("add", "docs", "--embeddings", "fake:16")["added"] == 3
    found = read("query", "apple", "-k", "1")["documents"]
    assert (len(found), read("sync", "docs")["unchanged"]) == (1, 3)
    assert cli("teach", "Apples are red.").exit_code == 0
    assert "not 8: open it with" in refuse("query", "apple", "--embeddings", "fake:8", code=1)
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:8")
    assert "--embeddings PROVIDER:MODEL" in refuse("query", "apple", code=1)
    assert read("add", "docs", "--store", "other")["added"] == 3
    assert "'provider:model'" in refuse("add", "docs", "--embeddings", "minilm")


MODULE = """
from langchain_core.embeddings import DeterministicFakeEmbedding
EMBEDDER = DeterministicFakeEmbedding(size=8)
def make(): return EMBEDDER
def fail(): raise LookupError("no key")
"""


def test_an_embedder_is_one_of_a_module_in_the_current_folder(read, refuse, monkeypatch):
    """A package, such as openai, may have the name of a provider."""
    monkeypatch.setattr(sys, "path", [*sys.path])
    Path("my_embedders.py").write_text(MODULE, encoding="utf-8")
    Path("apple.md").write_text("An apple is a fruit.", encoding="utf-8")
    assert read("add", "apple.md", "--embeddings", "my_embedders:make")["added"] == 1
    assert read("query", "apple", "--embeddings", "my_embedders:EMBEDDER")["documents"]
    assert "(LookupError: no key)" in refuse("query", "apple", "--embeddings", "my_embedders:fail")
    assert "my_embedders" in refuse("query", "apple", "--embeddings", "my_embedders:absent")
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert "OPENAI_API_KEY" in refuse("query", "a", "--embeddings", "openai:text-embedding-3-small")


@pytest.mark.usefixtures("_embedders", "docs")
def test_beside_a_process_that_holds_the_vectors(read, refuse, monkeypatch):
    """Questions are answered as before, and recorded; what must write names the process."""
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:16")
    read("add", "docs")
    read("teach", "Apples are red.", "--query", "apple", "-n", "ann")
    asked = ("query", "apple", "-k", "3", "-n", "ann")
    before = read(*asked)
    with FileLock("memory/vectors/crabpath.lock"):
        beside = read(*asked)
        assert [d["id"] for d in beside["documents"]] == [d["id"] for d in before["documents"]]
        assert read("explain", beside["turn_id"])["documents"]
        assert (read("info")["turns"], read("info")["nodes"]) == (2, 3)
        with limit_waiting(0.2):
            said = refuse("add", "docs", code=1)
        holder = f" ({os.getpid()})" if sys.platform == "linux" else ""
        assert f"in use by another process{holder}: close it there" in said
    assert read("sync", "docs")["unchanged"] == 3
    with CrabPath.open("memory") as memory:
        assert memory.index.count() == 3


GUIDE = """# Pushing

Read this guide before your first push.

```bash
git push --no-verify  # skips hooks
```

The hooks run tests. Skip them only in an emergency,
as [the release guide](guide.md) says. {}
"""


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("Is it an emergency?", "Skip them only in an emergency, as the release guide says."),
        ("git verify", "git push --no-verify  # skips hooks"),
        ("What is a banana?", "Read this guide before your first push."),
        ("Where is the moon?", "moon moon moon"),
    ],
)
@pytest.mark.usefixtures("_embedders")
def test_an_answer_shows_what_it_says_to_the_question(cli, read, tmp_path, question, shown):
    """No heading, fence or link; at most two lines."""
    (tmp_path / "push.md").write_text(GUIDE.format("moon " * 60))
    read("add", "push.md", "--embeddings", "fake:16")
    lines = cli("query", question, "-k", "1").stdout.splitlines()
    assert "Pushing" in lines[0]
    assert " ".join(line.strip() for line in lines[1:3]).startswith(shown)
    assert len(lines) <= 9
    assert max(map(len, lines)) <= 80


@pytest.mark.usefixtures("_embedders", "docs")
def test_a_question_that_begins_with_a_dash(cli, read, refuse):
    """The refusal says how to ask it; an option that is not there is refused as one."""
    read("add", "docs", "--embeddings", "fake:16")
    for text in ("--no-verify", "-x", "-name of the apple", "- apple"):
        said = " ".join(refuse("query", text).replace("│", " ").split())
        quoted = text if " " not in text else f"'{text}'"
        assert f"query -- {quoted}" in said, said
        assert cli("query", "-k", "1", "--", text).stdout.count("(search)") == 1
    assert " -- " not in refuse("query", "-k", "3", "--store=docs")
    said = refuse("health", "--apple")
    assert "No such option: --apple" in said
    assert " -- " not in said


@pytest.mark.usefixtures("_embedders", "docs")
def test_refused_feedback_is_said_once(cli, read, monkeypatch):
    read("add", "docs", "--embeddings", "fake:16")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as where nobody configured any
    said = cli("feedback", "none", "--outcome", "1").stderr
    assert " ".join(said.split()).count("no turn 'none'") == 1, said


@pytest.mark.usefixtures("_embedders", "docs")
def test_a_person_is_asked_before_something_is_deleted(cli, read, monkeypatch):
    """On a terminal only, and not with --yes; without a terminal scripts go on as they are."""
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:16")
    read("add", "docs")
    turn = read("query", "apple")["turn_id"]
    snapshot = read("history", "snapshot", "before")["snapshot"]
    read("feedback", turn, "--outcome", "1")
    read("transfer", "export", "memory", "saved", "-n", "default")
    questions = (
        (("forget", "--source", "docs/apple.md"), "Delete all of docs/apple.md?"),
        (("forget", "--namespace", "default"), "Delete all that default learned?"),
        (("history", "restore", "before"), "Delete all that was learned since"),
        (("history", "delete", "before"), "Delete the snapshot before?"),
        (("transfer", "import", "saved", "memory", "--replace"), "Delete what the namespace"),
        (("transfer", "export", "memory", "saved"), "Replace saved?"),
    )
    with monkeypatch.context() as patched:
        patched.setattr("typer.testing._NamedTextIOWrapper.isatty", lambda it: it.name == "<stdin>")
        for command, question in questions:
            result = cli(*command)  # nobody answers
            assert (result.exit_code, question in result.stderr) == (1, True), result.output
        assert (read("info")["nodes"], read("history", "list")[0]["id"]) == (3, snapshot)
        assert read("forget", "--source", "docs/apple.md", "--yes")["removed"] == 1
    assert read("forget", "--source", "docs/banana.md")["removed"] == 1


@pytest.mark.parametrize("live", [True, False])
def test_progress_has_a_rate_from_the_first_seconds(monkeypatch, capsys, live):
    """On a terminal one line that is erased; otherwise a line every ten seconds."""
    clock = SimpleNamespace(now=0.0, perf_counter=None, monotonic=lambda: clock.now)
    monkeypatch.setattr(calls, "time", clock)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: live, raising=False)
    with calls.bar(1200, piped=True) as advance:
        for clock.now in (1.0, 2.0, 5.0, 12.0):
            advance(100)
    shown = capsys.readouterr().err
    first, last = ("indexing 200 of 1,200, 100/s, 0:00:10 left", "indexing 400 of 1,200, 33.3/s")
    assert (first in shown, last in shown) == (True, True)
    assert ("300 of" in shown, shown.endswith("\r"), "\n" in shown) == (live, live, not live)
    with calls.bar(1200) as advance:
        clock.now += 60
        advance(100)
    assert bool(capsys.readouterr().err) == live


@pytest.mark.usefixtures("_embedders", "docs")
def test_a_sync_that_is_stopped_says_how_to_go_on(read, refuse, monkeypatch):
    monkeypatch.setenv("CRABPATH_EMBEDDINGS", "fake:16")

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(DeterministicFakeEmbedding, "embed_documents", stop)
        assert "run it again to finish it" in refuse("sync", "docs", code=130)
    assert read("sync", "docs")["added"] == 3
