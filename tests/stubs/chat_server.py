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
        return _json(_completion(body, said))


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


def _completion(body: Mapping[str, Any], said: Said) -> dict[str, Any]:
    message, reason = _message(body, said)
    sent, got = [len(re.findall(r"\w+|[^\w\s]", str(text))) for text in (body["messages"], said)]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": body["model"],
        "choices": [{"index": 0, "message": message, "finish_reason": reason, "logprobs": None}],
        "usage": {"prompt_tokens": sent, "completion_tokens": got, "total_tokens": sent + got},
    }
