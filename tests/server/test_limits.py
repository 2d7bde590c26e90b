"""Clients that are hostile, broken or slow, against a real server."""

import asyncio
import json
import re
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from served import RIGHTS

from crabpath_retrievers import CrabPath
from crabpath_server import Access, Limits, add_token, create_app

JSON = {"Content-Type": "application/json"}


class SlowEmbedding(DeterministicFakeEmbedding):
    """Answers questions that contain "slow" when an event is set."""

    size: int = 16
    go: Any
    asked: Any

    def embed_query(self, text):
        if "slow" in text:
            self.asked.release()
            self.go.wait(20)
        return super().embed_query(text)

    def embed_documents(self, texts):
        return [self.embed_query(text) for text in texts]


@pytest.fixture
def gate():
    event = threading.Event()
    yield event
    event.set()


@pytest.fixture
def asked():
    """Counts the slow questions that have come to the embedder."""
    return threading.Semaphore(0)


@pytest.fixture
def slow_memory(tmp_path, gate, asked):
    embeddings = SlowEmbedding(go=gate, asked=asked)
    with CrabPath.open(tmp_path / "slow", embeddings=embeddings) as opened:
        opened.add_documents([Document("The sky is blue.", id="sky")])
        yield opened


def exchange(url, head, body=b"", seconds=10.0):
    """What a server sends back to some bytes until it closes the connection."""
    place = urlsplit(url)
    with socket.create_connection((place.hostname, place.port), timeout=seconds) as opened:
        opened.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
        return b"".join(iter(lambda: opened.recv(65536), b"")).decode()


def message(response):
    return response.json()["detail"]


def test_a_large_body_is_refused_before_it_is_read(memory, serve):
    url = serve(create_app(memory))
    head = "POST /v1/query HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    answer = exchange(url, f"{head}Content-Length: 100000000")
    assert answer.startswith("HTTP/1.1 413")
    assert "8,388,608 bytes" in answer


def test_a_large_body_without_a_length_is_refused_on_its_way(memory, serve):
    sent = 0

    def parts():
        nonlocal sent
        while sent < 100_000_000:
            sent += 65536
            yield b" " * 65536

    url = serve(create_app(memory, limits=Limits(body_bytes=1 << 20)))
    try:
        response = httpx.post(f"{url}/v1/query", content=parts(), headers=JSON)
    except httpx.TransportError:  # closed while it was still sending
        pass
    else:
        assert response.status_code == 413
    assert sent < 50_000_000
    assert httpx.get(f"{url}/health").status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("", "no JSON"),
        ("{", "no JSON"),
        ('{"text": "sky", "min_score": NaN}', "no JSON"),
        ('{"text": "sky", "min_score": Infinity}', "no JSON"),
        ('{"text": "sky", "min_score": 1e999}', "no JSON|finite|number"),
        ('{"text": "\\ud800"}', "no JSON"),
        ("[" * 100_000, "no JSON"),
        ('{"text": "sky", "filter": ' + '{"a":' * 5000 + "1" + "}" * 5001, "no JSON"),
        ("[1]", "JSON object"),
        ("null", "JSON object"),
        ('{"text": 1}', "^text: input should be a valid string"),
        ('{"text": "sky", "k": 0}', "^k must be"),
        ('{"text": "sky", "k": true}', "^k: input should be a valid integer"),
        ('{"text": "sky", "k": 1001}', "^k: input should be less"),
        ('{"text": "%s"}' % ("x" * 50_001), "^text: string should have at most"),
        ('{"text": "sky", "seed_ids": [%s"x"]}' % ('"x",' * 10_000), "^seed_ids: list should"),
        ('{"text": "sky", "k": 1' + "0" * 4000 + "}", "k"),
        ('{"text": "sky", "explore": -1}', "explore must"),
        ('{"text": "sky", "other": 1}', "^unknown arguments other: use text"),
        ('{"text": "\\u0000 \\n"}', "empty"),
        ('{"text": "sky", "task_type": ""}', "task_type must"),
        ('{"text": "sky", "seed_ids": "sky"}', "^seed_ids: input should be a valid list"),
        ('{"text": "sky", "namespace": "bob"}', "^the token says the namespace"),
        ('{"text": "sky", "vector": [1]}', "^unknown arguments vector: use"),
    ],
)
def test_bodies_that_cannot_be_used(client, body, why):
    response = client.post("/v1/query", content=body.encode("utf-8", "surrogatepass"), headers=JSON)
    assert response.status_code == 400, response.text
    assert len(message(response)) < 1000
    assert re.search(why, message(response)), message(response)


