"""``crabpath feedback`` and ``crabpath learn`` as a user runs them, beside a server."""

import json
import signal
import subprocess
import sys
import time

import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath, Feedback, Settings
from crabpath_retrievers.cli import app
from crabpath_retrievers.config import LearningSettings


@pytest.fixture
def server(tmp_path):
    """A memory that stays open, so that its vectors are locked; it learns nothing itself."""
    vectors = DeterministicFakeEmbedding(size=16)
    settings = Settings(learning=LearningSettings(apply="external"))
    with CrabPath.open(tmp_path / "m", embeddings=vectors, settings=settings) as memory:
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


def test_feedback_with_all_its_fields(cli, host, server):
    """It is kept as given and learned from beside the server."""
    turn = host.ask("ada")
    fields = [
        "--used",
        "a",
        "--used",
        "b",
        "--unused",
        "c",
        "--answer",
        "Both.",
        "--source",
        "self",
    ]
    more = ["--correction", "a alone", "--id", "f", "--namespace", "ada", "--json"]
    receipt = read(cli("feedback", turn, "--outcome", "1", *fields, *more))
    assert receipt == {"feedback_id": "f", "status": "applied", "note": None}
    assert host.usage("ada") == {"a": (0.6, 0.0), "b": (0.6, 0.0), "c": (0.0, 0.6)}
    assert server.store.learned.get_feedback("f").feedback == Feedback(
        turn,
        1.0,
        used=["a", "b"],
        unused=["c"],
        answer="Both.",
        correction="a alone",
        source="self",
        feedback_id="f",
        namespace="ada",
    )


def test_feedback_for_people(cli, host):
    """One word, or the reason on the other channel."""
    turn = host.ask()
    assert cli("feedback", turn, "--outcome", "-1").stdout == "applied\n"
    again = cli("feedback", turn, "--outcome", "1")
    assert again.exit_code == 2
    assert "was consumed by feedback" in again.stderr.replace("\n", " ")


def test_late_feedback(cli, host):
    """Without a turn the last ones of the namespace are meant."""
    host.ask("ada")
    receipt = read(cli("feedback", "--outcome", "1", "--namespace", "ada", "--json"))
    assert receipt["status"] == "applied"
    assert host.learned("ada") == 1


@pytest.mark.parametrize(
    ("given", "code", "sentence"),
    [
        (("feedback", "nope", "--outcome", "1"), 2, "no turn 'nope'"),
        (("feedback", "nope", "--outcome", "nan"), 2, "outcome must be a number"),
        (("feedback", "nope", "--outcome", "2"), 2, "outcome must be a number"),
        (("feedback", "nope"), 2, "--outcome"),
        (("feedback", "nope", "--outcome", "1", "--source", "god"), 2, "unknown source"),
        (("learn", "--poll", "0"), 2, "--poll must be above 0"),
    ],
)
def test_unusable_input(cli, given, code, sentence):
    """Exit code 2 and one sentence."""
    result = cli(*given)
    assert result.exit_code == code
    assert sentence in result.stderr.replace("\n", " ")


@pytest.mark.parametrize("given", [("feedback", "t", "--outcome", "1"), ("learn",)])
def test_commands_make_no_store(tmp_path, given):
    """Where there is no memory nothing is created."""
    result = CliRunner().invoke(app, [*given, "--store", str(tmp_path / "none")])
    assert result.exit_code == 2
    assert not (tmp_path / "none").exists()


def test_a_store_that_cannot_be_reached(tmp_path):
    """Exit code 1."""
    result = CliRunner().invoke(app, ["learn", "--store", "postgresql://127.0.0.1:1/none"])
    assert result.exit_code == 1


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
def test_a_worker_learns_beside_its_server_and_ends_when_asked(tmp_path, host, server, number):
    """What comes while it runs is applied; a signal ends it with its figures and code 0."""
    command = [sys.executable, "-m", "crabpath_retrievers.cli", "learn", "--worker", "--json"]
    process = subprocess.Popen(
        [*command, "--poll", "0.05", "--store", str(tmp_path / "m")],
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
