"""The command line as a user runs it: output, JSON, exit codes."""

import json
import logging

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app

DEPLOY = (
    "# Deploying\n\nCheck CI first, then read the [manifest](manifest.md).\n\n"
    "## Rollback\n\nUndo.\n"
)
MANIFEST = "# Manifest\n\nThe manifest lists images.\n"


@pytest.fixture
def cli(tmp_path, monkeypatch):
    """Runs a command in a folder with two documents and a binary file."""
    docs = tmp_path / "docs"
    docs.mkdir()
    (docs / "deploy.md").write_text(DEPLOY)
    (docs / "manifest.md").write_text(MANIFEST)
    (docs / "image.bin").write_bytes(b"\x00\x01")
    (docs / ".hidden.md").write_text("# Secret\n\nNot to be read.\n")
    monkeypatch.chdir(tmp_path)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_files_without_text_are_counted(cli, tmp_path, caplog):
    """They are no documents; one warning names them."""
    (tmp_path / "docs" / "blank.md").write_text("\n")
    added = cli("add", "docs", "--json")
    assert (read(added)["documents"], read(added)["blank"]) == (2, 1)
    (line,) = [r.getMessage() for r in caplog.records if r.name.startswith("crabpath")]
    assert line == "1 of 3 documents have no text, left out: 'docs/blank.md'"
    said = " ".join(cli("add", "docs").stdout.split())
    assert said.endswith("3 unchanged, 1 without text left out")


def test_whole_files_are_replaced(cli, tmp_path):
    """What a file no longer says goes, what other files say stays."""
    cli("add", "docs")
    (tmp_path / "docs" / "deploy.md").write_text("# Deploying\n\nAsk Ann.\n")
    again = read(cli("add", "docs/deploy.md", "--json"))
    assert (again["removed"] + again["updated"], again["added"] + again["updated"]) == (2, 1)
    assert read(cli("info", "--json"))["nodes"] == 2


def test_an_add_that_is_stopped_says_what_is_in(cli, tmp_path, monkeypatch):
    """With the exit code of a stopped program; the same command goes on."""
    from crabpath_retrievers.ingest.pipeline import Ingest

    for n in range(40):
        (tmp_path / "docs" / f"page{n}.md").write_text(f"Page {n}.")
    publish, seen = Ingest.publish, []

    def stop_at_the_second(self, part):
        seen.append(part)
        if len(seen) == 2:
            raise KeyboardInterrupt
        publish(self, part)

    with monkeypatch.context() as patched:
        patched.setattr(Ingest, "publish", stop_at_the_second)
        stopped = cli("add", "docs")
    assert stopped.exit_code == 130
    line = stopped.stderr.splitlines()[-1]
    assert line == "Stopped: 16 of 43 new chunks are in; run it again to go on"
    again = read(cli("add", "docs", "--json"))
    assert (again["added"], again["unchanged"]) == (27, 16)


def test_add_query_explain_info_and_forget(cli):
    """A day with the command line, each step in JSON."""
    added = read(cli("add", "docs", "--json"))
    assert (added["documents"], added["added"], added["skipped"]) == (2, 3, ["docs/image.bin"])
    assert read(cli("add", "docs", "--json"))["unchanged"] == 3

    answer = read(cli("query", "which images are listed?", "-k", "1", "--json"))
    assert answer["documents"][0]["source"] == "docs/manifest.md"

    explanation = read(cli("explain", answer["turn_id"], "--json"))
    assert explanation["documents"][0]["contributions"]["similarity"] > 0

    facts = read(cli("info", "--json"))
    assert (facts["nodes"], facts["edges"]["link"], facts["turns"]) == (3, 1, 1)

    assert read(cli("forget", "--source", "docs/deploy.md", "--json"))["removed"] == 2
    assert read(cli("info", "--json"))["nodes"] == 1


def test_tables_for_people(cli):
    """Without --json the same commands print what a person reads."""
    assert "3 chunks added" in cli("add", "docs").output
    shown = cli("query", "how do I deploy?").output
    assert "Deploying" in shown
    turn = shown.strip().split()[-1]
    assert "similarity" in cli("explain", turn).output
    assert "sibling 2" in cli("info").output.replace("\n", " ")
    assert "2 chunks deleted" in cli("forget", "--source", "docs/deploy.md").output