def test_bodies_of_other_kinds(client):
    for headers in ({}, {"Content-Type": "text/plain"}, {"Content-Type": "application/xml"}):
        response = client.post("/v1/query", content=b'{"text": "sky"}', headers=headers)
        assert response.status_code == 415, headers
    kind = {"Content-Type": "application/json; charset=utf-8"}
    assert client.post("/v1/query", content=b'{"text": "sky"}', headers=kind).status_code == 200
    assert client.post("/v1/query", content=b'\xff\xfe{"', headers=JSON).status_code == 400


def test_odd_texts_are_data(client):
    for text in (
        "\x1b[31m\x07",
        "<script>",
        "' OR 1=1 --",
        "NEAR(",
        '"',
        "*",
        "\u202e",
        "a" * 50_000,
    ):
        given = {"documents": [{"id": f"odd {text[:99]}", "text": text, "metadata": {text: text}}]}
        assert client.post("/v1/documents", json=given).status_code == 200, text[:9]
        assert client.post("/v1/query", json={"text": text, "k": 1000}).status_code == 200
        assert client.get("/v1/documents", params={"q": text}).status_code == 200
        assert (
            client.post("/v1/teach", json={"text": text[:2000], "query": text[:99]}).status_code
            == 200
        )


@pytest.mark.parametrize(
    ("text", "title"),
    [("_" + "a" * 60_000, ""), ("é_" + "a" * 60_000, ""), ("x", "x" + " " * 60_000 + "y")],
)
def test_long_words_and_titles_do_not_hold_the_server_up(client, text, title):
    page = {"id": "long", "text": text, "metadata": {"title": title}}
    begun = time.monotonic()
    response = client.post("/v1/documents", json={"documents": [page], "split": False})
    assert response.status_code == 200
    assert time.monotonic() - begun < 5  # matching in quadratic time takes longer


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "localhost.evil.example"},
        {"Host": "127.0.0.1.nip.io:80"},
        {"Host": "evil.example@localhost:99999x"},
        {"Host": ""},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Origin": "http://[::"},
    ],
)
def test_without_tokens_other_hosts_and_pages_of_others_are_refused(client, headers):
    for path in ("/v1/session", "/v1/documents", "/openapi.json", "/health", "/nothing"):
        assert client.get(path, headers=headers).status_code == 403, path


