"""Requests made from the OpenAPI description of a real server, most of them hostile.

A request is described by the schemas of its parameters and body; ids of former answers fill them.
Then something is wrong with a part of the values, and with a part of the bytes.
"""

import http.client
import json
import os
import random
import re
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import quote

import httpx

from benchmarks.soak.figures import Budget, Row
from benchmarks.soak.filters import Filters
from benchmarks.soak.fuzz import Inputs
from benchmarks.soak.serving import ServerProcess
from benchmarks.soak.stores import Hashed
from crabpath_retrievers import CrabPath
from crabpath_retrievers.parts.operation.maintenance.doctor import examine
from crabpath_server.tokens import create_token

_RIGHTS = ("read", "feedback", "teach", "write", "admin")
_MANY = 1_000_000  # requests a minute that the token may send
_PAGES = 60
_DEEP = 3000  # conditions in each other, in the place of more
_CLIENTS, _PART = 4, 100  # requests at once, and those that are made from the same known ids
_PATIENCE = 120.0  # seconds for an answer
_TOLD_EVERY = 10_000  # requests
_READ_BACK, _SHOWN = 50_000, 250  # bytes of the end of the log, and of an error
_LARGEST = 8 << 20  # bytes of a body that the server takes
_CLOSED = 0  # the status where the server did not let a body come in that is too large
_SHARES = (  # how often an operation is called, by its path; else once
    (re.compile("export|forget|maintenance|learning|user|regions|batch|freeze|ready|health"), 0.1),
    (re.compile("query|feedback|correct|undo|graph"), 3.0),
)
_KNOWN = {  # fields of answers that are kept, and fields of requests that they fill
    "turn_id": ("turn_id",),
    "feedback_id": ("feedback_id", "edge_id"),
    "next": ("after", "before"),
    "id": ("id", "snapshot", "token"),
}
_PROSE = frozenset({"text", "query", "title", "answer", "correction", "q"})
_ODD_SHARES = (0.0, 0.0, 0.05, 0.3)  # of the values of a request that are of any other kind
_NAMESPACES = ("default", "ann", "team%20a", "%E6%97%A5%E6%9C%AC", "%00", "%FF", "*", "", "a\xa0b")
_ACCEPTED = (
    *("text/event-stream", "application/json", "*/*", "text/html", "application/json;q=0", ""),
    *("text/event-stream;q=x, \xff", ", " * 500, "image/png"),
)
_TYPES = (
    "text/plain",
    "application/json; charset=utf-16",
    "application/xml",
    "",
    "json",
    "a/b;\xe4",
)
_ENCODINGS = ("gzip", "br", "identity;q=0", "gzip;q=0, *", "\xff")
_NUMBERS = (-1, 0, 1, 2, 3, 7, 100, 1000, 0.5, -0.0, 2**31, 2**63, 10**30, 1e308, float("nan"))


_Answer: TypeAlias = tuple[int, bytes] | Exception
_Maker: TypeAlias = Callable[[], Any]


class Sent(NamedTuple):
    """A request: the operation that it was made from, and what goes over the line."""

    operation: str
    method: str
    target: str
    headers: dict[str, str]
    body: bytes | None

    def __str__(self) -> str:
        """The request, cut where it is long."""
        shown = {k: v[:60] for k, v in self.headers.items() if k != "Authorization"}
        body = b"" if self.body is None else self.body
        return f"{self.method} {self.target[:200]} {shown} {body[:300]!r} ({len(body)} bytes)"