def test_a_changed_file_is_updated(cli, tmp_path):
    """Only the section that changed is written again."""
    cli("add", "docs")
    (tmp_path / "docs" / "deploy.md").write_text(
        DEPLOY.replace("Undo.", "Run the rollback script.")
    )
    again = read(cli("add", "docs", "--json"))
    assert (again["added"], again["removed"], again["unchanged"]) == (1, 1, 2)


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (("query", "anything"), 2, "there is no memory"),
        (("add", "nowhere"), 2, "does not exist"),
        (("info", "--store", "mysql://host/db"), 1, "is not supported"),
        (("info", "--store", "postgresql://127.0.0.1:1/none", "--vectors", "v"), 1, "reached"),
    ],
)
def test_errors_are_one_sentence_and_an_exit_code(cli, arguments, code, sentence):
    """2 for unusable input, 1 for a store or environment problem; no traceback."""
    result = cli(*arguments)
    assert result.exit_code == code
    assert sentence in result.stderr.replace("\n", " ")
    assert "Traceback" not in result.stderr


def test_an_empty_query_and_an_unknown_turn_are_refused(cli):
    """Both are input errors once there is a memory."""
    cli("add", "docs")
    assert cli("query", "  ").exit_code == 2
    assert cli("explain", "nope").exit_code == 2
    assert cli("forget").exit_code == 2


def test_a_namespace_is_forgotten_without_its_documents(cli):
    """Turns and clock of the namespace go, the corpus stays."""
    cli("add", "docs")
    cli("query", "images", "--namespace", "alice")
    read(cli("forget", "--namespace", "alice", "--json"))
    facts = read(cli("info", "--json"))
    assert (facts["nodes"], facts["namespaces"], facts["turns"]) == (3, {}, 0)


HOSTILE = "\x1b]0;pwned\x07\x1b[2J\x9b31m\x7f\u202e\u2066\r"


OBEYED = set(HOSTILE) - set("]0;pwned[2J31m")


@pytest.fixture
def hostile(cli):
    """The turn of a question in a memory in which everything has a hostile name."""
    with CrabPath.open("memory", embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        named = {"title": f"T{HOSTILE}", "source": f"s{HOSTILE}"}
        memory.add_documents([Document(f"apple{HOSTILE}", id=f"d{HOSTILE}", metadata=named)])
        turn = memory.retrieve(f"apple{HOSTILE}", namespace=f"team{HOSTILE}").turn.id
        memory.namespaces.snapshot(f"team{HOSTILE}", f"snap{HOSTILE}")
        memory.namespaces.freeze(f"cold{HOSTILE}")
    return turn


def test_nothing_gives_orders_to_the_terminal(cli, hostile):
    """Titles, ids, names, questions and messages are shown, their control characters are not."""
    team = f"team{HOSTILE}"
    commands = [
        ("explain", hostile),
        ("explain", f"nothing{HOSTILE}"),
        ("info",),
        ("info", "-s", f"nowhere{HOSTILE}"),
        (
            "history",
            "list",
        ),
        ("doctor", "memory"),
        ("health", "memory", "-n", team),
        ("regions", "-n", team),
        ("history", "freeze", "-n", team),
        ("transfer", "import", f"nothing{HOSTILE}", "elsewhere"),
    ]
    for command in commands:
        assert not OBEYED & set(cli(*command).output), command
    assert "apple\ufffd]0;pwned\ufffd\ufffd[2J" in cli("explain", hostile).output


def test_json_for_a_terminal_is_escaped(cli, hostile):
    """It is read as it was written, and no control character stands in it."""
    shown = cli("explain", hostile, "--json")
    assert read(shown)["documents"][0]["title"] == f"T{HOSTILE}"
    assert not (OBEYED - {"\x7f"}) & set(shown.stdout)


def test_a_warning_gives_no_orders_either(cli, monkeypatch, capsys):
    """What the library logs while a command runs is printed as everything else is."""
    cli("info")
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logging.getLogger("crabpath_retrievers").warning("left out: %s", HOSTILE)
    assert "left out: \ufffd]0;pwned" in capsys.readouterr().err
