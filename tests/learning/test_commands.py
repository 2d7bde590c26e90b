"""Commands that teach and take back, as a user runs them beside a server that stays open."""

import json
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from crabpath_retrievers import Feedback
from crabpath_retrievers.cli import app

QUESTION = "Which fruit is red?"

pytestmark = pytest.mark.sqlite  # the commands are given the directory


@pytest.fixture
def server(open_memory, request):
    """Learns at once, or leaves that to the commands."""
    with open_memory(apply=getattr(request, "param", "inline")) as memory:
        yield memory


learning_nothing = pytest.mark.parametrize("server", ["external"], indirect=True)


@pytest.fixture
def host(server, host_of):
    """Asks the server."""
    return host_of(server)


@pytest.fixture
def cli(tmp_path, server):
    """Runs a command on the store of the server."""
    return lambda *given: CliRunner().invoke(app, [*given, "--store", str(tmp_path / "memory")])


NO_REASON = {"reason": None, "repeated": False, "turn_id": None}


def read(result):
    """The JSON that a command printed."""
    assert result.exit_code == 0, result.stderr
    return json.loads(result.stdout)


@learning_nothing
def test_feedback_with_all_its_fields(cli, host, server):
    """It is kept as given and learned from beside the server."""
    turn = host.ask("ada")
    fields = "--used a --used b --unused c --answer Both. --source self --id f --namespace ada"
    options = [*fields.split(), "--correction", "a alone", "--json"]
    receipt = read(cli("feedback", turn, "--outcome", "1", *options))
    assert receipt == {
        "feedback_id": "f",
        "status": "applied",
        "note": None,
        **NO_REASON,
        "turn_id": turn,
    }
    assert host.usage("ada") == {"a": (0.6, 0.0), "b": (0.6, 0.0), "c": (0.0, 0.6)}
    kept = server.store.learned.get_feedback("f").feedback
    said = {"used": ["a", "b"], "unused": ["c"], "answer": "Both.", "correction": "a alone"}
    named = {"source": "self", "feedback_id": "f", "namespace": "ada"}
    assert kept == Feedback(turn, 1.0, **said, **named)
    # Without a turn the last ones of the namespace are meant.
    host.ask("bob")
    server.store.flush()  # processes that start later find it written
    for unusable in ("fine", "2", "nan"):
        assert cli("feedback", turn, "--outcome", unusable).exit_code == 2
    late = read(cli("feedback", "--outcome", "up", "--namespace", "bob", "--json"))
    assert (late["status"], host.learned("bob")) == ("applied", 1)


@pytest.mark.parametrize("known", [True, False], ids=["its turn", "the last turns"])
@learning_nothing
def test_feedback_names_what_was_not_returned(cli, host, server, known):
    shown = server.retrieve(QUESTION, k=1)
    server.store.flush()  # processes that start later find it written
    turn, (wrong, *_, right) = shown.turn.id, host.found(record=False)
    about = [turn] if known else ["--namespace", "default"]
    said = ["--relevant", right, "--irrelevant", wrong, "--json"]
    receipt = read(cli("feedback", *about, "--outcome", "-1", *said))
    assert (receipt["status"], receipt["note"]) == ("applied", None)
    assert host.found(record=False)[0] == right


@pytest.mark.parametrize(
    ("command", "sentence"),
    [
        ("feedback nope --outcome 1", "no turn 'nope'"),
        ("feedback nope --outcome nan", "outcome must be a number"),
        ("feedback nope --outcome 1 --source god", "unknown source"),
        ("learn --poll 0", "--poll must be above 0"),
        ("undo", "give a feedback id, --turn, or --user, --source and --token"),
        ("undo nope", "no feedback 'nope'"),
        ("undo f --user eve", "--user"),
        ("history snapshot -n nobody", "'nobody' has neither asked nor learned"),
        ("history delete nope", "no snapshot 'nope'"),
        (f"history freeze -n {'n' * 5000}", "namespace must have at most"),
        ("undo refused", "nothing was learned from it"),
    ],
)
@learning_nothing
def test_unusable_input(cli, server, command, sentence):
    """Exit code 2 and one sentence, on the channel for errors."""
    if command == "undo refused":
        assert cli("feedback", "nope", "--outcome", "1", "--id", "refused").exit_code == 2
    result = cli(*command.split())
    assert result.exit_code == 2
    assert sentence in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("command", ["feedback t --outcome 1", "learn", "undo f", "history list"])