class Requests:
    """Random requests that a description allows, or nearly so."""

    def __init__(self, rng: random.Random, described: dict[str, Any], token: str) -> None:
        """Draw from this."""
        self.rng, self.token, self.inputs = rng, token, Inputs(rng)
        self.filters = Filters(rng)
        self._schemas = described["components"]["schemas"]
        self._operations = [
            (method.upper(), path, one)
            for path, methods in described["paths"].items()
            for method, one in methods.items()
        ]
        self._shares = [
            next((share for pattern, share in _SHARES if pattern.search(path)), 1.0)
            for _, path, _ in self._operations
        ]
        self._known = {name: deque(["d1"], maxlen=50) for name in _KNOWN}
        self._ids = [f"d{n}" for n in range(_PAGES)]
        self._odd = 0.0

    def learn(self, answer: Any) -> None:
        """Keep the ids of an answer, to ask about them."""
        if isinstance(answer, dict):
            for name in self._known.keys() & answer.keys():
                self._known[name] += [answer[name]] if isinstance(answer[name], str) else []
            answer = [*answer.values()]
        for part in answer[:5] if isinstance(answer, list) else ():
            self.learn(part)

    def make(self) -> Sent:
        """One request."""
        rng = self.rng
        self._odd = rng.choice(_ODD_SHARES)
        ((method, path, operation),) = rng.choices(self._operations, self._shares)
        label = f"{method} {path}"
        headers = {"Authorization": f"Bearer {self.token}"}
        pairs: list[str] = []
        for given in operation["parameters"]:
            name, required = given["name"], given.get("required")
            if not required and rng.random() < 0.6:
                continue
            field = "turn_id" if "turns" in path and name == "id" else name
            value = self._quote(self.value(given["schema"], field))
            if given["in"] == "path":
                path = path.replace(f"{{{name}}}", value)
            elif given["in"] == "query" and rng.random() > self._odd:
                pairs += [f"{name}={value}"] * rng.choice((1, 1, 1, 2))
            elif given["in"] == "header":
                strange = rng.random() < 0.2
                own = rng.choice(_NAMESPACES if strange else _NAMESPACES[:2])
                headers[name] = own if name.startswith("CrabPath") else value
        if rng.random() < self._odd:
            pairs.append(f"{self._quote(self.inputs.text())}={self._quote(self.inputs.thing())}")
        content = operation.get("requestBody", {}).get("content", {}).get("application/json")
        body = None
        if content is not None or rng.random() < self._odd / 2:
            headers["Content-Type"] = "application/json"
            body = self._encode(self.value((content or {}).get("schema", {"type": "object"})))
        self._spoil(headers)
        if rng.random() < self._odd / 10:
            method = rng.choice(("HEAD", "PUT", "PATCH", "OPTIONS", "TRACE", "BREW", "delete"))
        target = f"{path}?{'&'.join(pairs)}" if pairs else path
        return Sent(label, method, target, headers, body)

    def value(self, schema: dict[str, Any], name: str = "") -> Any:
        """A value of a schema, or, with a small chance, anything else."""
        rng = self.rng
        if rng.random() < self._odd:
            return self.inputs.thing()
        if "$ref" in schema:
            return self.value(self._schemas[schema["$ref"].rpartition("/")[2]], name)
        if "anyOf" in schema:
            return self.value(rng.choice(schema["anyOf"]), name)
        if "enum" in schema:
            return rng.choice(schema["enum"])
        makers: dict[str, _Maker] = {
            "object": lambda: self._object(schema, name),
            "array": lambda: [self.value(schema["items"], name) for _ in range(rng.randrange(4))],
            "string": lambda: self._text(name),
            "integer": lambda: self._number(schema, int),
            "number": lambda: self._number(schema, float),
            "boolean": lambda: rng.random() < 0.5,
            "null": lambda: None,
        }
        return makers[schema["type"]]()

    def _object(self, schema: dict[str, Any], name: str) -> dict[Any, Any]:
        rng = self.rng
        if name == "filter":
            kinds = (self.filters.legal, self.filters.large, self.filters.illegal)
            (make,) = rng.choices((*kinds, self.inputs.filter), (8, 0.2, 2, 6))
            made: dict[Any, Any] = make()
            return made
        if "properties" not in schema:
            about = {"title": "Title 3", "n": rng.randrange(9), "source": f"s/{rng.randrange(9)}"}
            odd = {self.inputs.text(): self.inputs.thing() for _ in range(rng.randrange(3))}
            return odd if self._odd and rng.random() < 0.5 else about
        needed = schema.get("required", ())
        made = {
            field: self.value(about, field)
            for field, about in schema["properties"].items()
            if rng.random() < (0.3 if field not in needed else 1 - self._odd / 3)
        }
        return made | ({self.inputs.text(): 1} if rng.random() < self._odd / 3 else {})

    def _text(self, name: str) -> str:
        rng, chance = self.rng, self.rng.random()
        if name == "outcome":
            return rng.choice(("up", "down", "sideways"))
        if name in {"confirm", "namespace"}:
            return rng.choice(("default", "ann", "no"))
        if name not in _PROSE and chance < 0.8:
            known = [
                each for k, filled in _KNOWN.items() if name in filled for each in self._known[k]
            ]
            return rng.choice(known if known and rng.random() < 0.8 else self._ids)
        return self.inputs.text() if self._odd or chance < 0.9 else f"word{rng.randrange(20)}"

    def _number(self, schema: dict[str, Any], kind: type) -> Any:
        if self._odd and self.rng.random() < 0.5:
            return self.rng.choice(_NUMBERS)
        least, most = schema.get("minimum", -1), schema.get("maximum", 1 if kind is float else 9)
        return kind(self.rng.uniform(least, min(most, 20)))

    def _quote(self, value: Any) -> str:
        """A value as a part of an address, sometimes wrongly."""
        text = value if isinstance(value, str) else _dump(value)
        chance = self.rng.random()
        if chance < self._odd / 8:
            return self.rng.choice(
                ("%", "%zz", "%00", "..", "%2e%2e/", "%ff%fe", "//", "%u1234", ";")
            )
        made = quote(text[:3000], safe="" if chance < 0.9 else "/", errors="surrogatepass")
        return made.replace("%20", "+") if chance > 0.95 else made

    def _encode(self, value: Any) -> bytes:
        """A body, sometimes with wrong bytes."""
        body, rng = _dump(value).encode(), self.rng
        if rng.random() > self._odd / 2:
            return body
        place = rng.randrange(len(body) + 1)
        wrong: tuple[Callable[[], bytes], ...] = (
            lambda: body[:place],
            lambda: body[:place] + rng.randbytes(3) + body[place:],
            lambda: body[:-1] + b"," + body[1:],  # each key twice
            lambda: body.decode().encode(rng.choice(("utf-16", "utf-8-sig", "utf-32"))),
            lambda: rng.choice((b"[", b'{"text":', b'{"filter":{"$and":[')) * 50_000,
            lambda: b'{"text":"' + b"word " * rng.choice((9_000, 20_000, 200_000)) + b'"}',
            lambda: body[:-1] + b',"text":1e99999,"k":' + b"9" * 5000 + b"}",
            lambda: rng.choice((b"", b"null", b"[]", b'"text"', b"0", b"{}", b"\x00", b"NaN")),
        )
        if rng.random() < 0.01:
            return b" " * (_LARGEST + 1) + body
        return rng.choice(wrong)()

    def _spoil(self, headers: dict[str, str]) -> None:
        """Headers of other kinds, and wrong ones."""
        rng, odd = self.rng, self._odd
        if rng.random() < 0.1:
            headers["Accept"] = rng.choice(_ACCEPTED)
        if rng.random() < odd / 4:
            headers["Content-Type"] = rng.choice(_TYPES)
        if rng.random() < odd / 4:
            name = rng.choice(("Content-Encoding", "Accept-Encoding", "Transfer-Encoding"))
            headers[name] = rng.choice(_ENCODINGS)
        if rng.random() < odd / 4:
            headers["X-Request-Id"] = quote(self.inputs.text()[:300], errors="replace")
        if rng.random() < odd / 8:
            headers["Authorization"] = rng.choice(
                ("", "Bearer", "Bearer \xff", "Basic eDp5", "x" * 999)
            )
        if rng.random() < odd / 8:
            name = rng.choice(("Content-Length", "Host", "Range", "Expect", "Origin", "Cookie"))
            headers[name] = rng.choice(("-1", "x", "bytes=0-1", "100-continue", "http://a", "0"))


