"""The commands that take back what was learned, as a user runs them beside a server."""

import json

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Feedback
from crabpath_retrievers.cli import app


@pytest.fixture
def server(tmp_path):
    """A memory that stays open, so that its vectors are locked."""
    vectors = DeterministicFakeEmbedding(size=16)
    with CrabPath.open(tmp_path / "m", embeddings=vectors) as memory:
        memory.add_documents([Document(f"Fruit {node} is red.", id=node) for node in "abc"])
        yield memory


@pytest.fixture
def host(server, host_of):
    """Asks the server."""
    return host_of(server)


@pytest.fixture
def cli(tmp_path, server):
    """Runs a command on the store of the server."""
    return lambda *given: CliRunner().invoke(app, [*given, "--store", str(tmp_path / "m")])


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


def test_undo(cli, host, server):
    """By feedback id or by turn, and the server knows it at once."""
    turn = host.ask()
    server.record(Feedback(turn, 1.0, used=["a"], feedback_id="f"))
    receipt = read(cli("undo", "f", "--json"))
    assert receipt == {"feedback_id": "f", "status": "undone", "note": None}
    assert host.usage() == {}
    server.record(Feedback(turn, 1.0, used=["b"], feedback_id="g"))
    assert cli("undo", "--turn", turn).stdout == "undone\n"
    assert host.status("g") == "undone"


def test_undo_of_what_was_refused(cli, server):
    """Exit code 2 and the reason on the other channel."""
    server.record(Feedback("nope", 1.0, feedback_id="f"))
    result = cli("undo", "f")
    assert result.exit_code == 2
    assert "nothing was learned from it" in result.stderr.replace("\n", " ")


def test_snapshot_and_restore(cli, host, server):
    """From taking one to deleting it; the server answers with what is restored."""
    server.record(Feedback(host.ask(), 1.0, used=["a"]))
    taken = read(cli("history", "snapshot", "friday", "--json"))
    server.record(Feedback(host.ask(), 1.0, used=["b"]))
    (kept,) = read(cli("history", "list", "--json"))
    assert (kept["id"], kept["name"], kept["learned"]) == (taken["snapshot"], "friday", 1)
    assert "friday" in cli("history", "list").stdout
    assert read(cli("history", "restore", "friday", "--json"))["id"] == kept["id"]
    assert host.usage()["a"] == (1.0, 0.0)
    assert "b" in host.usage()
    assert read(cli("history", "delete", "friday", "--json"))["deleted"] == kept["id"]
    assert read(cli("history", "list", "--json")) == []


def test_a_restored_episode_is_read_until_the_server_has_indexed_it(cli, host, server):
    """No vector is needed for that."""
    server.record(Feedback(host.ask(), 1.0, used=["a"], feedback_id="f"))
    server.namespaces.snapshot(name="x")
    server.undo("f")
    cli("history", "restore", "x")
    clock = server.store.walk.get_clock("default")
    vector = server.embedder.query("Which fruit is red?")
    assert [near.episode.turns for near in server._services.episodes.near(vector, clock.key)] == [
        1.0
    ]


def test_freeze_and_unfreeze(cli, host, server):
    """The switch works beside the server."""
    assert read(cli("history", "freeze", "-n", "ada", "--json")) == {
        "namespace": "ada",
        "frozen": True,
    }
    turn = host.ask("ada")
    assert "is frozen" in server.record(Feedback(turn, 1.0)).note
    assert cli("history", "unfreeze", "-n", "ada").stdout == "ada learns again\n"
    assert server.record(Feedback(turn, 1.0)).status == "applied"
    assert cli("history", "freeze").stdout == "default learns nothing more\n"


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (("undo",), "exactly one of feedback_id and turn_id"),
        (("undo", "nope"), "no feedback 'nope'"),
        (("undo", "--turn", "nope"), "no turn 'nope'"),
        (("history", "snapshot", "-n", "nobody"), "'nobody' has neither asked nor learned"),
        (("history", "delete", "nope"), "no snapshot 'nope'"),
        (("history", "restore", "nope"), "no snapshot 'nope'"),
        (("history", "freeze", "-n", "n" * 5000), "namespace must have at most"),
    ],
)
def test_unusable_input(cli, given, sentence):
    """Exit code 2 and one sentence."""
    result = cli(*given)
    assert result.exit_code == 2
    assert sentence in result.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    "given",
    [
        ("undo", "f"),
        ("history", "snapshot"),
        ("history", "list"),
        ("history", "restore", "x"),
        ("history", "freeze"),
    ],
)
def test_commands_make_no_store(tmp_path, given):
    """Where there is no memory nothing is created."""
    result = CliRunner().invoke(app, [*given, "--store", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert not (tmp_path / "none").exists()
