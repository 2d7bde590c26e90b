"""``crabpath serve`` and ``crabpath token``, as a user starts them."""

import errno
import json
import re
import signal
import socket
import stat
import subprocess
import sys
import threading

import httpx
import pytest
import sqlalchemy as sa
from filelock import FileLock
from langchain_core.documents import Document
from typer.testing import CliRunner

from crabpath_retrievers import CrabPath
from crabpath_retrievers.cli import app
from crabpath_retrievers.errors import TokenError
from crabpath_server import Access

COMMAND = [sys.executable, "-m", "crabpath_retrievers", "serve"]
# A question in the shell, with an embedder that needs no model.
QUESTION = """
import langchain.embeddings
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers.cli import app

langchain.embeddings.init_embeddings = lambda name: DeterministicFakeEmbedding(size=16)
app(["query", "sky", "--embeddings", "fake:16"])
"""


@pytest.fixture
def cli(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CRABPATH_TOKENS", raising=False)
    return lambda *arguments: CliRunner().invoke(app, list(arguments))


@pytest.fixture
def start(tmp_path):
    """Starts ``crabpath serve`` and waits for its address; what is left of it is killed."""
    processes = []

    def begin(*arguments, port=0, on_line=None, **environment):
        process = subprocess.Popen(
            [*COMMAND, *arguments, "--port", str(port)],
            cwd=tmp_path,
            env=environment or None,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        late = threading.Timer(180, process.kill)
        late.start()
        said = ""
        while not (found := re.search(r"http://\S+", said)):
            line = process.stderr.readline()
            assert line, f"it ended: {said}"
            said += line
            if on_line is not None:
                on_line(line)
        late.cancel()
        return process, found[0], said

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.slow
def test_a_server_with_tokens_from_start_to_end(cli, start, until_ready, tmp_path):
    (tmp_path / "sky.md").write_text("# Sky\n\nThe sky is blue.", encoding="utf-8")
    assert cli("add", "sky.md").exit_code == 0
    made = cli("token", "create", "phone", "--file", "t.json", "-n", "ann", "--json")
    token = json.loads(made.stdout)["secret"]
    process, url, said = start("memory", "--tokens", "t.json", "--host", "127.0.0.1")
    assert "with a token" in said
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {token}"}) as client:
        assert client.get("/v1/session").json()["namespace"] == "ann"
        assert client.get("/v1/sources").json()["sources"]["sky.md"] == 1
        assert until_ready(client).status_code == 200
        client.headers.pop("Authorization")
        assert client.get("/v1/session").status_code == 401
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)


@pytest.mark.slow
def test_a_server_without_tokens_says_whom_it_serves(memory, start):
    memory.close()
    process, url, said = start("memory")
    assert "this machine" in said
    assert httpx.get(f"{url}/v1/session").json()["namespaces"] == ["*"]
    process.send_signal(signal.SIGINT)
    assert process.wait(30) in (0, -signal.SIGINT, 130)


@pytest.mark.slow
def test_a_server_starts_among_questions(memory, start, tmp_path):
    """Neither it nor they are refused, whoever comes first."""
    memory.close()
    asked = [sys.executable, "-c", QUESTION]
    questions = [
        subprocess.Popen(asked, cwd=tmp_path, stderr=subprocess.PIPE, text=True) for _ in range(10)
    ]
    process, url, _ = start("memory")
    assert [(q.communicate(timeout=180)[1], q.returncode) for q in questions] == [("", 0)] * 10
    assert httpx.get(f"{url}/v1/session").status_code == 200
    process.send_signal(signal.SIGTERM)
    process.wait(30)


@pytest.mark.slow
def test_a_server_waits_for_a_process_that_is_nearly_done(memory, start, tmp_path):
    """Until it has the memory it takes no connection: a probe would see a server that is silent."""
    memory.close()
    lock = FileLock(tmp_path / "memory" / "vectors" / "crabpath.lock", thread_local=False)
    lock.acquire()
    with socket.create_server(("127.0.0.1", 0)) as free:
        place = free.getsockname()
    tried = []

    def see(line):
        if "waiting" in line:
            with socket.socket() as probe:
                tried.append(probe.connect_ex(place))
            lock.release()

    _, url, said = start("memory", port=place[1], on_line=see)
    assert "waiting for it up to 10 s" in " ".join(said.split())
    assert tried == [errno.ECONNREFUSED]
    assert httpx.get(f"{url}/v1/session").status_code == 200


@pytest.mark.slow
def test_a_server_says_no_password(postgres_url, start, until_ready, tmp_path):
    url = sa.make_url(postgres_url)
    url = url.set(password=url.password or "hunter2")
    place, vectors = url.render_as_string(hide_password=False), str(tmp_path / "vectors")
    with CrabPath.open(place, vectors=vectors) as memory:
        memory.add_documents([Document("The sky is blue.", id="sky")])
    process, address, said = start(place, "--vectors", vectors)
    assert str(url.password) not in said
    with httpx.Client(base_url=address) as client:
        assert until_ready(client).status_code == 200
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) in (0, -signal.SIGTERM)