def _dump(value: Any) -> str:
    """JSON of anything at all; what it has no word for is left out."""
    try:
        return json.dumps(value, default=lambda _: None, skipkeys=True)
    except RecursionError:
        return '{"text":"a","filter":' + '{"$and":[' * _DEEP + "]}" * _DEEP + "}"


class _Clients:
    """Connections to a server, one for each thread."""

    def __init__(self, server: ServerProcess) -> None:
        self._server, self._own = server, threading.local()

    def send(self, request: Sent) -> tuple[int, bytes]:
        """Status and body of the answer.

        Raises:
            OSError: The connection broke.
            http.client.HTTPException: The same.
        """
        opened = getattr(self._own, "opened", None)
        if opened is None:
            opened = http.client.HTTPConnection("127.0.0.1", self._server.port, timeout=_PATIENCE)
            self._own.opened = opened
        try:
            opened.putrequest(request.method, request.target, skip_accept_encoding=True)
            length = {} if request.body is None else {"Content-Length": str(len(request.body))}
            for name, value in {**length, **request.headers}.items():
                if name != "Host":
                    opened.putheader(name, value)
            opened.endheaders(request.body)
            answer = opened.getresponse()
            read = answer.read()
        except (OSError, http.client.HTTPException):
            opened.close()
            raise
        return answer.status, read


