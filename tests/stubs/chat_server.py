"""A chat model behind the OpenAI wire format, on this machine, for real HTTP clients."""

import json
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

Said = str | Mapping[str, Any] | Response
"""A text, arguments of the tool or schema that was asked for, or a whole HTTP response."""


class ChatServer:
    """Answers ``POST /v1/chat/completions`` with what a function says to each request.

    A mapping is given as a tool call where the request offers tools, else as JSON text. Every
    request is kept in ``requests`` as its decoded body.
    """

    def __init__(self, server: HTTPServer, says: Callable[[dict[str, Any]], Said] | Said) -> None:
        """Answer on ``server``; ``says`` may be replaced at any time."""
        self.says = says
        self.requests: list[dict[str, Any]] = []
        self.url = server.url_for("/v1")
        server.expect_request("/v1/chat/completions", method="POST").respond_with_handler(self)

    def __call__(self, request: Request) -> Response:
        """Answer one request."""
        body = json.loads(request.get_data())
        self.requests.append(body)
        # A response is callable too: it is a WSGI application.
        fixed = isinstance(self.says, Response) or not callable(self.says)
        said = self.says if fixed else self.says(body)
        if isinstance(said, Response):  # one response object can be sent only once
            return Response(said.get_data(), said.status_code, said.headers)
        if body.get("stream"):
            return _streamed(body, said)
        message, reason = _message(body, said)
        completion = _completion(body, "chat.completion", said)
        choice = {"index": 0, "message": message, "finish_reason": reason, "logprobs": None}
        return _json({**completion, "choices": [choice]})


def too_many(seconds: float = 0) -> Response:
    """HTTP 429 as OpenAI sends it."""
    error = {"message": "slow down", "type": "requests", "code": "rate_limit_exceeded"}
    return _json({"error": error}, status=429, headers={"retry-after": str(seconds)})


def late(seconds: float, said: str = "too late") -> Callable[[dict[str, Any]], Said]:
    """An answer that takes a while."""

    def answer(_body: dict[str, Any]) -> Said:
        time.sleep(seconds)
        return said

    return answer


def _json(data: Any, **options: Any) -> Response:
    return Response(json.dumps(data), content_type="application/json", **options)


def _message(body: Mapping[str, Any], said: Said) -> tuple[dict[str, Any], str]:
    message: dict[str, Any] = {"role": "assistant", "content": None, "refusal": None}
    if isinstance(said, str):
        return {**message, "content": said}, "stop"
    if not body.get("tools"):
        return {**message, "content": json.dumps(said)}, "stop"
    return {**message, "tool_calls": [_call(body, said)]}, "tool_calls"


def _call(body: Mapping[str, Any], said: Any) -> dict[str, Any]:
    """A call of the tool that the mapping names under ``tool``, else of the first one offered."""
    name = said.get("tool", body["tools"][0]["function"]["name"])
    arguments = {key: value for key, value in said.items() if key != "tool"}
    function = {"name": name, "arguments": json.dumps(arguments)}
    return {"id": "call_1", "type": "function", "function": function}


def _completion(body: Mapping[str, Any], kind: str, said: Said) -> dict[str, Any]:
    words = [len(re.findall(r"\w+|[^\w\s]", str(text))) for text in (body["messages"], said)]
    return {
        "id": "chatcmpl-1",
        "object": kind,
        "created": 1_700_000_000,
        "model": body["model"],
        "usage": {
            "prompt_tokens": words[0],
            "completion_tokens": words[1],
            "total_tokens": sum(words),
        },
    }


def _streamed(body: Mapping[str, Any], said: Said) -> Response:
    message, reason = _message(body, said)
    delta = {key: value for key, value in message.items() if value is not None}
    for index, call in enumerate(delta.get("tool_calls", ())):
        call["index"] = index
    head = _completion(body, "chat.completion.chunk", said)
    usage = head.pop("usage")
    chunks = [
        {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]},
        {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]},
        {**head, "choices": [], "usage": usage},
    ]
    lines = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks]
    return Response([*lines, "data: [DONE]\n\n"], content_type="text/event-stream")