def test_what_cannot_be_served_is_said_in_a_sentence(memory, refuse, tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert "--port" in refuse("serve", "memory", "--port", port, code=1)
    for host in ("0.0.0.0", "::", "192.0.2.1", "memory.example"):  # noqa: S104  refused
        assert "crabpath token" in refuse("serve", "memory", "--host", host)
    assert "no memory at" in refuse("serve", "nothing", "--port", "0")
    (tmp_path / "t.json").write_text("[]")
    assert "chmod 600" in refuse("serve", "memory", "--tokens", "t.json", code=1)


def test_what_an_issuer_needs_is_said(refuse):
    """Both addresses, and nobody on the way may change them."""
    issuer, audience = "--oauth-issuer", "--oauth-audience"
    assert "give both" in refuse("serve", "memory", issuer, "https://auth.example")
    assert "give both" in refuse("serve", "memory", audience, "https://memory.example/mcp")
    both = (issuer, "http://auth.example", audience, "https://memory.example/mcp")
    assert "https://" in refuse("serve", "memory", *both)


def test_tokens_of_the_environment_that_cannot_be_used(refuse, monkeypatch):
    monkeypatch.setenv("CRABPATH_TOKENS", "[{]")
    assert "CRABPATH_TOKENS cannot be used" in refuse("serve", "memory", code=1)


def test_a_token_is_printed_once_and_grants_what_was_said(cli, tmp_path):
    options = ("--namespace", "ann", "--namespace", "team-*", "--expires", "2999-01-01")
    more = ("--user", "ann", "--requests", "60", "--feedbacks", "5")
    made = cli("token", "create", "Ann's phone", "--file", "t.json", *options, *more)
    grant = Access.from_file(tmp_path / "t.json").authorise(made.stdout.strip())
    assert grant.namespaces == ("ann", "team-*")
    assert grant.rights == {"read", "feedback"}
    assert (grant.user, grant.requests_per_minute, grant.feedbacks_per_hour) == ("ann", 60, 5)
    (entry,) = json.loads((tmp_path / "t.json").read_text())
    assert made.stdout.strip() not in str(entry)
    assert entry["expires"].startswith(("2998-12-31", "2999-01-01"))


def test_tokens_are_listed_rotated_and_revoked(cli, refuse, tmp_path):
    """By their ids; a rotated one keeps all but its secret."""
    file = ("--file", "t.json")
    phone, desk = (
        json.loads(cli("token", "create", name, *file, "-n", "ann", "--json").stdout)
        for name in ("phone", "desk")
    )
    listed = cli("token", "list", *file).stdout
    assert all(text in listed for text in (phone["id"], "phone", desk["id"], "desk", "feedback"))
    assert phone["secret"] not in listed
    data = json.loads(cli("token", "list", *file, "--json").stdout)
    assert [(one["id"], one["name"]) for one in data] == [
        (phone["id"], "phone"),
        (desk["id"], "desk"),
    ]
    assert "sha256" not in data[0]
    secret = cli("token", "rotate", phone["id"], *file).stdout.strip()
    access = Access.from_file(tmp_path / "t.json")
    assert access.authorise(secret).token == phone["id"]
    with pytest.raises(TokenError):
        access.authorise(phone["secret"])
    said = cli("token", "revoke", desk["id"], *file).stdout
    assert f"crabpath undo --token {desk['id']}" in " ".join(said.split())
    with pytest.raises(TokenError):
        Access.from_file(tmp_path / "t.json").authorise(desk["secret"])
    assert stat.S_IMODE((tmp_path / "t.json").stat().st_mode) == 0o600
    for command in ("revoke", "rotate"):
        assert "token list shows" in refuse("token", command, desk["id"], *file, code=2)
    assert "cannot be read" in refuse("token", "list", "--file", "nothing.json", code=1)


def test_tokens_that_would_be_none(refuse):
    base = ("token", "create", "phone", "--file", "t.json", "-n", "ann")
    assert "rights" in refuse(*base, "--rights", "everything")
    assert "is in the past" in refuse(*base, "--expires", "2020-01-01")
    assert "--expires must be" in refuse(*base, "--expires", "soon")
    assert "namespace must" in refuse("token", "create", "x", "--file", "t.json", "-n", " ")
