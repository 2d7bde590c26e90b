"""Ready means ready: the embedder has answered, the stores answer, and the server goes on."""

import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from starlette.testclient import TestClient

from crabpath_retrievers import CrabPath
from crabpath_server import create_app


class LoadingEmbedding(DeterministicFakeEmbedding):
    """Answers when it is loaded; it may fail to load."""

    size: int = 16
    loaded: Any
    failure: list[str] = []  # noqa: RUF012

    def embed_query(self, text):
        self.loaded.wait(60)
        if self.failure:
            raise RuntimeError(self.failure[0])
        return super().embed_query(text)


@pytest.fixture
def loaded():
    event = threading.Event()
    event.set()
    yield event
    event.set()


@pytest.fixture
def memory(tmp_path, loaded):
    with CrabPath.open(tmp_path / "memory", embeddings=LoadingEmbedding(loaded=loaded)) as opened:
        opened.add_documents([Document("The sky is blue.", id="sky")], progress=None)
        yield opened


def test_a_server_is_not_ready_until_its_embedder_has_answered(memory, loaded, until_ready):
    loaded.clear()
    client = TestClient(create_app(memory), base_url="http://127.0.0.1")
    for _ in range(2):
        answer = client.get("/ready")
        assert (answer.status_code, answer.json()["reason"]) == (503, "the embedder is loading")
    assert client.get("/health").status_code == 200
    loaded.set()
    assert until_ready(client).json()["ready"] is True


def test_an_embedder_that_fails_stays_visible_until_it_answers(memory, until_ready):
    memory.embedder.embeddings.failure.append("no such model")
    client = TestClient(create_app(memory), base_url="http://127.0.0.1")
    end = time.monotonic() + 20
    while "no such model" not in client.get("/ready").text and time.monotonic() < end:
        time.sleep(0.02)
    answer = client.get("/ready")
    assert answer.status_code == 503
    assert "the embedder does not answer" in answer.json()["reason"]
    memory.embedder.embeddings.failure.clear()
    assert until_ready(client).status_code == 200


PROGRAM = """
import socket, sys, time
from langchain_core.embeddings import DeterministicFakeEmbedding
from crabpath_retrievers import CrabPath
from crabpath_server import app
from crabpath_server.app import create_app, run_app

if len(sys.argv) > 2:
    app._SHUTDOWN_SECONDS = float(sys.argv[2])

class Slow(DeterministicFakeEmbedding):
    def embed_query(self, text):
        if "slow" in text:
            print("asked", flush=True)
            time.sleep(8 if "slower" in text else 2)
        return super().embed_query(text)

with CrabPath.open(sys.argv[1], embeddings=Slow(size=16)) as memory:
    listening = socket.create_server(("127.0.0.1", 0))
    print(listening.getsockname()[1], flush=True)
    run_app(create_app(memory), listening)
print("closed", flush=True)
"""


@pytest.fixture
def command(tmp_path) -> list[str]:
    """Starts the program over a memory of one document."""
    place = tmp_path / "memory"
    with CrabPath.open(place, embeddings=DeterministicFakeEmbedding(size=16)) as memory:
        memory.add_documents([Document("The sky is blue.", id="sky")], progress=None)
    return [sys.executable, "-c", PROGRAM, str(place)]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_server_that_ends_answers_what_has_come(command, until_ready):
    answers = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            place = "127.0.0.1", int(process.stdout.readline())
            url = f"http://127.0.0.1:{place[1]}"

            def ask():
                answers.append(httpx.post(f"{url}/v1/query", json={"text": "slow"}, timeout=30))

            with httpx.Client(base_url=url) as client, httpx.Client(base_url=url) as idle:
                assert until_ready(client).status_code == 200
                assert idle.get("/health").headers.get("connection") != "close"
                asking = threading.Thread(target=ask)
                asking.start()
                assert process.stdout.readline() == "asked\n"
                process.send_signal(signal.SIGTERM)
                end = time.monotonic() + 20
                while client.get("/ready").status_code == 200 and time.monotonic() < end:
                    time.sleep(0.02)
                ending = client.get("/ready")
                assert ending.json() == {"ready": False, "reason": "the server is ending"}
                assert ending.headers["connection"] == "close"
                for asked in (client, idle):  # a new connection, and an old one
                    answer = asked.post("/v1/query", json={"text": "sky"})
                    assert (answer.status_code, answer.headers["connection"]) == (200, "close")
                asking.join()
            assert [answer.status_code for answer in answers] == [200]
            assert process.stdout.read().endswith("closed\n")
            assert process.wait(20) == 0
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(place)
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="signals of POSIX")
def test_a_server_that_ends_gives_up_what_takes_too_long(command, until_ready):
    """Bodies that have not come, and an answer that is not there in time: without a traceback."""
    command.append("1")
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process, ExitStack() as stack:
        stack.callback(process.kill)
        place = "127.0.0.1", int(process.stdout.readline())
        client = stack.enter_context(httpx.Client(base_url=f"http://127.0.0.1:{place[1]}"))
        assert until_ready(client).status_code == 200
        half = [stack.enter_context(socket.create_connection(place)) for _ in range(20)]
        head = "POST /v1/query HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        for connection in half:
            connection.sendall(f'{head}Content-Length: 99\r\n\r\n{{"text": '.encode())
        asked = stack.enter_context(ThreadPoolExecutor(1)).submit(
            client.post, "/v1/query", json={"text": "slower"}, timeout=30
        )
        assert process.stdout.readline() == "asked\n"
        process.send_signal(signal.SIGTERM)
        begun = time.monotonic()
        for connection in half:
            connection.settimeout(20)
            assert connection.recv(1) == b""
        assert time.monotonic() - begun < 10
        assert asked.result().status_code == 503
        assert "the server ends" in asked.result().json()["detail"]
        assert process.wait(20) == 0
        assert "Traceback" not in process.stderr.read()