def test_commands_make_no_store(tmp_path, command):
    result = CliRunner().invoke(app, [*command.split(), "--store", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert not (tmp_path / "none").exists()
    away = CliRunner().invoke(app, [*command.split(), "--store", "postgresql://127.0.0.1:1/none"])
    assert away.exit_code == 1


@learning_nothing
def test_learn_applies_what_waits(cli, host, server):
    """It tells how much it applied, refused and left."""
    for _ in range(3):
        server.record(Feedback(host.ask(), 1.0, used=["a"]))
    server.record(Feedback("nope", 1.0))
    assert read(cli("learn", "--json")) == {"applied": 3, "refused": 1, "failed": 0, "waiting": 0}
    assert cli("learn").stdout == "0 applied, 0 refused, 0 waiting\n"
    assert host.usage()["a"] == (3.0, 0.0)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@learning_nothing
def test_a_worker_learns_beside_its_server_and_ends_when_asked(tmp_path, host, server, number):
    """What comes while it runs is applied; a signal ends it with its figures and code 0."""
    command = [sys.executable, "-m", "crabpath_retrievers", "learn", "--worker", "--json"]
    process = subprocess.Popen(
        [*command, "--poll", "0.05", "--store", str(tmp_path / "memory")],
        stdout=subprocess.PIPE,
        text=True,
    )
    for count in (1, 2):
        server.record(Feedback(host.ask(), 1.0, used=["a"]))
        while host.learned() < count:
            assert process.poll() is None
            time.sleep(0.01)
    process.send_signal(number)
    printed, _ = process.communicate(timeout=20)
    assert process.returncode == 0
    assert json.loads(printed) == {"applied": 2, "refused": 0, "failed": 0, "waiting": 0}


def test_undo(cli, host, server):
    """By feedback id, by turn or by user, and the server knows it at once."""
    turn = host.ask()
    server.record(Feedback(turn, 1.0, used=["a"], feedback_id="f"))
    receipt = read(cli("undo", "f", "--json"))
    assert receipt == {"feedback_id": "f", "status": "undone", "note": None, **NO_REASON}
    assert host.usage() == {}
    server.record(Feedback(turn, 1.0, used=["b"], feedback_id="g"))
    assert cli("undo", "--turn", turn).stdout == "undone\n"
    assert host.status("g") == "undone"
    assert cli("feedback", turn, "--outcome", "1", "--user", "eve").exit_code == 0
    assert [one["status"] for one in read(cli("undo", "--user", "eve", "--json"))] == ["undone"]
    assert "0 undone" in cli("undo", "--user", "eve").stdout


def test_history(cli, host, server):
    """A snapshot from taking it to deleting it, and the switch, beside the server."""
    server.record(Feedback(host.ask(), 1.0, used=["a"]))
    made = read(cli("history", "snapshot", "friday", "--json"))
    server.record(Feedback(host.ask(), 1.0, used=["b"]))
    (kept,) = read(cli("history", "list", "--json"))
    assert (kept["id"], kept["name"], kept["learned"]) == (made["snapshot"], "friday", 1)
    assert "friday" in cli("history", "list").stdout
    assert read(cli("history", "restore", "friday", "--json"))["id"] == kept["id"]
    assert host.usage() == {"a": (1.0, 0.0), "b": (0.0, 1.0), "c": (0.0, 1.0)}
    assert read(cli("history", "delete", "friday", "--json"))["deleted"] == kept["id"]
    frozen = read(cli("history", "freeze", "-n", "ada", "--json"))
    assert frozen == {"namespace": "ada", "frozen": True}
    turn = host.ask("ada")
    assert "is frozen" in server.record(Feedback(turn, 1.0)).note
    assert cli("history", "unfreeze", "-n", "ada").stdout == "ada learns again\n"
    assert server.record(Feedback(turn, 1.0)).status == "applied"
    assert cli("history", "freeze").stdout == "default learns nothing more\n"