def test_without_tokens_its_own_page_and_other_machines(memory):
    app = create_app(memory)

    async def ask(client, **headers):
        transport = httpx.ASGITransport(app, client=(client, 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost:80") as sent:
            return (await sent.get("/v1/session", headers=headers)).status_code

    assert asyncio.run(ask("127.0.0.1", Origin="http://localhost", Host="localhost")) == 200
    assert asyncio.run(ask("::1", Host="[::1]:8765")) == 200
    assert asyncio.run(ask("192.0.2.1")) == 403
    assert asyncio.run(ask("::ffff:192.0.2.1")) == 403


def test_with_tokens_any_host_is_served(as_bearer):
    ann = as_bearer("ann")
    headers = {"Host": "memory.example", "Origin": "http://elsewhere.example"}
    assert ann.get("/v1/session", headers=headers).status_code == 200


def test_a_question_that_takes_too_long(slow_memory, serve, gate):
    url = serve(create_app(slow_memory, limits=Limits(answer_seconds=0.3)))
    response = httpx.post(f"{url}/v1/query", json={"text": "slow"})
    assert (response.status_code, "0.3 s" in message(response)) == (504, True)
    response = httpx.post(
        f"{url}/v1/query", json={"text": "slow"}, headers={"Accept": "text/event-stream"}
    )
    assert (response.status_code, "0.3 s" in message(response)) == (504, True)
    search = {"name": "search", "arguments": {"query": "slow"}}
    late = httpx.post(
        f"{url}/mcp",
        json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": search},
        headers={"Accept": "application/json, text/event-stream"},
    )
    assert (late.status_code, "0.3 s" in message(late)) == (504, True)
    assert late.json()["title"] == "Not available"
    gate.set()


def test_ingests_leave_threads_to_questions(slow_memory, serve, gate, asked):
    url = serve(create_app(slow_memory))
    answers = []

    def add(number):
        page = {"id": str(number), "text": f"slow {number}"}
        response = httpx.post(f"{url}/v1/documents", json={"documents": [page]}, timeout=60)
        answers.append(response.status_code)

    adding = [threading.Thread(target=add, args=(number,)) for number in range(40)]
    for thread in adding:
        thread.start()
    assert asked.acquire(timeout=20)
    time.sleep(0.5)  # until all that can begin have begun
    assert httpx.post(f"{url}/v1/query", json={"text": "sky"}, timeout=15).status_code == 200
    gate.set()
    for thread in adding:
        thread.join()
    assert answers == [200] * 40


def test_too_many_questions_at_once(slow_memory, serve, gate, asked):
    url = serve(create_app(slow_memory, limits=Limits(requests=2)))
    answers = []

    def ask():
        answers.append(httpx.post(f"{url}/v1/query", json={"text": "slow"}, timeout=30).status_code)

    waiting = [threading.Thread(target=ask) for _ in range(2)]
    for thread in waiting:
        thread.start()
    assert asked.acquire(timeout=20)
    assert asked.acquire(timeout=20)
    busy = httpx.get(f"{url}/v1/session")
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/ready").status_code in (200, 503)
    assert busy.status_code == 503
    assert busy.headers["retry-after"] == "1"
    gate.set()
    for thread in waiting:
        thread.join()
    assert answers == [200, 200]
    assert httpx.get(f"{url}/health").status_code == 200


def test_a_body_whose_end_is_not_certain_ends_the_connection(memory, serve):
    url = serve(create_app(memory))
    head = "POST /v1/query HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    smuggled = b"0\r\n\r\nGET /v1/sources HTTP/1.1\r\nHost: localhost\r\n\r\n"
    answer = exchange(url, f"{head}Content-Length: 4\nTransfer-Encoding: chunked", smuggled)
    assert answer.startswith("HTTP/1.1 400")
    assert answer.count("HTTP/1.1") == 1


@pytest.fixture
def hold_bodies():
    """Opens connections on which one byte of a body has come."""
    with ExitStack() as stack:

        def hold(url, number, token=None, length=50):
            place, bearer = urlsplit(url), f"Authorization: Bearer {token}\r\n" if token else ""
            head = (
                f"POST /v1/query HTTP/1.1\r\nHost: localhost\r\n{bearer}"
                f"Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n"
            )
            held = []
            for _ in range(number):
                opened = socket.create_connection((place.hostname, place.port), timeout=20)
                held.append(stack.enter_context(opened))
                opened.sendall(head.encode() + b"{")
            return held

        yield hold


@pytest.mark.parametrize("length", [50, 8 << 20])
def test_bodies_that_do_not_come_take_nothing_from_others(
    memory, token_file, serve, hold_bodies, length
):
    tokens = {name: add_token(token_file, [name], ["read"]) for name in ("ann", "bob")}
    url = serve(create_app(memory, access=Access.from_file(token_file)))
    held = hold_bodies(url, 300, tokens["ann"], length)
    refused = 0
    for opened in held[-40:]:  # more than a half of the room is not for one token
        refused += b" 503 " in opened.recv(100)
    assert refused == 40
    bob = {"Authorization": f"Bearer {tokens['bob']}"}
    assert httpx.get(f"{url}/health").status_code == 200
    assert httpx.get(f"{url}/v1/session", headers=bob).status_code == 200
    for _ in range(3):
        answer = httpx.post(f"{url}/v1/query", json={"text": "sky"}, headers=bob, timeout=20)
        assert answer.status_code == 200


def test_a_token_leaves_half_of_the_places_to_others(slow_memory, token_file, serve, gate, asked):
    tokens = {name: add_token(token_file, [name], ["read"]) for name in ("ann", "bob")}
    access = Access.from_file(token_file)
    url = serve(create_app(slow_memory, access=access, limits=Limits(requests=4)))
    answers = []

    def ask():
        headers = {"Authorization": f"Bearer {tokens['ann']}"}
        response = httpx.post(f"{url}/v1/query", json={"text": "slow"}, headers=headers, timeout=30)
        answers.append(response.status_code)

    waiting = [threading.Thread(target=ask) for _ in range(6)]
    for thread in waiting:
        thread.start()
    assert asked.acquire(timeout=20)
    assert asked.acquire(timeout=20)
    bob = {"Authorization": f"Bearer {tokens['bob']}"}
    answer = httpx.post(f"{url}/v1/query", json={"text": "sky"}, headers=bob, timeout=20)
    assert answer.status_code == 200
    deadline = time.monotonic() + 20
    while len(answers) < 4 and time.monotonic() < deadline:  # all six have asked
        time.sleep(0.02)
    gate.set()
    for thread in waiting:
        thread.join()
    assert sorted(answers) == [200, 200, 503, 503, 503, 503]


def test_slow_work_of_a_token_waits_for_its_own(slow_memory, token_file, serve, gate, asked):
    ann, bob = (add_token(token_file, [name], RIGHTS) for name in ("ann", "bob"))
    url = serve(create_app(slow_memory, access=Access.from_file(token_file)))

    def send(token, path, body):
        headers = {"Authorization": f"Bearer {token}"}
        return httpx.post(f"{url}{path}", json=body, headers=headers, timeout=30).status_code

    def add(number):
        return send(ann, "/v1/documents", {"documents": [{"id": str(number), "text": "slow"}]})

    with ThreadPoolExecutor(8) as pool:
        adding = [pool.submit(add, number) for number in range(8)]
        assert asked.acquire(timeout=20)
        assert send(bob, "/v1/query", {"text": "sky"}) == 200
        assert send(bob, "/v1/snapshots", {"name": "mine"}) == 200  # beside it
        assert not any(each.done() for each in adding)
        gate.set()
        assert [each.result() for each in adding] == [200] * 8


@pytest.mark.parametrize("path", ["/v1/query", "/mcp"])
def test_a_body_that_does_not_come(memory, serve, path):
    url = serve(create_app(memory, limits=Limits(transfer_seconds=0.3)))
    head = f"POST {path} HTTP/1.1\nHost: localhost\nContent-Type: application/json\n"
    answer = exchange(url, f"{head}Content-Length: 50", b'{"text":')
    assert answer.startswith("HTTP/1.1 408")
    assert "0.3 s" in answer


@pytest.mark.slow
def test_a_client_that_stops_reading_is_dropped_and_keeps_nobody_waiting(memory, serve, caplog):
    large = [Document(f"sky {n} " + "x" * 1_500_000, id=f"large{n}") for n in range(8)]
    memory.add_documents(large, split=False)
    url = serve(create_app(memory, limits=Limits(transfer_seconds=0.5, requests=1)))
    place = urlsplit(url)
    body = json.dumps({"text": "sky", "k": 20}).encode()
    head = (
        "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.socket() as deaf:
        deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        deaf.connect((place.hostname, place.port))
        deaf.sendall(head.encode() + body)
        deadline = time.monotonic() + 20
        while "does not read" not in caplog.text and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "does not read" in caplog.text
        assert httpx.get(f"{url}/health").status_code == 200


def test_clients_that_leave_early_leave_nothing_behind(slow_memory, serve, gate):
    url = serve(create_app(slow_memory, limits=Limits(requests=3)))
    for accept in ("application/json", "text/event-stream"):
        for _ in range(3):
            with pytest.raises(httpx.TimeoutException):
                httpx.post(
                    f"{url}/v1/query",
                    json={"text": "slow"},
                    headers={"Accept": accept},
                    timeout=0.2,
                )
        gate.set()
        deadline = time.monotonic() + 10
        while httpx.get(f"{url}/health").status_code != 200 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert httpx.get(f"{url}/health").status_code == 200
        gate.clear()


def test_clients_that_leave_in_the_middle_of_a_body_are_no_failures(memory, serve, caplog):
    url = serve(create_app(memory))
    place = urlsplit(url)
    head = "POST /v1/query HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with socket.create_connection((place.hostname, place.port)) as leaving:
        leaving.sendall(f"{head}Content-Length: 50\r\n\r\n".encode() + b'{"text":')
        time.sleep(0.2)
    time.sleep(0.2)
    assert httpx.get(f"{url}/health").status_code == 200
    assert "failed" not in caplog.text


@pytest.mark.slow
def test_heads_of_requests_without_end_are_refused(memory, tmp_path):
    memory.close()
    program = (
        "import socket, sys\n"
        "from crabpath_retrievers import CrabPath\n"
        "from crabpath_server import app\n"
        "app._IDLE_SECONDS = 1\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "with CrabPath.open(sys.argv[1]) as memory:\n"
        "    print(listening.getsockname()[1], flush=True)\n"
        "    app.run_app(app.create_app(memory), listening)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "memory")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            place = "127.0.0.1", int(process.stdout.readline())
            for said in ("", "GET /health HTT", "GET /health HTTP/1.1\r\nHost: localhost\r\nX: "):
                with socket.create_connection(place, timeout=20) as silent:
                    silent.sendall(said.encode())
                    assert silent.recv(100) == b"", said
            whole = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
            with socket.create_connection(place, timeout=20) as endless:
                endless.sendall(whole[:-2])
                with pytest.raises(OSError):  # noqa: PT011  it is closed, or reset
                    endless.sendall(b"x" * 100_000_000)
            with socket.create_connection(place, timeout=20) as patient:
                patient.sendall(whole)
                answer = b""
                while not answer.endswith(b"}"):
                    answer += patient.recv(65536)
                assert answer.startswith(b"HTTP/1.1 200")
                patient.sendall(whole[:20])
                assert patient.recv(100) == b""
        finally:
            process.kill()
