"""The log of a server: a line for each request and event, without what was asked and found."""

import json
import re
import time

import httpx
import pytest
from starlette.routing import Route
from starlette.testclient import TestClient

from crabpath_retrievers import InvalidInputError
from crabpath_server import Access, add_token, create_app, start_logging

TRACE = "0af7651916cd43dd8448eb211c80319c"
ANSWERED = r"crabpath_server\.requests| (INFO|WARNING) request "
ASKED = "Whose secret is the sky?"


@pytest.fixture
def log(capsys):
    """Starts the log of this process, and reads its lines."""

    def start(form="json", level="info", **options):
        start_logging(form, level, **options)

        def read(answers):
            """The lines, once so many requests have one: it follows their answers."""
            text, end = "", time.monotonic() + 20
            while len(re.findall(ANSWERED, text)) < answers and time.monotonic() < end:
                text += capsys.readouterr().err
                time.sleep(0.02)
            return text.splitlines()

        return read

    return start


def test_forms_and_levels_that_do_not_exist_are_refused():
    for wrong in ({"form": "xml"}, {"level": "loud"}, {"level": None}):
        with pytest.raises(InvalidInputError, match="one of"):
            start_logging(**wrong)


def of_requests(lines):
    return [fields for fields in map(json.loads, lines) if fields["event"] == "request"]


def test_a_request_is_one_line_that_says_whose_it_was_and_no_text(memory, token_file, serve, log):
    token = add_token(token_file, ["ann"], ["read", "feedback"])
    url = serve(create_app(memory, access=Access.from_file(token_file)))
    read = log(has_requests=True)
    headers = {
        "Authorization": f"Bearer {token}",
        "X-Request-Id": "r1",
        "traceparent": f"00-{TRACE}-b7ad6b7169203331-01",
    }
    with httpx.Client(base_url=url, headers=headers) as client:
        turn = client.post("/v1/query", json={"text": ASKED}).json()["turn_id"]
        client.post("/v1/feedback", json={"turn_id": turn, "outcome": 1, "answer": ASKED})
        client.get(f"/v1/turns/{turn}")
        client.get("/v1/documents", params={"q": ASKED})
        client.get("/nothing/at/all")
        call = {"name": "search", "arguments": {"query": ASKED}}
        body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        both = {"Accept": "application/json, text/event-stream"}
        assert client.post("/mcp", json=body, headers=both).status_code == 200
    lines = read(6)
    assert ASKED not in "".join(lines)
    assert "The sky is blue" not in "".join(lines)
    found = of_requests(lines)
    assert [(one["method"], one["route"], one["status"]) for one in found] == [
        ("POST", "/v1/query", 200),
        ("POST", "/v1/feedback", 200),
        ("GET", "/v1/turns/{id}", 200),
        ("GET", "/v1/documents", 200),
        ("GET", "none", 404),
        ("POST", "/mcp", 200),
    ]
    for one in found:
        assert (one["request"], one["trace"]) == ("r1", TRACE)
        assert one["ms"] >= 0
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", one["time"])
        assert token not in json.dumps(one)
    assert [one.get("turn") for one in found[:2]] == [turn, turn]
    assert {one.get("namespace") for one in (*found[:4], found[5])} == {"ann"}
    assert len({one["token"] for one in (*found[:4], found[5])}) == 1
    assert found[5]["tool"] == "search"
    learned = [one for one in map(json.loads, lines) if "changes" in one["event"]]
    assert all(one["request"] == "r1" for one in learned)


def test_refused_tokens_and_failures_are_logged_in_any_case(memory, token_file, serve, log):
    """Answers are not, unless it is asked for."""
    reader = add_token(token_file, ["ann"], ["read"])
    url = serve(create_app(memory, access=Access.from_file(token_file)))
    read = log(level="warning")
    with httpx.Client(base_url=url, headers={"Authorization": f"Bearer {reader}"}) as client:
        assert client.get("/v1/turns").status_code == 200
        assert client.post("/v1/teach", json={"text": ASKED}).status_code == 403
        client.headers["Authorization"] = "Bearer wrong"
        assert client.get("/v1/turns").status_code == 401
        assert client.get("/metrics").status_code == 401
    lines = read(3)
    found = of_requests(lines)
    assert [(one["status"], one["level"], one["error"]) for one in found] == [
        (403, "warning", "Forbidden"),
        (401, "warning", "Token refused"),
        (401, "warning", "Token refused"),
    ]
    assert "'teach'" in found[0]["refusal"]
    assert "unknown" in found[1]["refusal"]
    assert ASKED not in "".join(lines)
    assert "wrong" not in "".join(lines)


@pytest.mark.parametrize("form", ["logfmt", "text"])
def test_what_a_client_sends_stays_in_its_line(client, log, form):
    """An id, a path or a method cannot begin a line of its own, or control a terminal."""
    read = log(form, has_requests=True)
    for path in ("/v1/turns/a%0Alevel=error", "/v1/documents/%1B%5B2J", "/x%0D%0Ay"):
        client.get(path, headers={"X-Request-Id": "a\x1b[2J", "traceparent": "00-zz"})
    client.request("PURGE", "/v1/turns")
    lines = read(4)
    assert len(lines) == 4
    for line in lines:
        assert "\x1b" not in line
        assert re.search(r"request=[0-9a-f]{32} ", line)
        assert "trace=" not in line
    assert "method=_OTHER" in lines[3]
    assert "status=405" in lines[3]


def fail(_request):
    raise RuntimeError(ASKED)


def test_a_failure_shows_where_it_happened_and_its_message_only_for_debugging(memory, log):
    app = create_app(memory, more=[Route("/fail", fail)])
    client = TestClient(app, base_url="http://127.0.0.1")
    for level, shown in (("error", False), ("debug", True)):
        read = log(level=level)
        assert client.get("/fail").status_code == 500
        lines = [json.loads(line) for line in read(1)]
        failed = next(one for one in lines if one["event"] == "a request failed")
        assert (failed["level"], failed["method"]) == ("error", "GET")
        assert "RuntimeError" in failed["exception"]
        assert "test_logs.py" in failed["exception"]
        assert (ASKED in failed["exception"]) is shown