class _Fuzzing:
    """A server under attack."""

    def __init__(self, row: Row, server: ServerProcess, requests: Requests) -> None:
        self._row, self._server, self._requests = row, server, requests
        self._clients, self._pool = _Clients(server), ThreadPoolExecutor(_CLIENTS)
        self.statuses, self.busy = Counter[int](), 0

    def run(self, budget: Budget) -> None:
        """Send as many requests as there are runs."""
        numbers: Iterator[int] = iter(budget)
        self._be_honest()
        while part := [self._requests.make() for _ in islice(numbers, _PART)]:
            for request, answer in zip(part, self._pool.map(self._send, part), strict=True):
                self._row.runs += 1
                self._judge(request, answer)
            if self._server.has_ended:
                self._row.blame("other", f"the process is dead: {self._said()}")
                self._server.start()
            self._be_honest()
            if self._row.runs % _TOLD_EVERY == 0:
                sys.stderr.write(f"  {self._row.runs:,} requests\n")
        self._pool.shutdown()

    def _be_honest(self) -> None:
        """Pages that others deleted are there again, and plain questions are answered."""
        headers = {"Authorization": f"Bearer {self._requests.token}"}
        pages = [
            {
                "id": f"d{n}",
                "text": f"Passage {n} mentions Title {n // 3} word{n % 20}",
                "metadata": {"title": f"Title {n}", "n": n, "source": f"s/{n % 9}"},
            }
            for n in range(_PAGES)
        ]
        for path, body in (
            ("namespaces/unfreeze", {}),
            ("documents", {"documents": pages}),
            ("query", {"text": "Passage 3", "k": 3}),
        ):
            url = f"{self._server.address}/v1/{path}"
            answer = httpx.post(url, json=body, headers=headers, timeout=_PATIENCE)
            if answer.is_error or (path == "query" and len(answer.json()["documents"]) != 3):
                self._row.blame("other", f"an honest {path}: {answer.status_code} {answer.text}")
        self._row.acknowledged += 1

    def _send(self, request: Sent) -> _Answer:
        try:
            return self._clients.send(request)
        except (OSError, http.client.HTTPException, ValueError) as error:
            return error

    def _judge(self, request: Sent, answer: _Answer) -> None:
        if isinstance(answer, Exception):
            too_large = request.body is not None and len(request.body) > _LARGEST
            self.statuses[_CLOSED] += 1
            if not too_large:
                text = f"no answer: {answer!r} ← {request}"
                place = "" if isinstance(answer, ConnectionRefusedError) else request.operation
                self._row.blame("other", text, kind=f"{place} {type(answer)}")
            return
        status, body = answer
        self.statuses[status] += 1
        try:
            found = json.loads(body)
        except ValueError:
            found = None
        if status < 400:
            self._requests.learn(found)
        if status < 500:
            return
        detail = found.get("detail", "") if isinstance(found, dict) else repr(body[:200])
        if status == 503 and "fill the room" in detail:
            self.busy += 1
            return
        cause = self._said() if status == 500 else detail
        text = f"{status} {cause} ← {request}"
        self._row.blame("foreign", text, kind=f"{request.operation} {status} {cause[:80]}")

    def _said(self) -> str:
        """The last error in the server's log."""
        with self._server.log.open("rb") as log:
            log.seek(max(0, log.seek(0, os.SEEK_END) - _READ_BACK))
            text = log.read().decode("utf-8", "replace")
        found = [line for line in text.splitlines() if " ERROR " in line]
        return found[-1].partition("exception=")[2][:_SHOWN] if found else "no error in its log"


def check_rest(budget: Budget, seed: int) -> Row:
    """Requests from the description of ``crabpath serve``, as many as there are runs."""
    row = Row("fuzzed requests to a server")
    with TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as base:
        place, tokens = Path(base, "memory"), Path(base, "tokens.json")
        CrabPath.open(place, embeddings=Hashed()).close()
        token = create_token(
            tokens, ["*"], [*_RIGHTS], requests_per_minute=_MANY, feedbacks_per_hour=_MANY
        ).secret
        server = ServerProcess(str(place), tokens, "benchmarks.soak.stores:Hashed")
        server.start()
        try:
            described = httpx.get(f"{server.address}/openapi.json", timeout=_PATIENCE).json()
            fuzzing = _Fuzzing(row, server, Requests(random.Random(seed), described, token))
            fuzzing.run(budget)
            if code := server.stop():
                row.blame("other", f"the process ended with {code}")
        finally:
            server.kill()
        _look_at(row, place)
    counts = ", ".join(f"{n} {status}" for status, n in sorted(fuzzing.statuses.items()))
    row.remark = f"by status: {counts}; {fuzzing.busy} of 503 for want of room"
    return row


def _look_at(row: Row, place: Path) -> None:
    """The memory opens, and doctor finds it sound."""
    try:
        CrabPath.open(place, embeddings=Hashed()).close()
    except Exception as error:
        row.blame("unopenable", repr(error))
        return
    for found in examine(place, embeddings=Hashed()).findings:
        if found.severity != "info":
            row.blame("other", f"doctor: {found.message}")
